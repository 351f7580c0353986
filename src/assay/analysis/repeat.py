"""Repeating a cell of a study: which records to repeat, and whether a repeated run agrees with its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.analysis.settings import chosen, learned_up_to
from assay.analysis.subjects import read_study
from assay.errors import BadInput, suggestion
from assay.record import Record
from assay.studies import Study

COMPARED = ("verdict", "steps", "device")


@dataclass(frozen=True)
class Repetition:
    """A recorded run and the same run made again."""

    before: Record
    after: Record

    @property
    def same(self) -> bool:
        return outcome(self.before) == outcome(self.after)

    def plain(self) -> dict[str, Any]:
        """This repetition as JSON data."""
        runs = {"recorded": self.before, "now": self.after}
        return {"seed": self.before.seed} | {
            name: {"outcome": outcome(run)} | {field: getattr(run, field) for field in COMPARED}
            for name, run in runs.items()
        }


def recorded_cell(
    study: Study, variant: str, task: str, lr: float | None, store: Path | None, default_store: Path
) -> tuple[Record, ...]:
    """The recorded seeds of a variant on a task, at one learning rate or in the setting that validation chose."""
    if variant not in study.variants:
        raise BadInput(f"the study has no variant '{variant}'{suggestion(variant, study.variants)}")
    specs = {spec.digest: spec for spec in study.variants[variant]}
    tasks = {spec.task.kind for spec in specs.values()}
    if task not in tasks:
        raise BadInput(f"{variant} was not run on '{task}'{suggestion(task, tasks)}")
    subject = read_study(study, store, default_store)
    records = [r for r in subject.records if r.digest in specs and r.task == task and r.finished]
    rates = sorted({record.rate for record in records})
    if lr is not None and lr not in rates:
        known = ", ".join(f"{rate:g}" for rate in rates)
        raise BadInput(f"--lr {lr:g} is not recorded; choose from: {known or 'none'}")
    cell = chosen(record for record in records if lr in (None, record.rate))
    if not cell:
        raise BadInput(f"{subject.source} has no record of {variant} on {task}")
    seeds = sum(spec.with_seed(cell[0].seed).digest == cell[0].digest for spec in specs.values())
    if len(cell) < seeds:
        raise BadInput(
            f"{subject.source} has {len(cell)} of {seeds} seeds of this cell; finish them first, since runs that end "
            "early are recorded first"
        )
    return cell


def outcome(record: Record) -> str:
    """`learned`, if the task was learned as far as papers look, or else the verdict: what seeds of a cell agree in."""
    return "learned" if record.scores and learned_up_to(record, record.bins[:2][-1]) else record.verdict


def outcomes(records: Sequence[Record]) -> Counter[str]:
    return Counter(map(outcome, records))
