"""Runs by variant, task, length and size: which sizes solve a task of length N, and how reliably.

`assay.findings.Separations` says what N is and when a run solves it. Cells wait for all their runs, since those that
learn quickly finish first; until then only a run that solves N counts, which shows that N can be reached. Cells do not
wait for pieces of the study of which nobody has run anything: those are no evidence. But that no run solves N is said
only after all planned runs, since a width or a rate that was not tried might.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any, NamedTuple

from assay.analysis.rules import Seeds, chosen_by_validation
from assay.analysis.settings import LEARNED, settings
from assay.errors import BadInput, suggestion
from assay.findings import Expectation, Finding
from assay.numbers import read_format
from assay.record import Record, Score

TOKENS_BESIDE = {  # tokens of the longest input that N does not count
    "index-lookup": 1,
    "equality-random": 1,
    "equality-one": 1,
    "equality-ncp": 1,
    "disjointness": 1,
    "nearest-neighbour": 1,
}
FLOAT32 = "float32"
GROWING = {"attention"}  # kinds of mixers whose state grows with the input
# Counting symbols alone is right on 91 to 96 % of the strings of the one, and on 95 to 99 % of those of the other.
STRICT = {("equality-random", ""), ("bounded-dyck", "corrupted")}  # tasks and their negatives
NEARLY_ALL = 0.99


class Place(NamedTuple):
    """Where a run stands: its task, the length N, its width, and the numbers of its state."""

    task: str
    length: int
    width: int
    numbers: str = FLOAT32


def place_of(spec: Mapping[str, Any]) -> Place:
    """The place of a run, from its spec as plain data."""
    kind, longest, model = str(spec["task"]["kind"]), int(spec["training"]["lengths"][1]), spec["model"]
    length = (longest - 1) // 2 if kind == "recall" else longest - TOKENS_BESIDE.get(kind, 0)
    width = model.get("width", model.get("options", {}).get("width", 0))
    return Place(kind, length, int(width), (model.get("state") or {}).get("numbers") or FLOAT32)


def state_bits(record: Record) -> int | None:
    """The bits of the state in the numbers that the run keeps it in; None if it grows with the input or is unknown."""
    kinds = {mixer.get("kind") for mixer in record.spec["model"].get("mixers", [])}
    if record.state_floats is None or kinds & GROWING:
        return None
    return record.state_floats * read_format(place_of(record.spec).numbers).bits


def scores_within(record: Record) -> list[Score]:
    """The scores in the test bins that end within the training lengths, or in the first bin if none does.

    They are of the best state by validation if that was tested; a run that diverged has none.
    """
    longest = int(record.spec["training"]["lengths"][1])
    ends = {str(bin_["name"]): int(bin_["high"]) for bin_ in record.spec["testing"]["bins"]}
    names = [name for name in record.bins if ends[name] <= longest] or record.bins[:1]
    best = record.state("best")
    found = (best or record).scores
    by_name = {score.bin: score for score in found if not score.probe}
    return [by_name[name] for name in names if name in by_name]


def needed_share(spec: Mapping[str, Any]) -> float:
    """The share of right sequences from which a run solves its task: more where a shortcut is right on many."""
    task = spec["task"]
    return NEARLY_ALL if (task["kind"], task.get("negatives", "")) in STRICT else LEARNED


def solves(record: Record, share: float | None = None) -> bool:
    """Whether at least this share of the sequences, or `needed_share`, is right in each test bin within the training
    lengths."""
    scores, least = scores_within(record), needed_share(record.spec) if share is None else share
    return bool(scores) and all(score.sequences >= least for score in scores)


def accuracy(record: Record) -> float:
    """The share of right sequences at length N; 0 for a run that diverged."""
    found = scores_within(record)
    if not found:
        return 0.0
    last, longest = found[-1], int(record.spec["training"]["lengths"][1])
    at_n = [row.sequences for row in last.lengths if row.length == longest]
    return at_n[0] if at_n else last.sequences


@dataclass(frozen=True)
class SizedCell:
    """All runs of a variant at one place: every rate and every seed.

    `records` are those that have finished, and `waiting` counts the others in pieces that have begun.
    """

    variant: str
    place: Place
    planned: int
    waiting: int
    records: tuple[Record, ...]

    @property
    def complete(self) -> bool:
        return bool(self.records) and not self.waiting

    @cached_property
    def groups(self) -> list[list[Record]]:
        """The settings; none before all runs have finished."""
        return settings(self.records) if self.complete else []

    @cached_property
    def seeds(self) -> tuple[Record, ...]:
        """The seeds of the setting that validation chooses; none before all runs have finished."""
        return chosen_seeds(self.groups)

    @cached_property
    def best(self) -> Record | None:
        """The run that is most accurate at length N; None before all runs have finished."""
        return max(self.records, key=accuracy) if self.complete else None

    @property
    def accuracy(self) -> float | None:
        """The mean over the chosen seeds of the share of right sequences at length N."""
        return mean(map(accuracy, self.seeds)) if self.seeds else None

    @property
    def rate(self) -> float | None:
        return self.seeds[0].rate if self.seeds else None

    @property
    def is_at_an_edge(self) -> bool:
        """Whether validation chose the lowest or the highest rate of those that had as many seeds."""
        rates = sorted({group[0].rate for group in self.groups if len(group) == len(self.seeds)})
        return len(rates) > 1 and self.rate in (rates[0], rates[-1])

    def reached(self, share: float | None = None) -> bool | None:
        """Whether some run solves N; None while that is not known."""
        return True if any(solves(record, share) for record in self.records) else False if self.complete else None

    def learned(self, share: float | None = None) -> Seeds:
        return Seeds(sum(solves(record, share) for record in self.seeds), len(self.seeds))

    def mostly(self, share: float | None = None) -> bool | None:
        """Whether most seeds of the chosen setting solve N; None while that is not known."""
        return self.learned(share).learned > len(self.seeds) / 2 if self.seeds else None


def chosen_seeds(groups: Sequence[Sequence[Record]]) -> tuple[Record, ...]:
    """The seeds of the setting with the best validation, of those settings that have the most seeds.

    A setting that was tried with few seeds, to find the rate for the others, does not compete.
    """
    most = max(map(len, groups), default=0)
    return chosen_by_validation(group for group in groups if len(group) == most)


class Lengths:
    """The cells of a study by variant and place, in the order of the study, and by variant, task and length."""

    def __init__(
        self,
        digests: Mapping[str, Mapping[str, Sequence[str]]],
        places: Mapping[str, Place],
        pieces: Mapping[str, Sequence[str]],
        records: Iterable[Record],
    ) -> None:
        finished = {record.digest: record for record in records if record.finished}
        begun = _begun(pieces, finished)
        planned: dict[tuple[str, Place], list[str]] = {}
        for variant, tasks in digests.items():
            for name in dict.fromkeys(name for names in tasks.values() for name in names):
                planned.setdefault((variant, places[name]), []).append(name)
        self.variants = tuple(digests)
        self.cells = {}
        for key, names in planned.items():
            waiting = sum(name not in finished and (name in begun or not pieces) for name in names)
            found = tuple(finished[name] for name in names if name in finished)
            self.cells[key] = SizedCell(*key, len(names), waiting, found)

    def at(self, variant: str, task: str, length: int) -> list[SizedCell]:
        """The cells of all sizes, from narrow to wide."""
        wanted = (variant, task, length)
        found = [c for c in self.cells.values() if (c.variant, c.place.task, c.place.length) == wanted]
        return sorted(found, key=lambda cell: (cell.place.width, cell.place.numbers))

    def lengths(self, variant: str, task: str) -> list[int]:
        """The lengths N of a task that a variant is planned for."""
        return sorted({p.length for v, p in self.cells if v == variant and p.task == task})

    def tasks(self) -> list[str]:
        return list(dict.fromkeys(place.task for _, place in self.cells))

    def pair(self, variant: str, task: str, length: int) -> LengthCell:
        return LengthCell(variant, task, length, tuple(self.at(variant, task, length)))

    def pairs(self, expected: Expectation) -> list[LengthCell]:
        """What an expectation is about: a variant on a task, at its length or at every one."""
        if expected.variant not in self.variants:
            known = suggestion(expected.variant, self.variants)
            raise BadInput(f"a finding names '{expected.variant}', which is not a variant{known}")
        lengths = self.lengths(expected.variant, expected.task)
        if not lengths or expected.length not in (None, *lengths):
            at = f"{expected.task} at N = {expected.length}" if expected.length else expected.task
            raise BadInput(f"a finding expects {expected.variant} on {at}, which the study does not run")
        wanted = lengths if expected.length is None else [expected.length]
        return [self.pair(expected.variant, expected.task, length) for length in wanted]


def _begun(pieces: Mapping[str, Sequence[str]], finished: Mapping[str, Record]) -> set[str]:
    """The runs of pieces that have begun; a run of several pieces belongs to the first of them."""
    owners: dict[str, str] = {}
    for piece, names in pieces.items():
        for name in names:
            owners.setdefault(name, piece)
    begun = {owners[name] for name in finished if name in owners}
    return {name for name, piece in owners.items() if piece in begun}


@dataclass(frozen=True)
class LengthCell:
    """A variant on a task of length N, with all of its sizes, states and rates."""

    variant: str
    task: str
    length: int
    sizes: tuple[SizedCell, ...]

    @property
    def records(self) -> list[Record]:
        return [record for cell in self.sizes for record in cell.records]

    @property
    def complete(self) -> bool:
        return bool(self.records) and not any(cell.waiting for cell in self.sizes)

    @property
    def exhausted(self) -> bool:
        """Whether all planned runs have finished, also those of pieces that nobody had begun."""
        return all(len(cell.records) == cell.planned for cell in self.sizes)

    @cached_property
    def seeds(self) -> tuple[Record, ...]:
        """The seeds of the size and the rate that validation chooses; none before all runs have finished."""
        return chosen_seeds([group for cell in self.sizes for group in cell.groups]) if self.complete else ()

    @property
    def chosen(self) -> SizedCell | None:
        """The size that validation chooses; None before all runs have finished."""
        return next((cell for cell in self.sizes if self.seeds and self.seeds[0] in cell.records), None)

    def learned(self, share: float | None = None) -> Seeds:
        return Seeds(sum(solves(record, share) for record in self.seeds), len(self.seeds))

    def reached(self, share: float | None = None) -> bool | None:
        """Whether some run of any size and rate solves N; None while that is not known."""
        return True if any(solves(record, share) for record in self.records) else False if self.exhausted else None

    @property
    def best(self) -> float | None:
        """The largest share of right sequences at length N of any finished run."""
        return max(map(accuracy, self.records), default=None)

    @property
    def probed(self) -> bool | None:
        """Whether some chosen seed is right on every random test input and on every probe; None if that is unknown."""
        right = [record for record in self.seeds if solves(record, 1.0)]
        tested = [record.probing for record in right if record.probing]
        if any(probing.shortest_wrong is None for probing in tested):
            return True
        return None if not self.seeds or len(tested) < len(right) else False


@dataclass(frozen=True)
class LengthJudgement:
    """A finding, and for each variant, task and length that it is about whether the outcome is as expected."""

    finding: Finding
    cells: tuple[tuple[Expectation, LengthCell], ...]

    def reachable(self, share: float | None = None) -> list[bool | None]:
        """That some run of any size and rate solves N; or none does, if the variant should fail."""
        found = [(expected.outcome == "learns", cell.reached(share)) for expected, cell in self.cells]
        return [None if reached is None else reached == learns for learns, reached in found]

    @property
    def judged(self) -> list[bool]:
        """Whether the seeds of the chosen setting can be judged: that a variant fails, only after all planned runs."""
        return [bool(c.seeds) and (e.outcome == "learns" or c.exhausted) for e, c in self.cells]

    def reliable(self, share: float | None = None) -> list[bool | None]:
        """That the interval of the share of seeds is above one half; or below it, if the variant should fail."""
        verdicts = [(expected.outcome, cell.learned(share).verdict) for expected, cell in self.cells]
        return [
            None if verdict == "undecided" or not known else verdict == outcome
            for (outcome, verdict), known in zip(verdicts, self.judged, strict=True)
        ]

    @property
    def probed(self) -> list[bool | None]:
        return [cell.probed for expected, cell in self.cells if expected.outcome == "learns"]


def judge_lengths(findings: Iterable[Finding], lengths: Lengths) -> list[LengthJudgement]:
    """Judge findings about what is learned, at each length that they are about."""
    return [
        LengthJudgement(f, tuple((expected, cell) for expected in f.expects for cell in lengths.pairs(expected)))
        for f in findings
    ]
