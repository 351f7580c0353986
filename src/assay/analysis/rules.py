"""Two rules for the same runs: what is reachable by the published rule, and what is reliable and extrapolates by ours.

By the published rule of Irie et al. 2023 a run speaks through its watched state (`testing.states`), which test bins
selected, and a model through its best run. By ours every seed of the setting that validation chose counts, in its last
state or in the best one by validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Literal, NamedTuple

from assay.analysis.cells import wilson
from assay.analysis.settings import LEARNED, mean_validation, settings
from assay.findings import Change, Choice, Expectation, Finding, Replication
from assay.record import Certified, OtherState, Probing, Record, Score, Verdict, wrong_inputs

Reliability = Literal["learns", "fails", "undecided"]
State = Literal["last", "best", "averaged", "watched"]
SHARES = (0.9, 0.95, 0.99, 1.0)  # of right sequences, from which a seed counts as having learned a bin
HALF = 0.5  # of the seeds: the boundary between learning and failing
FIRST_BINS = 2  # Bin0 and Bin1, as far as the first paper looked


# -- the published rule ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reached:
    """The best that any run of a model reached by the published rule, in the first two test bins."""

    record: Record
    state: OtherState
    perfect: int  # runs without a mistake in both bins
    runs: int

    def accuracy(self, number: int = 1) -> float:
        """The share of right sequences in Bin0 or Bin1."""
        return self.state.scores[number].sequences

    @property
    def in_perfect_runs(self) -> str:
        """`3 of 165 runs make no mistake`, in short."""
        return f"{self.perfect:,} of {self.runs:,}"


def reached(records: Iterable[Record]) -> Reached | None:
    """What is reachable by the published rule; None if no run was watched.

    Of equal runs the smallest speaks, and of equally large ones that with the best Bin1.
    """
    watched = [(record, state) for record in records if (state := record.state("watched"))]
    if not watched:
        return None

    def rank(pair: tuple[Record, OtherState]) -> tuple[float, int, float]:
        shares = [score.sequences for score in pair[1].scores[:FIRST_BINS]]
        return mean(shares), -pair[0].parameters, shares[-1]

    record, state = max(watched, key=rank)
    perfect = sum(all(score.sequences == 1 for score in state.scores[:FIRST_BINS]) for _, state in watched)
    return Reached(record, state, perfect, len(watched))


# -- our rule ----------------------------------------------------------------------------------------------------------


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


class Tested(NamedTuple):
    """The test of one state of a run, and what `assay certify` found about it.

    `other_scores` are those with the other strings of the task.
    """

    scores: Sequence[Score]
    verdict: Verdict
    probing: Probing | None
    other_scores: Sequence[Score] = ()
    certified: Sequence[Certified] = ()

    def learned(self, share: float, up_to: int = FIRST_BINS) -> bool:
        """Whether at least this share of each of the first bins is right."""
        return len(self.scores) >= up_to and all(score.sequences >= share for score in self.scores[:up_to])

    @property
    def proved(self) -> bool:
        """Whether it is right on every input of every length; a proof about a rounded state is not about it."""
        proofs = [result for result in self.certified if result.outcome == "proved" and not result.rounded]
        return any(result.length is None for result in proofs)

    @property
    def wrong(self) -> list[tuple[int, str]]:
        return wrong_inputs(self.probing, self.certified)


def tested(record: Record, state: State) -> Tested:
    """The test of a state; a run that diverged has no scores, and has learned nothing.

    Certificates are about the last state; they count for another one with the same weights.
    """
    if state == "last":
        return Tested(record.scores, record.verdict, record.probing, record.other_scores, record.certified)
    other = record.state(state)
    if other is None:
        return Tested((), record.verdict, None)
    is_same = bool(other.weights_sha256) and other.weights_sha256 == record.weights_sha256
    certified = record.certified if is_same else ()
    return Tested(other.scores, other.verdict, other.probing, other.other_scores, certified)


def learned(records: Sequence[Record], share: float, up_to: int = FIRST_BINS, state: State = "last") -> Seeds:
    """The seeds that are right in at least this share of each of the first bins, in one of their states."""
    return Seeds(sum(tested(record, state).learned(share, up_to) for record in records), len(records))


def accuracy(
    records: Sequence[Record], number: int, state: State = "last", other_strings: bool = False
) -> float | None:
    """The mean share of right sequences in a bin, by its number; a run that was not tested there counts as 0."""
    if not records:
        return None
    tests = [tested(record, state) for record in records]
    scores = [test.other_scores if other_strings else test.scores for test in tests]
    return mean(row[number].sequences if number < len(row) else 0.0 for row in scores)


@dataclass(frozen=True)
class Extrapolation:
    """Of the seeds without a mistake in the first two bins: how many make none in longer ones, and none on probes.

    A seed that `assay certify` has refuted counts like one that a probe has refuted.
    """

    learned: int
    longer: int
    probed: int
    proved: int  # of those: right on every input, by a certificate
    shortest_wrong: str  # the shortest input of known symbols on which any of these seeds is wrong
    unknown: bool  # whether seeds that are right in every bin were not probed


def extrapolation(records: Sequence[Record], state: State = "last") -> Extrapolation:
    """How far the seeds that are right in the first two bins extrapolate."""
    right = [test for record in records if (test := tested(record, state)).learned(1.0)]
    longer = [test for test in right if test.learned(1.0, len(test.scores))]
    wrong = [(length, word) for test in right for length, word in test.wrong if word]
    probed = [test for test in longer if test.probing or test.proved or test.wrong]
    solved = [test for test in probed if test.verdict == "solved" and not test.wrong]
    return Extrapolation(
        learned=len(right),
        longer=len(longer),
        probed=len(solved),
        proved=sum(test.proved for test in solved),
        shortest_wrong=min(wrong, default=(0, ""))[1],
        unknown=len(probed) < len(longer),
    )


def chosen_by_validation(runs: Iterable[Sequence[Record]]) -> tuple[Record, ...]:
    """The setting whose seeds have the highest mean validation: in their best state, or as they were tested.

    Of equal settings the one with the higher mean over all checks, which learns sooner and loses less; then the lower
    rate.
    """

    def rank(records: Sequence[Record]) -> tuple[float, float, float]:
        checks = [[mean(point.sequences.values()) for point in record.curve] or [0.0] for record in records]
        best = mean(map(max, checks)) if _has_best_state(records) else mean_validation(records)
        return best, mean(map(mean, checks)), -min(record.rate for record in records)

    best = max((group for group in runs if group), key=rank, default=())
    return tuple(sorted(best, key=lambda record: record.seed))


def _has_best_state(records: Sequence[Record]) -> bool:
    return any(record.state("best") for record in records)


# -- both --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoRules:
    """A model on a task, by both rules.

    `reached` is by the published rule, over all configurations of the model, and `best_run` over the runs of this
    variant alone. `seeds` are the runs of the setting that validation chose; ours counts all of them, in their best
    state, or in their last one if no other was tested. Until all runs of the variant have finished there are no seeds
    and no best run. Until those of its decisive variants have finished, too, only a run without a mistake is reached:
    that no run makes none is not known yet.
    """

    variant: str
    task: str
    reached: Reached | None
    best_run: Reached | None
    seeds: tuple[Record, ...]
    rates: tuple[float, ...] = ()  # between which validation chose

    @cached_property
    def reliable(self) -> Seeds:
        return self.learned(LEARNED)

    @property
    def state(self) -> State:
        return "best" if _has_best_state(self.seeds) else "last"

    def learned(self, share: float, state: State | None = None) -> Seeds:
        return learned(self.seeds, share, state=state or self.state)

    def accuracy(self, number: int, state: State | None = None) -> float | None:
        return accuracy(self.seeds, number, state or self.state)

    @cached_property
    def extrapolation(self) -> Extrapolation:
        return extrapolation(self.seeds, self.state)


Digests = Mapping[str, Mapping[str, Sequence[str]]]  # of a study's runs, by variant and task


def by_two_rules(
    digests: Digests,
    configurations: Mapping[str, Sequence[str]],
    records: Iterable[Record],
    decisive: Mapping[tuple[str, str], Sequence[str]] | None = None,
) -> dict[tuple[str, str], TwoRules]:
    """Every model and task by both rules; `configurations` names the variants that are configurations of a model, and
    `decisive` those of them that must have finished before something counts as out of reach."""
    finished = {record.digest: record for record in records if record.finished}
    cells = {}
    for variant, tasks in digests.items():
        for task, names in tasks.items():
            rivals = [digests[other].get(task, ()) for other in configurations.get(variant, (variant,))]
            seeds = [finished[name] for name in names if name in finished]
            is_complete = len(seeds) == len(names)
            others = (digests.get(other, {}).get(task, ()) for other in (decisive or {}).get((variant, task), ()))
            is_decided = is_complete and all(name in finished for group in others for name in group)
            best = reached(finished[name] for group in rivals for name in group if name in finished)
            cells[variant, task] = TwoRules(
                variant,
                task,
                best if best and (is_decided or best.perfect) else None,
                reached(seeds) if is_complete else None,
                chosen_by_validation(settings(seeds)) if is_complete else (),
                tuple(sorted({record.rate for record in seeds})),
            )
    return cells


@dataclass(frozen=True)
class Judged:
    """A finding by both rules: for each of its expectations whether it is met, or None if that is not known."""

    finding: Finding
    cells: tuple[tuple[Expectation, TwoRules], ...]

    @property
    def reachable(self) -> list[bool | None]:
        """By the published rule: that some run makes no mistake in Bin0 and Bin1; or none does, if it should fail."""
        return [
            None if cell.reached is None else (cell.reached.perfect > 0) == (expected.outcome == "learns")
            for expected, cell in self.cells
        ]

    @property
    def reliable(self) -> list[bool | None]:
        """By ours: that the seeds' interval is above one half; or below it, if the model should fail."""
        return self.reliable_from(LEARNED)

    def reliable_from(self, share: float) -> list[bool | None]:
        """The same, if a seed has learned a bin from this share of right sequences on."""
        verdicts = [cell.learned(share).verdict for _, cell in self.cells]
        return [
            None if verdict == "undecided" else verdict == expected.outcome
            for verdict, (expected, _) in zip(verdicts, self.cells, strict=True)
        ]

    @property
    def extrapolates(self) -> list[bool | None]:
        """Of the cells that should be learned: that some seed is right in every bin and on every probe, not refuted."""
        found = [cell.extrapolation if cell.seeds else None for e, cell in self.cells if e.outcome == "learns"]
        return [None if far is None or (far.unknown and not far.probed) else far.probed > 0 for far in found]


