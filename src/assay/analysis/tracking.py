"""Records beside the numbers of papers, and beside what theory says of classes of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import mean
from typing import NamedTuple

from assay.analysis.cells import Cell
from assay.analysis.grid import Grid, Pair
from assay.findings import Column, PublishedTable, Tracking
from assay.record import Record
from assay.tasks.predictions import Answer, Prediction

CLOSE = 5.0  # points: published numbers are means of few seeds, and so are ours


@dataclass(frozen=True)
class Compared:
    """A published number, and the same measure of our seeds, in %."""

    published: float
    ours: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.ours)

    @property
    def verdict(self) -> str:
        """Whether the published number lies between our seeds, or within a few points of the nearest."""
        if self.published < min(self.ours) - CLOSE:
            return "higher here"
        return "lower here" if self.published > max(self.ours) + CLOSE else "as published"


class Order(NamedTuple):
    """Pairs of models whose published numbers differ by more than a few points: how ours order them."""

    same: int
    opposite: int
    close: int  # less than these points apart here


def compare(table: PublishedTable, grid: Grid) -> dict[Pair, Compared]:
    """The numbers of a table by variant and column, of the cells whose runs have all finished."""
    compared: dict[Pair, Compared] = {}
    for variant, numbers in table.numbers.items():
        for name, number in numbers.items():
            column = table.columns[name]
            if cell := grid.chosen.get((variant, column.task)):
                ours = tuple(measured(record, column, table.measure) for record in cell.records)
                compared[variant, name] = Compared(number, ours)
    return compared


def measured(record: Record, column: Column, measure: str) -> float:
    """A measure of a run in %; a run that diverged gave no right answer."""
    score = record.score(column.bin)
    answers = score.answers if score else 0.0
    if measure == "error":
        return 100 * (1 - answers)
    return 100 * (answers - column.chance) / (1 - column.chance) if measure == "scaled accuracy" else 100 * answers


def order(compared: Mapping[Pair, Compared]) -> Order:
    """How our means order the pairs of models that a table orders, column by column."""
    counts = {"same": 0, "opposite": 0, "close": 0}
    for (one, column), (other, its_column) in combinations(compared, 2):
        if column != its_column:
            continue
        first, second = compared[one, column], compared[other, column]
        theirs, ours = first.published - second.published, first.mean - second.mean
        if abs(theirs) > CLOSE:
            counts["close" if abs(ours) <= CLOSE else "same" if (theirs > 0) == (ours > 0) else "opposite"] += 1
    return Order(**counts)


@dataclass(frozen=True)
class Beside:
    """What theory says of a class of models on a task, and the runs of its variants, at all learning rates."""

    task: str
    prediction: Prediction
    cells: tuple[Cell, ...]

    @property
    def runs(self) -> int:
        return sum(len(cell.records) for cell in self.cells)

    @property
    def random(self) -> int:
        """Runs that are right on every random test string."""
        return sum(len(cell.right_on_random) for cell in self.cells)

    @property
    def solved(self) -> int:
        """Runs that are also right on every probe."""
        return sum(len(cell.solved) for cell in self.cells)

    @property
    def agrees(self) -> bool | None:
        """Whether some run does what is possible and none what is not; None if theory does not say."""
        answers: dict[Answer, bool] = {"yes": self.solved > 0, "no": self.solved == 0}
        return answers.get(self.prediction.answer)


def beside_theory(
    tracking: Tracking, predicted: Mapping[str, Mapping[str, Prediction]], grid: Grid
) -> dict[Pair, Beside]:
    """By class of models and task: what theory says, and what the runs of this class do."""
    classes: dict[str, list[str]] = {}
    for variant, name in tracking.classes.items():
        classes.setdefault(name, []).append(variant)
    rows: dict[Pair, Beside] = {}
    for name, variants in classes.items():
        for task, by_class in predicted.items():
            planned = [(variant, task) for variant in variants if task in grid.digests[variant]]
            if planned and all(pair in grid.pooled for pair in planned):  # what no run does is known after all of them
                cells = tuple(grid.pooled[pair] for pair in planned)
                rows[name, task] = Beside(task, by_class[name], cells)
    return rows
