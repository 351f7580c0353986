"""Findings judged by records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from assay.analysis.settings import LEARNED, chosen, learned_at, learned_up_to, validation_learned
from assay.errors import BadInput, suggestion
from assay.findings import ABOUT_SEEDS, Expectation, Finding
from assay.record import Record

if TYPE_CHECKING:
    from assay.analysis.grid import Grid

FindingStatus = Literal["holds", "does not hold", "in part", "under way", "not tested"]
MOST, FEW = 0.5, 0.1  # shares of seeds: a variant learns a task with at least MOST, fails with at most FEW


@dataclass(frozen=True)
class Evidence:
    """An expectation and the runs that it is about."""

    expected: Expectation
    runs: tuple[Record, ...]

    def count(self, share: float = LEARNED) -> int:
        """The number of runs that learned the task up to the bin, with this share of it; or diverged; or collapsed."""
        expected = self.expected
        if expected.outcome in ABOUT_SEEDS:
            return sum(learned_up_to(record, expected.up_to, share) for record in self.runs)
        verdict = {"diverges": "diverged", "collapses": "collapsed"}[expected.outcome]
        return sum(record.verdict == verdict for record in self.runs)

    @property
    def at_some_check(self) -> int:
        """The number of runs that had learned every validation bin at some check."""
        return sum(learned_at(record) is not None for record in self.runs)

    @property
    def as_tested(self) -> int:
        """The number of runs that had learned every validation bin in the state that was tested."""
        return sum(record.tested is not None and validation_learned(record.tested) for record in self.runs)

    def met(self, needed: float = LEARNED) -> bool | None:
        """Whether the outcome is as expected; None if nothing was run or the seeds do not agree."""
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

    def status(self, share: float = LEARNED) -> FindingStatus:
        """Whether the finding holds, if a seed learns a task with this share of right sequences."""
        tested = [bool(evidence.runs) for evidence in self.evidence]
        if not all(tested):
            return "under way" if any(tested) else "not tested"
        met = {evidence.met(share) for evidence in self.evidence}
        if met == {True}:
            return "holds"
        return "does not hold" if met == {False} else "in part"


def judge(findings: Iterable[Finding], variants: Mapping[str, Sequence[Record]]) -> list[Judgement]:
    """Judge findings by the records of each variant."""
    return [Judgement(f, tuple(_evidence(expected, variants) for expected in f.expects)) for f in findings]


def _evidence(expected: Expectation, variants: Mapping[str, Sequence[Record]]) -> Evidence:
    if expected.variant not in variants:
        known = suggestion(expected.variant, variants)
        raise BadInput(f"a finding names '{expected.variant}', which is not a variant{known}")
    records = tuple(record for record in variants[expected.variant] if expected.task in ("", record.task))
    return Evidence(expected, chosen(records) if expected.outcome in ABOUT_SEEDS else records)


def judge_grid(findings: Iterable[Finding], grid: Grid) -> list[Judgement]:
    """Judge findings by a grid; one about all tasks at once is not tested until its variant has finished them all."""

    def complete(evidence: Evidence) -> Evidence:
        pooled = not evidence.expected.task
        return replace(evidence, runs=()) if pooled and not grid.complete(evidence.expected.variant) else evidence

    judgements = judge(findings, grid.variants)
    return [replace(judged, evidence=tuple(map(complete, judged.evidence))) for judged in judgements]
