"""Cells: records gathered by task, model and setting, over their seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from assay.analysis.settings import learned_at, learned_up_to, perfect_up_to, settings
from assay.record import Record

UNSET = ('""', "0.0", "null")  # values that say as much as a missing field


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927).

    >>> tuple(round(bound, 3) for bound in wilson(3, 3))
    (0.439, 1.0)
    """
    if not trials:
        return 0.0, 1.0
    share, unit = successes / trials, z * z / trials
    middle = (share + unit / 2) / (1 + unit)
    half = z * math.sqrt(share * (1 - share) / trials + unit / trials / 4) / (1 + unit)
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Cell:
    """All seeds of one task, model and setting."""

    task: str
    model: str
    setting: str
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """The model, with its setting where several have the same model."""
        return f"{self.model} {self.setting}".strip()

    @property
    def finished(self) -> list[Record]:
        return [record for record in self.records if record.finished]

    @property
    def solved(self) -> list[Record]:
        """The seeds that are right on all that was checked, `assay certify` included."""
        return [record for record in self.records if record.rung not in ("", "refuted")]

    @property
    def right_on_random(self) -> list[Record]:
        """The seeds that are right on every random test input, whether a probe refutes them or not."""
        return [record for record in self.records if record.verdict in ("solved", "refuted")]

    @property
    def wrong_word(self) -> str:
        """The shortest wrong input, if its symbols are known; those of random test inputs are not recorded."""
        known = [record.shortest_wrong for record in self.records if record.wrong_word]
        length, word = min(known, default=(0, ""))
        return word if length == self.first_failing_length else ""

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(len(self.solved), len(self.records))

    @property
    def verdicts(self) -> str:
        """The verdicts of the runs, commonest first: `solved`, or `2 collapsed, 1 partly`."""
        counts = Counter(verdict_text(record).removesuffix(" solved") for record in self.records).most_common()
        if len(counts) == 1:
            return counts[0][0]
        return ", ".join(f"{count} {name}" for name, count in counts)

    def perfect(self, up_to: str) -> list[Record]:
        """The seeds that are right in every sequence of every bin up to this one."""
        return [record for record in self.records if perfect_up_to(record, up_to)]

    def learned(self, up_to: str) -> list[Record]:
        """The seeds that are right in nearly every sequence of each bin up to this one."""
        return [record for record in self.records if learned_up_to(record, up_to)]

    def accuracy(self, bin_: str, probe: str = "") -> float | None:
        """The mean share of right sequences over the seeds; a run that diverged counts as 0."""
        if not any(record.score(bin_, probe) for record in self.finished):
            return None
        scores = (record.score(bin_, probe) for record in self.finished)
        return mean(score.sequences if score else 0.0 for score in scores)

    @property
    def longest_bin(self) -> str:
        return self.records[0].bins[-1]

    @property
    def steps_to_solve(self) -> float | None:
        return median(r.solved_at or r.steps for r in self.solved) if self.solved else None

    @property
    def seconds_to_solve(self) -> float | None:
        return median(r.seconds["train"] for r in self.solved) if self.solved else None

    @property
    def first_failing_length(self) -> int | None:
        """The length of the shortest wrong input that is known."""
        failing = [n for r in self.records for n in (r.first_failing_length, r.shortest_wrong[0]) if n]
        return min(failing, default=None)

    def first_wrong(self, width: int) -> str:
        """The shortest wrong input that is known, if it fits into a width; else its length, or a dash."""
        if self.wrong_word and len(self.wrong_word) <= width:
            return self.wrong_word
        return "-" if self.first_failing_length is None else f"{self.first_failing_length:,}"

    def plain(self) -> dict[str, Any]:
        """This cell as JSON data."""
        return {
            "task": self.task,
            "model": self.model,
            "setting": self.setting,
            "solved": len(self.solved),
            "right_on_random": len(self.right_on_random),
            "rungs": dict(Counter(record.rung for record in self.solved)),
            "wrong_word": self.wrong_word,
            "seeds": len(self.records),
            "interval": list(self.interval),
            "accuracy": {bin_: self.accuracy(bin_) for bin_ in bins([self])},
            "verdicts": dict(Counter(record.verdict for record in self.records)),
            "first_failing_length": self.first_failing_length,
            "steps_to_solve": self.steps_to_solve,
            "seconds_to_solve": self.seconds_to_solve,
        }


