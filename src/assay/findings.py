"""What a paper found, as data, and whether records bear it out.

A finding is a sentence and the outcomes that it predicts: these models solve these tasks, those fail. Of several
settings of a model (learning rates, say) the one that validation likes best speaks for it: test bins choose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, ClassVar, Literal

from assay.description import Description, canonical
from assay.record import Record

Outcome = Literal["solves", "fails"]
Verdict = Literal["holds", "does not hold", "in part", "not tested"]
MOST, FEW = 0.5, 0.1  # shares of seeds: a model solves a task with at least MOST, fails with at most FEW


class Expectation(Description):
    """What a finding predicts of a model on a task.

    `up_to` is the last test bin that must be right: Bin1 is as far as the first paper looked.
    """

    kind: ClassVar[str] = "expectation"
    task: str
    model: str
    outcome: Outcome
    up_to: str = "Bin1"


class Finding(Description):
    """A claim about what is learned."""

    kind: ClassVar[str] = "finding"
    name: str
    says: str
    source: str
    expects: tuple[Expectation, ...]


@dataclass(frozen=True)
class Evidence:
    """How one expectation came out: seeds of the chosen setting, and those of them that are right up to its bin."""

    expected: Expectation
    chosen: tuple[Record, ...]

    @property
    def right(self) -> int:
        return sum(right_up_to(record, self.expected.up_to) for record in self.chosen)

    @property
    def met(self) -> bool | None:
        """None where nothing was run, or the seeds do not agree."""
        if not self.chosen:
            return None
        share = self.right / len(self.chosen)
        if FEW < share < MOST:
            return None
        return (share >= MOST) == (self.expected.outcome == "solves")


@dataclass(frozen=True)
class Judgement:
    finding: Finding
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        if not all(piece.chosen for piece in self.evidence):
            return "not tested"
        met = {piece.met for piece in self.evidence}
        if met == {True}:
            return "holds"
        return "does not hold" if met == {False} else "in part"


def judge(findings: Iterable[Finding], records: Sequence[Record]) -> list[Judgement]:
    return [Judgement(f, tuple(Evidence(e, chosen(records, e.task, e.model)) for e in f.expects)) for f in findings]


def chosen(records: Iterable[Record], task: str, model: str) -> tuple[Record, ...]:
    """The seeds of the setting that did best on validation; none where the model was not run on the task."""
    settings: dict[str, list[Record]] = {}
    for record in records:
        if (record.task, record.model) == (task, model):
            settings.setdefault(canonical(record.spec | {"seed": None}), []).append(record)
    best: list[Record] = max(settings.values(), key=validated, default=[])
    return tuple(sorted(best, key=lambda record: record.seed))


def validated(records: Sequence[Record]) -> tuple[float, float, float]:
    """How well a setting did on validation: seeds that it stopped as solved, accuracy at the end, and how soon."""
    last = [mean(r.curve[-1].sequences.values()) if r.curve and r.stopped != "diverged" else 0.0 for r in records]
    return mean(r.stopped == "solved" for r in records), mean(last), -median(r.steps for r in records)


def right_up_to(record: Record, bin_: str) -> bool:
    """Whether every tested sequence was right, in all bins up to this one."""
    bins: list[dict[str, Any]] = record.spec["testing"]["bins"]
    names = [window["name"] for window in bins]
    upto = names[: names.index(bin_) + 1] if bin_ in names else names
    scores = [record.score(name) for name in upto]
    return all(score is not None and score.sequences == 1.0 for score in scores)
