"""Records gathered into cells: one row per task, model and setting, over its seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from assay.findings import learned_at, learned_up_to, right_up_to, settings
from assay.record import Record


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


def in_percent(interval: tuple[float, float]) -> str:
    """
    >>> in_percent(wilson(3, 3))
    '44-100'
    """
    low, high = interval
    return f"{100 * low:.0f}-{100 * high:.0f}"


@dataclass(frozen=True)
class Cell:
    """All seeds of one task, model and setting."""

    task: str
    model: str
    setting: str
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """The model, and what tells it apart from others of its name."""
        return f"{self.model} {self.setting}".strip()

    @property
    def finished(self) -> list[Record]:
        return [record for record in self.records if record.finished]

    @property
    def solved(self) -> list[Record]:
        return [record for record in self.records if record.verdict == "solved"]

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(len(self.solved), len(self.records))

    @property
    def interval_in_percent(self) -> str:
        return in_percent(self.interval)

    @property
    def verdicts(self) -> str:
        """What the runs came to, commonest first: `solved`, or `2 collapsed, 1 partly`."""
        counts = Counter(record.verdict.removesuffix(" solved") for record in self.records).most_common()
        if len(counts) == 1:
            return counts[0][0]
        return ", ".join(f"{count} {name}" for name, count in counts)

    def right(self, up_to: str) -> list[Record]:
        """The seeds that are right in every sequence of every bin up to this one."""
        return [record for record in self.records if right_up_to(record, up_to)]

    def learned(self, up_to: str) -> list[Record]:
        """The seeds that are right in nearly every sequence of each bin up to this one."""
        return [record for record in self.records if learned_up_to(record, up_to)]

    def accuracy(self, bin_: str, probe: str = "") -> float | None:
        """The mean share of right sequences over the seeds, a divergence counting as 0."""
        if not any(record.score(bin_, probe) for record in self.finished):
            return None
        scores = (record.score(bin_, probe) for record in self.finished)
        return mean(score.sequences if score else 0.0 for score in scores)

    @property
    def steps_to_solve(self) -> float | None:
        return median(r.solved_at or r.steps for r in self.solved) if self.solved else None

    @property
    def seconds_to_solve(self) -> float | None:
        return median(r.seconds["train"] for r in self.solved) if self.solved else None

    @property
    def first_failing_length(self) -> int | None:
        failing = [r.first_failing_length for r in self.records if r.first_failing_length is not None]
        return min(failing) if failing else None

    def plain(self) -> dict[str, Any]:
        """This cell as JSON data."""
        return {
            "task": self.task,
            "model": self.model,
            "setting": self.setting,
            "solved": len(self.solved),
            "seeds": len(self.records),
            "interval": list(self.interval),
            "accuracy": {bin_: self.accuracy(bin_) for bin_ in bins([self])},
            "verdicts": dict(Counter(record.verdict for record in self.records)),
            "first_failing_length": self.first_failing_length,
            "steps_to_solve": self.steps_to_solve,
            "seconds_to_solve": self.seconds_to_solve,
        }


def cells(records: Iterable[Record]) -> list[Cell]:
    """Cells in the order in which the records name them."""
    found = settings(records)
    said = _settings([group[0] for group in found])
    return [
        Cell(group[0].task, group[0].model, setting, tuple(sorted(group, key=lambda r: r.seed)))
        for group, setting in zip(found, said, strict=True)
    ]


def median_steps(records: Iterable[Record]) -> float | None:
    """Steps until nearly all of validation was right, of runs that got there."""
    steps = [step for record in records if (step := learned_at(record)) is not None]
    return median(steps) if steps else None


def rates(records: Iterable[Record]) -> list[str]:
    """The learning rates of some runs as they are written, from low to high."""
    return [f"{lr:g}" for lr in sorted({record.rate for record in records})]


def bins(of: Iterable[Cell]) -> list[str]:
    """The names of the bins of some cells, from short to long as each task orders them."""
    places: dict[str, int] = {}
    for cell in of:
        for place, name in enumerate(cell.records[0].bins):
            places[name] = max(place, places.get(name, 0))
    return sorted(places, key=lambda name: (places[name], name))


def _settings(records: list[Record]) -> list[str]:
    """What tells runs of the same task and model apart, as `lr=0.003 width=32`."""
    rivals: dict[tuple[str, str], list[dict[str, str]]] = {}
    flat = [_flatten(record.spec) for record in records]
    for record, fields in zip(records, flat, strict=True):
        rivals.setdefault((record.task, record.model), []).append(fields)
    said = []
    for record, fields in zip(records, flat, strict=True):
        others = rivals[record.task, record.model]
        keys = [key for key in fields if len({other.get(key) for other in others}) > 1]
        said.append(" ".join(f"{key.rsplit('.', 1)[-1]}={fields[key]}" for key in keys))
    return said


def _flatten(data: Any, name: str = "") -> dict[str, str]:
    if isinstance(data, dict):
        inside = (_flatten(value, f"{name}.{key}" if name else key) for key, value in data.items() if key != "seed")
        return {key: value for part in inside for key, value in part.items()}
    return {name: json.dumps(data)}


def percent(share: float | None) -> str:
    """
    >>> percent(1.0), percent(0.9996), percent(0.5), percent(None)
    ('100', '99.9', '50.0', '-')
    """
    if share is None:
        return "-"
    return "100" if share == 1 else f"{math.floor(share * 1000) / 10:.1f}"


def or_dash(number: float | None) -> str:
    """
    >>> or_dash(1234.4), or_dash(None)
    ('1,234', '-')
    """
    return "-" if number is None else f"{number:,.0f}"