def value(cell: TwoRules | None, change: Change) -> float | None:
    """Bin1 of the runs that a change is about; None until all of them have finished."""
    if cell is None:
        return None
    if change.best_run:
        return cell.best_run.accuracy() if cell.best_run else None
    return accuracy(cell.seeds, 1, change.state, change.other_strings)


def effects(
    replication: Replication, cells: Mapping[tuple[str, str], TwoRules], choice: Choice
) -> dict[tuple[str, str], float]:
    """What a choice of the protocol adds to Bin1, by contested pair, for the pairs for which it is known."""
    changes, added = {change.title: change for change in replication.changes}, {}
    for model, task in replication.contested if choice.effect else ():
        pair = [value(cells.get((model + changes[name].suffix, task)), changes[name]) for name in choice.effect or ()]
        if pair[0] is not None and pair[1] is not None:
            added[model, task] = pair[1] - pair[0]
    return added


def witnesses(findings: Iterable[Judged]) -> dict[str, str]:
    """The runs by which something is reachable that the paper says is learned, and their state, by digest."""
    cells = (cell for one in findings if one.finding.quote for e, cell in one.cells if e.outcome == "learns")
    return {cell.reached.record.digest: "watched" for cell in cells if cell.reached and cell.reached.perfect}


def judged(findings: Iterable[Finding], cells: Mapping[tuple[str, str], TwoRules]) -> list[Judged]:
    return [Judged(f, tuple((e, cells[e.variant, e.task]) for e in f.expects)) for f in findings]
