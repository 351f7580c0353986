"""What theory says beside trained sizes: needed bits, the best accuracy with fewer, least widths, explicit weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from assay.analysis.lengths import Lengths, SizedCell, accuracy, scores_within, state_bits
from assay.description import canonical
from assay.errors import BadInput
from assay.record import Record
from assay.tasks import read_task
from assay.tasks.task import Task
from assay.theory.bounds.information import Need, best_accuracy, one_layer, two_way
from assay.theory.bounds.sizes import Built, Recipe, constructions, needed

PRECISION = 32  # bits of a number that is not rounded
SAMPLING = {"negatives"}  # options of tasks that say which inputs are drawn, and change no right answer
STEPS = 60  # points of a drawn curve


class Bounds(NamedTuple):
    """For one architecture and one N: the least width that has enough bits, and the narrowest explicit weights."""

    least: int | None
    explicit: int | None
    claim: str


@dataclass(frozen=True)
class TaskBounds:
    """The bits that a task of length N needs in a state of fixed size, and the explicit weights that are known."""

    task: Task | None  # None for one that this installation does not know
    length: int

    @cached_property
    def need(self) -> Need | None:
        return needed(self.task, self.length) if self.task else None

    @property
    def bits(self) -> int | None:
        return max(self.need.bits, self.need.invariant) if self.need else None

    @cached_property
    def built(self) -> list[Built]:
        """The constructions for this length; building them takes a second."""
        tokens = self.need.tokens if self.need else self.length
        return list(constructions(self.task, tokens)) if self.task else []

    def of(self, model: str, layers: int, heads: int) -> Bounds:
        """Of a named model; a construction with fewer layers counts, since a further layer can do nothing."""
        weights = [w for w in self.built if w.model == model and w.layers <= layers]
        narrowest = min(weights, key=lambda w: w.width, default=None)
        known = (narrowest.width, narrowest.claim) if narrowest else (None, "")
        with suppress(BadInput, TypeError):  # a user's own model, or one without a number of layers
            recipe = Recipe(model, layers=layers)
            if not recipe.grows and self.bits is not None:
                assert self.need is not None
                return Bounds(recipe.width_with(-(-self.bits // PRECISION), self.need.cut), *known)
            split = two_way(self.task, self.length) if self.task else None
            if recipe.grows and layers == 1 and split:
                return Bounds(one_layer(split.bits, split.tokens, PRECISION, heads).lean, *known)
        return Bounds(None, *known)


def task_bounds(record: Record, length: int) -> TaskBounds:
    """The bounds for the task of a record at length N."""
    task = {name: value for name, value in record.spec["task"].items() if name not in SAMPLING}
    return _task_bounds(canonical(task), length)


@lru_cache(maxsize=256)
def _task_bounds(text: str, length: int) -> TaskBounds:
    try:
        return TaskBounds(read_task(json.loads(text)), length)
    except BadInput:
        return TaskBounds(None, length)


def bounds_of(record: Record, length: int) -> Bounds:
    """The bounds for the architecture and the task of a record."""
    mixers: Sequence[Mapping[str, Any]] = record.spec["model"].get("mixers", [])
    heads = int(mixers[0].get("heads", 1)) if mixers else 1
    return task_bounds(record, length).of(record.model, len(mixers), heads)


# -- accuracy against bits of state ------------------------------------------------------------------------------------


class StatePoint(NamedTuple):
    """A machine of one size: the bits of its state, the accuracy of its best run, and the ceiling for so many bits."""

    cell: SizedCell
    bits: int
    accuracy: float
    ceiling: float
    rows: int  # test strings behind the accuracy


def state_points(lengths: Lengths, variants: Sequence[str], task: str, length: int) -> list[StatePoint]:
    """The finished recurrent machines of index lookup at one N."""
    points = []
    for variant in variants:
        for cell in lengths.at(variant, task, length):
            bits = state_bits(cell.best) if cell.best else None
            if cell.best and bits:
                ceiling = best_accuracy(length, alphabet_of(cell.best), bits)
                rows = sum(score.rows for score in scores_within(cell.best)[-1:])
                points.append(StatePoint(cell, bits, accuracy(cell.best), ceiling, max(1, rows)))
    return points


def alphabet_of(record: Record) -> int:
    return int(record.spec["task"]["alphabet"])


def ceiling_curve(length: int, alphabet: int, low: float, high: float) -> list[tuple[float, float]]:
    """The best accuracy of index lookup with a state of so many bits, at bits between two numbers."""
    bits = [low * (high / low) ** (step / (STEPS - 1)) for step in range(STEPS)]
    return [(number, best_accuracy(length, alphabet, number)) for number in bits]
