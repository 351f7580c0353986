"""Two rules for the same runs: what is reachable by the published rule, and what is reliable and extrapolates by ours.

By the published rule of Irie et al. 2023 a run speaks through its watched state (`testing.states`), which test bins
selected, and a model through its best run. By ours every seed of the setting that validation chose counts, in its last
state or in the best one by validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

from assay.analysis.cells import wilson
from assay.analysis.settings import mean_validation
from assay.record import OtherState, Record, Score

Reliability = Literal["learns", "fails", "undecided"]
SHARES = (0.9, 0.95, 0.99, 1.0)  # of right sequences, from which a seed counts as having learned a bin
HALF = 0.5  # of the seeds: the boundary between learning and failing


@dataclass(frozen=True)
class Reached:
    """The best that any run of a model reached by the published rule, in the first two test bins."""

    record: Record
    state: OtherState
    perfect: int  # runs without a mistake in both bins
    runs: int

    @property
    def accuracy(self) -> float:
        """The share of right sequences in the second bin, or in the only one."""
        return self.state.scores[:2][-1].sequences


def reached(records: Iterable[Record]) -> Reached | None:
    """What is reachable by the published rule; None if no run was watched."""
    watched = [(record, state) for record in records if (state := record.state("watched"))]
    if not watched:
        return None
    record, state = max(watched, key=lambda pair: mean(score.sequences for score in pair[1].scores[:2]))
    return Reached(record, state, sum(state.first_perfect is not None for _, state in watched), len(watched))


@dataclass(frozen=True)
class Seeds:
    """How many seeds of one setting have learned a task, with Wilson's 95 % interval of their share."""

    learned: int
    seeds: int

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.learned, self.seeds)

    @property
    def verdict(self) -> Reliability:
        """The interval decides: above one half the model learns the task, below it fails."""
        low, high = self.interval
        return "learns" if low > HALF else "fails" if high < HALF else "undecided"


def learned(records: Sequence[Record], share: float, up_to: int = 2, state: Literal["last", "best"] = "last") -> Seeds:
    """The seeds that are right in at least this share of each of the first bins, in one of their states."""
    return Seeds(sum(_has_learned(_scores(record, state), share, up_to) for record in records), len(records))


def _scores(record: Record, state: str) -> Sequence[Score]:
    """The scores of a state; a run that diverged has none, and has learned nothing."""
    if state == "last":
        return record.scores
    other = record.state(state)
    return other.scores if other else ()


def _has_learned(scores: Sequence[Score], share: float, up_to: int) -> bool:
    return len(scores) >= up_to and all(score.sequences >= share for score in scores[:up_to])


@dataclass(frozen=True)
class Extrapolation:
    """Of the seeds without a mistake in the first two bins: how many make none in longer ones, and none on probes."""

    learned: int
    longer: int
    probed: int
    shortest_wrong: str  # the shortest wrong probe of any of these seeds


def extrapolation(records: Sequence[Record]) -> Extrapolation:
    """How far the seeds that are right in the first two bins extrapolate."""
    right = [record for record in records if _has_learned(record.scores, 1.0, 2)]
    longer = [record for record in right if _has_learned(record.scores, 1.0, len(record.scores))]
    probed = [record for record in longer if record.verdict == "solved"]
    wrong = [record.shortest_wrong for record in right if record.wrong_word]
    return Extrapolation(len(right), len(longer), len(probed), min(wrong, default=(0, ""))[1])


def chosen_by_validation(settings: Iterable[Sequence[Record]]) -> tuple[Record, ...]:
    """The setting whose seeds have the highest mean accuracy in validation; of equal ones the lower rate."""

    def rank(records: Sequence[Record]) -> tuple[float, float]:
        return mean_validation(records), -min(record.rate for record in records)

    best = max((group for group in settings if group), key=rank, default=())
    return tuple(sorted(best, key=lambda record: record.seed))