def verdict_text(record: Record) -> str:
    """The verdict; for a solved run how far it was checked, if that is less or more than the probes."""
    rungs = {"probed": "solved", "random": "solved (not probed)"}
    return rungs.get(record.rung, record.rung) or record.verdict


def cells(records: Iterable[Record]) -> list[Cell]:
    """Cells in the order of their first records."""
    groups = settings(records)
    labels = _labels([group[0] for group in groups])
    return [
        Cell(group[0].task, group[0].model, label, tuple(sorted(group, key=lambda r: r.seed)))
        for group, label in zip(groups, labels, strict=True)
    ]


def median_steps(records: Iterable[Record]) -> float | None:
    """The median step at which runs first had nearly all of validation right, of the runs that did."""
    steps = [step for record in records if (step := learned_at(record)) is not None]
    return median(steps) if steps else None


def rates(records: Iterable[Record]) -> list[str]:
    """The learning rates of records as text, from low to high."""
    return [f"{lr:g}" for lr in sorted({record.rate for record in records})]


def by_rate(records: Iterable[Record]) -> dict[float, list[Record]]:
    """Records by learning rate, from low to high."""
    groups: dict[float, list[Record]] = {}
    for record in records:
        groups.setdefault(record.rate, []).append(record)
    return dict(sorted(groups.items()))


def bins(cells: Iterable[Cell]) -> list[str]:
    """The names of the test bins of cells, from short to long as each task orders them."""
    positions: dict[str, int] = {}
    for cell in cells:
        for position, name in enumerate(cell.records[0].bins):
            positions[name] = max(position, positions.get(name, 0))
    return sorted(positions, key=lambda name: (positions[name], name))


def _labels(records: list[Record]) -> list[str]:
    """The fields in which runs of the same task and model differ, as `lr=0.003 width=32`."""
    rivals: dict[tuple[str, str], list[int]] = {}
    for number, record in enumerate(records):
        rivals.setdefault((record.task, record.model), []).append(number)
    labels = [""] * len(records)
    for numbers in rivals.values():
        for number, label in zip(numbers, differing_fields([records[n].spec for n in numbers]), strict=True):
            labels[number] = label
    return labels


def differing_fields(data: Sequence[dict[str, Any]]) -> list[str]:
    """For each of several nested dictionaries the fields in which they differ, as `lr=0.003 width=32`.

    Lists, such as those of the test bins, are long and follow from other fields as a rule: they are shown only where
    the other fields do not tell the dictionaries apart.
    """
    fields_of, values = [_flatten(item) for item in data], dict[str, set[str | None]]()
    for name in dict.fromkeys(name for fields in fields_of for name in fields):
        values[name] = {fields.get(name) for fields in fields_of}
        if None in values[name] and values[name] & {*UNSET}:
            values[name] -= {None}
    names = [n for n, known in values.items() if len(known) > 1 and n.rsplit(".", 1)[-1] not in ("kind", "version")]
    short = [name for name in names if not any((value or "").startswith("[") for value in values[name])]
    labels = [_label(fields, short) for fields in fields_of]
    if len({*labels}) == len({_label(fields, names) for fields in fields_of}):
        return labels
    return [_label(fields, names) for fields in fields_of]


def _label(fields: Mapping[str, str], names: Iterable[str]) -> str:
    return " ".join(f"{name.rsplit('.', 1)[-1]}={fields[name]}" for name in names if name in fields)


def _flatten(data: Any, name: str = "") -> dict[str, str]:
    if isinstance(data, dict):
        parts = (_flatten(value, f"{name}.{key}" if name else key) for key, value in data.items() if key != "seed")
        return {key: value for part in parts for key, value in part.items()}
    if name.endswith("mixers") and data:
        return _flatten_layers([_flatten(mixer) for mixer in data], name)
    return {name: json.dumps(data)}


def _flatten_layers(mixers: Sequence[dict[str, str]], name: str) -> dict[str, str]:
    """The number of layers, and each field of their mixers: once where all agree, else layer by layer."""
    fields = {f"{name}.layers": str(len(mixers))}
    for key in dict.fromkeys(key for mixer in mixers for key in mixer):
        values = [mixer.get(key, "-") for mixer in mixers]
        path = f"{name}.mixer" if key == "kind" else f"{name}.{key}"
        fields[path] = ",".join(values if len({*values}) > 1 else values[:1]).replace('"', "")
    return fields
