"""Settings: when a run has learned its task, and which setting of a variant validation chooses.

Of several settings of a variant (learning rates, for example) the best on validation stands for the variant; test bins
choose nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import mean, median

from assay.description import canonical
from assay.errors import BadInput, suggestion
from assay.record import Point, Record

LEARNED = 0.95  # share of right sequences in a bin: papers report accuracies, and call this learned


def settings(records: Iterable[Record]) -> list[list[Record]]:
    """Records grouped by setting: within a group only the seed differs."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_canonical(json.dumps(record.spec | {"seed": None})), []).append(record)
    return list(groups.values())


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    """Canonical text, computed once for all seeds of a setting."""
    return canonical(json.loads(text))


def chosen(records: Iterable[Record]) -> tuple[Record, ...]:
    """The seeds of the setting that did best on validation, among one variant's runs on one task."""
    best: Sequence[Record] = max(settings(records), key=validation_rank, default=[])
    return tuple(sorted(best, key=lambda record: record.seed))


def validation_rank(records: Sequence[Record]) -> tuple[float, float, float, float]:
    """How well a setting did on validation; the largest rank is chosen.

    First the share of seeds that stopped as solved, then the accuracy of the tested states, then how soon the solved
    seeds stopped; among settings equal in all of these, the lower rate.
    """
    solved = [r.steps for r in records if r.stopped == "solved"]
    soon = -median(solved) if solved else 0.0
    return len(solved) / len(records), mean_validation(records), soon, -min(r.rate for r in records)


def mean_validation(records: Sequence[Record]) -> float:
    """The mean validation accuracy of the tested states; a run that diverged counts as 0."""
    return mean(mean(r.tested.sequences.values()) if r.tested and r.stopped != "diverged" else 0.0 for r in records)


def learned_at(record: Record, share: float = LEARNED) -> int | None:
    """The step of the first check with at least this share of every validation bin right."""
    return next((point.step for point in record.curve if validation_learned(point, share)), None)


def validation_learned(point: Point, share: float = LEARNED) -> bool:
    return min(point.sequences.values()) >= share


def perfect_up_to(record: Record, bin_: str) -> bool:
    """Whether every tested sequence was right, in all bins up to this one."""
    return learned_up_to(record, bin_, 1.0)


def learned_up_to(record: Record, bin_: str, share: float = LEARNED) -> bool:
    """Whether at least this share of the tested sequences was right, in each of the bins up to this one."""
    names = record.bins
    if bin_ not in names:
        raise BadInput(f"{record.task} was not tested in '{bin_}'{suggestion(bin_, names)}")
    for name in names[: names.index(bin_) + 1]:
        score = record.score(name)
        if score is None or not score.sequences >= share:
            return False
    return True
