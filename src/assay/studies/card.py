"""The battery behind `assay card`: the same tasks, lengths, seeds and rates for every architecture.

Each task stands for a kind of computation. The state that a regular language needs is named by its algebra: without a
group, with a cyclic one, with a solvable one, with one that is not solvable. Test lengths go to ten times the training
lengths, where the task has such inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, suggestion
from assay.models import MODELS, named_model
from assay.spec import RunSpec, run_spec
from assay.tasks import named_task

if TYPE_CHECKING:
    from assay.models.skeleton import Architecture

FACTORS = (1, 2, 4, 10)  # of the longest training input
ROWS = 128  # of each test bin
REFERENCES = (
    "transformer",
    "linear-transformer",
    "delta-net",
    "delta-net-signed",
    "recurrent-delta",
    "srwm",
    "lstm",
    "gru",
    "mamba",
)
# Index lookup needs positions, and attention alone has none.
SPECIAL: dict[str, dict[str, Any]] = {"transformer": {"positions": "sinusoidal"}}


@dataclass(frozen=True)
class Question:
    """A task of the battery, what it stands for, and the lengths of training."""

    task: str
    stands_for: str
    lengths: tuple[int, int]
    options: dict[str, Any] = field(default_factory=dict)

    def plain_task(self) -> dict[str, Any]:
        """The task as plain data."""
        return named_task(self.task, **self.options).plain()

    def bins(self) -> list[dict[str, Any]]:
        """The test bins 1x, 2x, 4x and 10x: each begins where the one before it ends."""
        task, (low, high) = named_task(self.task, **self.options), self.lengths
        ends = [factor * high for factor in FACTORS]
        starts = [low, *(end + 1 for end in ends)]
        return [
            {"name": f"{factor}x", "low": start, "high": end}
            for factor, start, end in zip(FACTORS, starts, ends, strict=False)
            if any(task.fits(length) for length in range(start, end + 1))
        ]


@dataclass(frozen=True)
class Scale:
    """How large a battery is: its questions, the size of its models, and how they are trained."""

    questions: tuple[Question, ...]
    width: int
    layers: int
    steps: int
    rates: tuple[float, ...]
    seeds: int

    def question(self, task: str) -> Question:
        return next(question for question in self.questions if question.task == task)

    def runs(self, model: Architecture) -> list[RunSpec]:
        """All runs of an architecture, task by task."""
        return [run for question in self.questions for run in self._runs(question, model)]

    def _runs(self, question: Question, model: Architecture) -> Iterator[RunSpec]:
        task, bins = named_task(question.task, **question.options), question.bins()
        for lr in self.rates:
            training = {"lengths": question.lengths, "steps": self.steps, "lr": lr}
            spec = run_spec(task, model, training=training, testing={"bins": bins, "rows": ROWS})
            yield from (spec.with_seed(seed) for seed in range(self.seeds))

    def named(self, name: str, **options: Any) -> Architecture:
        """A named model in the size of this battery, in the shared skeleton where it can be put there."""
        known = inspect.signature(MODELS.load(name)).parameters
        sizes = {"convention": "controlled", "width": self.width, "layers": self.layers}
        return named_model(name, **{key: sizes[key] for key in sizes if key in known} | SPECIAL.get(name, {}) | options)


APERIODIC, CYCLIC = "regular, without a group", "regular, a cyclic group"
SOLVABLE, UNSOLVABLE = "regular, a solvable group", "regular, a group that is not solvable"
COUNTER, STACK, LOOKUP, EQUAL, RECALL = "one counter", "bounded stack", "lookup by position", "equality", "recall"

SCALES = {
    "laptop": Scale(
        questions=(
            Question("flip-flop", APERIODIC, (2, 20)),
            Question("parity", CYCLIC, (2, 20)),
            Question("s3", SOLVABLE, (2, 20)),
            Question("dyck-1", COUNTER, (2, 20)),
            Question("bounded-dyck", STACK, (2, 20), {"k": 2, "depth": 2}),
            Question("index-lookup", LOOKUP, (5, 13), {"alphabet": 8, "positions": 12}),
            Question("equality-random", EQUAL, (3, 9)),
            Question("recall", RECALL, (3, 9), {"vocabulary": 32}),
        ),
        width=32,
        layers=2,
        steps=800,
        rates=(3e-3, 1e-2),
        seeds=3,
    ),
    "gpu": Scale(
        questions=(
            Question("flip-flop", APERIODIC, (2, 50)),
            Question("parity", CYCLIC, (2, 50)),
            Question("cyclic", CYCLIC, (2, 50), {"n": 5}),
            Question("s3", SOLVABLE, (2, 50)),
            Question("a5", UNSOLVABLE, (2, 50)),
            Question("an-bn", COUNTER, (2, 50)),
            Question("dyck-1", COUNTER, (2, 50)),
            Question("bounded-dyck", STACK, (2, 50), {"k": 2, "depth": 3}),
            Question("index-lookup", LOOKUP, (11, 51), {"alphabet": 16, "positions": 50}),
            Question("equality-random", EQUAL, (3, 31)),
            Question("recall", RECALL, (3, 31), {"vocabulary": 256}),
        ),
        width=64,
        layers=2,
        steps=10_000,
        rates=(3e-4, 1e-3, 3e-3),
        seeds=10,
    ),
}


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise BadInput(f"unknown scale '{name}'{suggestion(name, SCALES)}")
    return SCALES[name]


def reference_runs(scale: str, models: Iterable[str] = REFERENCES) -> dict[str, list[RunSpec]]:
    """The runs of the reference architectures by name."""
    return {model: SCALES[scale].runs(SCALES[scale].named(model)) for model in models}
