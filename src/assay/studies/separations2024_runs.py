"""The runs of `separations2024` and of its laptop variant: tasks at a length N, and blocks of runs at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from assay.findings import Expectation, Outcome
from assay.models import named_model
from assay.spec import RunSpec, run_spec
from assay.tasks import named_task
from assay.tasks.task import Task

SHORTEST = 10  # symbols of the shortest training input of index lookup, as published; tokens of the others
WITH_HEADS = ("transformer", "linear-transformer", "delta-net", "recurrent-delta", "srwm", "retnet")
BATCH = 64


@cache
def task_at(kind: str, length: int, options: tuple[tuple[str, Any], ...]) -> Task:
    """A task of length N: N symbols before the index, or as many pairs as N tokens can bind and ask for."""
    sizes = {"index-lookup": {"positions": length}, "multi-query-recall": {"pairs_bound": length // 4}}
    return named_task(kind, **sizes.get(kind, {}), **dict(options))


def training_lengths(task: Task, length: int, shortest: int) -> tuple[int, int]:
    """The shortest and the longest training input of a task of length N.

    N counts the symbols before the index, the tokens of both strings, the points and labels before the last point, the
    pairs before the query, or all tokens.
    """
    if task.kind == "recall":
        return 2 * min(shortest // 2, length) + 1, 2 * length + 1
    if task.kind == "multi-query-recall":
        return length, length
    if task.kind in ("phone-book", "bounded-dyck"):
        return task.lengths(shortest, length)[0], length
    return min(shortest, length) + 1, length + 1


@dataclass(frozen=True)
class Block:
    """The runs of one variant on one task at several lengths N: every width, learning rate and seed.

    `numbers` are formats to which the state is rounded after every step, empty for none. `layers` and `change` are
    part of the variant's name, so that one variant has all sizes of one architecture with one depth.
    """

    task: str
    lengths: tuple[int, ...]
    model: str
    layers: int
    widths: tuple[int, ...]
    rates: tuple[float, ...]
    seeds: int
    steps: int
    heads: tuple[int, ...] = (4,)
    change: str = ""
    task_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    numbers: tuple[str, ...] = ("",)
    first_seed: int = 0
    shortest: int = SHORTEST
    rows: int = 512

    @property
    def variant(self) -> str:
        return named_variant(self.model, self.layers, self.change)

    def runs(self) -> list[RunSpec]:
        return [run for length in self.lengths for run in self._at(length)]

    def _at(self, length: int) -> list[RunSpec]:
        task = task_at(self.task, length, tuple(sorted(self.task_options.items())))
        low, high = training_lengths(task, length, self.shortest)
        bins = [(low, high), (high, high)] if low < high else [(high, high)]
        protocol: dict[str, Any] = {
            "training": {
                "lengths": (low, high),
                "validation": [{"name": f"Val{i}", "low": a, "high": b} for i, (a, b) in enumerate(bins)],
                "batch": BATCH,
                "steps": self.steps,
                "keep": "best",
            },
            "testing": {"bins": [{"name": f"Bin{i}", "low": a, "high": b} for i, (a, b) in enumerate(bins)]},
        }
        protocol["testing"]["rows"] = self.rows
        specs = [
            run_spec(
                task,
                named_model(self.model, **self._options(width, heads, numbers, high)),
                training=protocol["training"] | {"lr": lr},
                testing=protocol["testing"],
            )
            for width in self.widths
            for heads in self._heads(width)
            for numbers in self.numbers
            for lr in self.rates
        ]
        return [spec.with_seed(self.first_seed + seed) for spec in specs for seed in range(self.seeds)]

    def _heads(self, width: int) -> tuple[int, ...]:
        """Heads that a width allows: each has at least 4 numbers, if the width is so large."""
        return tuple(dict.fromkeys(min(heads, max(1, width // 4)) for heads in self.heads))

    def _options(self, width: int, heads: int, numbers: str, longest: int) -> dict[str, Any]:
        options: dict[str, Any] = {"width": width, "layers": self.layers, **self.options}
        if self.model in WITH_HEADS:
            options["heads"] = heads
        if self.model == "transformer":
            options |= {"norm": "pre", "positions": "learned", "longest": longest}
        if numbers:
            options["state"] = {"numbers": numbers}
        return options


def named_variant(model: str, layers: int, change: str = "") -> str:
    """
    >>> named_variant("transformer", 1, "hard"), named_variant("lstm", 2)
    ('transformer, hard, 1 layer', 'lstm, 2 layers')
    """
    return ", ".join(filter(None, (model, change, f"{layers} layer{'s' * (layers > 1)}")))


def runs_of(blocks: Iterable[Block]) -> list[RunSpec]:
    """The runs of blocks, each once."""
    return list({run.digest: run for block in blocks for run in block.runs()}.values())


def lazily(named: Iterable[tuple[str, Block]]) -> dict[str, Callable[[], list[RunSpec]]]:
    """Functions that build the runs of blocks by name, when they are needed."""
    blocks: dict[str, list[Block]] = {}
    for name, block in named:
        blocks.setdefault(name, []).append(block)
    return {name: partial(runs_of, group) for name, group in blocks.items()}


def expect(outcome: Outcome, variants: Iterable[str], task: str, *lengths: int) -> tuple[Expectation, ...]:
    """The same outcome for variants on a task, at some lengths N or at every one."""
    return tuple(
        Expectation(variant=variant, outcome=outcome, task=task, length=length)
        for variant in variants
        for length in lengths or (None,)
    )
