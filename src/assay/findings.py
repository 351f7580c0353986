"""What a paper found, as data, and whether records bear it out.

A finding is a sentence and the outcomes that it predicts: these models learn these tasks, those fail. A study gathers
its runs under the names of variants: a model as published, or with one thing changed. Of several settings of a variant
(learning rates, say) the one that validation likes best speaks for it: test bins choose nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import ClassVar, Literal, NamedTuple

from pydantic import model_validator

from assay.description import BadInput, Description, canonical, suggestion
from assay.record import Point, Record

Outcome = Literal["learns", "fails", "diverges", "collapses"]
ABOUT_SEEDS = ("learns", "fails")  # of the chosen setting; the others are about all runs
Verdict = Literal["holds", "does not hold", "in part", "under way", "not tested"]
MOST, FEW = 0.5, 0.1  # shares of seeds: a variant learns a task with at least MOST, fails with at most FEW
LEARNED = 0.95  # of the sequences of a bin: papers report accuracies, and call this learned


class Expectation(Description):
    """What a finding predicts of a variant on a task.

    `up_to` is the last test bin that must be learned: Bin1 is as far as the first paper looked. It diverges or
    collapses if at least FEW of all its runs do, whatever their setting; without a task, of those on all tasks.
    """

    kind: ClassVar[str] = "expectation"
    variant: str
    outcome: Outcome
    task: str = ""
    up_to: str = "Bin1"

    @model_validator(mode="after")
    def _about_something(self) -> Expectation:
        if self.outcome in ABOUT_SEEDS and not self.task:
            raise ValueError(f"an expectation that {self.variant} {self.outcome} needs a task")
        return self


class Finding(Description):
    """A claim about what is learned, of the paper that a study repeats or `asked_here`; `differs` says why, where
    records do not bear it out."""

    kind: ClassVar[str] = "finding"
    name: str
    says: str
    source: str
    asked_here: bool = False
    expects: tuple[Expectation, ...]
    differs: str = ""


@dataclass(frozen=True)
class Evidence:
    """How one expectation came out: the runs that it is about, and those of them that did what it asks for."""

    expected: Expectation
    runs: tuple[Record, ...]

    def count(self, share: float = LEARNED) -> int:
        """Of the runs: learned up to the bin, with such a share of its sequences, or diverged, or collapsed."""
        expected = self.expected
        if expected.outcome in ABOUT_SEEDS:
            return sum(learned_up_to(record, expected.up_to, share) for record in self.runs)
        verdict = {"diverges": "diverged", "collapses": "collapsed"}[expected.outcome]
        return sum(record.verdict == verdict for record in self.runs)

    @property
    def at_some_check(self) -> int:
        """Of the runs: had learned every validation bin at some check, whatever became of it."""
        return sum(learned_at(record) is not None for record in self.runs)

    @property
    def as_tested(self) -> int:
        """Of the runs: had learned every validation bin in the state that was tested."""
        return sum(record.tested is not None and _validated(record.tested) for record in self.runs)

    def met(self, needed: float = LEARNED) -> bool | None:
        """None where nothing was run, or the seeds do not agree."""
        if not self.runs:
            return None
        share = self.count(needed) / len(self.runs)
        if self.expected.outcome not in ABOUT_SEEDS:
            return share >= FEW
        if FEW < share < MOST:
            return None
        return (share >= MOST) == (self.expected.outcome == "learns")


@dataclass(frozen=True)
class Judgement:
    finding: Finding
    evidence: tuple[Evidence, ...]

    def verdict(self, share: float = LEARNED) -> Verdict:
        """With another share of right sequences from which a seed has learned, another one may follow."""
        run = [bool(piece.runs) for piece in self.evidence]
        if not all(run):
            return "under way" if any(run) else "not tested"
        met = {piece.met(share) for piece in self.evidence}
        if met == {True}:
            return "holds"
        return "does not hold" if met == {False} else "in part"


class Comparison(NamedTuple):
    """Variants to be set side by side, by name, on these tasks, or else on all that any of them was asked."""

    title: str
    says: str
    variants: tuple[str, ...]
    tasks: tuple[str, ...] = ()


Variants = Mapping[str, Sequence[Record]]


def judge(findings: Iterable[Finding], variants: Variants) -> list[Judgement]:
    return [Judgement(f, tuple(_evidence(expected, variants) for expected in f.expects)) for f in findings]


def _evidence(expected: Expectation, variants: Variants) -> Evidence:
    if expected.variant not in variants:
        known = suggestion(expected.variant, variants)
        raise BadInput(f"a finding names '{expected.variant}', which is no variant{known}")
    mine = tuple(record for record in variants[expected.variant] if expected.task in ("", record.task))
    return Evidence(expected, chosen(mine) if expected.outcome in ABOUT_SEEDS else mine)


def chosen(records: Iterable[Record]) -> tuple[Record, ...]:
    """Of one variant's runs on one task, the seeds of the setting that did best on validation; none of none."""
    best: Sequence[Record] = max(settings(records), key=validated, default=[])
    return tuple(sorted(best, key=lambda record: record.seed))


def settings(records: Iterable[Record]) -> list[list[Record]]:
    """Records that differ in their seed alone, together."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(canonical(record.spec | {"seed": None}), []).append(record)
    return list(found.values())


def validated(records: Sequence[Record]) -> tuple[float, float, float, float]:
    """How well a setting did on validation: seeds that it stopped as solved, accuracy of the state that was tested, how
    soon those seeds stopped; and of settings that are equal in all this, the lower rate."""
    tested = [mean(r.tested.sequences.values()) if r.tested and r.stopped != "diverged" else 0.0 for r in records]
    solved = [r.steps for r in records if r.stopped == "solved"]
    soon = -median(solved) if solved else 0.0
    return len(solved) / len(records), mean(tested), soon, -min(r.rate for r in records)


def learned_at(record: Record, share: float = LEARNED) -> int | None:
    """The first check at which such a share of every validation bin was right."""
    return next((point.step for point in record.curve if _validated(point, share)), None)


def _validated(point: Point, share: float = LEARNED) -> bool:
    return min(point.sequences.values()) >= share


def right_up_to(record: Record, bin_: str) -> bool:
    """Whether every tested sequence was right, in all bins up to this one."""
    return learned_up_to(record, bin_, 1.0)


def learned_up_to(record: Record, bin_: str, share: float = LEARNED) -> bool:
    """Whether at least such a share of the tested sequences was right, in each of the bins up to this one."""
    names = record.bins
    if bin_ not in names:
        raise BadInput(f"{record.task} was not tested in '{bin_}'{suggestion(bin_, names)}")
    scores = [record.score(name) for name in names[: names.index(bin_) + 1]]
    return all(score is not None and score.sequences >= share for score in scores)
