"""The runs of the second edition of `irie2023`, in which the published rule and ours judge the same runs.

Every run is tested in four states: its last, the best by validation, the watched one, which the published rule selects,
and averaged parameters. The pieces are listed in the order in which they should be run: what answers most comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.models import named_model
from assay.spec import RunSpec, run_spec
from assay.studies.irie2023_runs import BATCH, DELTA, FAST_WEIGHTS, MODELS, RECURRENT, SRWM, STEPS, UNBOUND
from assay.tasks import named_task
from assay.tasks.task import Task

CONTESTED = (DELTA, RECURRENT, SRWM)
BRACKETS = ("dyck-1", "shuffle", "reset-dyck-1")  # the contested languages, of which published strings exist
COUNTERS = ("an-bn", "an-bn-cn", "dyck-1", "shuffle")
OURS: dict[str, dict[str, Any]] = {"reset-dyck-1": {"excursions": "growing"}}
PUBLISHED = {"strings": "published"}
FIXED = 10_000  # strings of the published training sets
EPOCHS = 94_000  # steps: 300 epochs of the published sets, with 32 strings at a time
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
LONG_RATES = (3e-4, 1e-3)
SEEDS, FEW_SEEDS = 10, 5
STATES = ("best", "watched", "averaged")
# The published code looks every 50 steps, and after every epoch if that is shorter: 2 steps of a^n b^n, 8 of (aa)*.
WATCH_EVERY = {"an-bn": 2, "an-bn-cn": 2, "even-a": 20, "abab": 20}
ROWS = {"an-bn": 64, "an-bn-cn": 64, "even-a": 256, "abab": 128}  # of a test bin: these languages have few strings
ONE_STRING_PER_LENGTH = ("an-bn", "an-bn-cn")
WIDTHS, DEPTHS = (8, 16, 32, 128, 256), (1, 2, 4)  # beside width 64 with two layers, as in the table
DEFAULTS = {"width": 512, "heads": 8, "layers": 2}  # of the published command line
SCALES = (0.3, 3.0)


@dataclass(frozen=True)
class Block:
    """The runs of one model, size and way of training on one language: all seeds at each rate."""

    task: str
    model: str
    steps: int
    rates: tuple[float, ...]
    seeds: int
    task_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[RunSpec]:
        task, model = named_task(self.task, **self.task_options), named_model(self.model, **self.options)
        specs = [run_spec(task, model, **self._protocol(task, lr)) for lr in self.rates]
        return [spec.with_seed(seed) for spec in specs for seed in range(self.seeds)]

    def _protocol(self, task: Task, lr: float) -> dict[str, Any]:
        """How a run is trained and tested; the same for all blocks but for what a block changes."""
        training: dict[str, Any] = {"steps": self.steps, "batch": BATCH.get(self.task, 32), "lr": lr, **self.training}
        testing: dict[str, Any] = {
            "rows": ROWS.get(self.task, 512),
            "states": STATES,
            "watch_every": WATCH_EVERY.get(self.task, 50),
        }
        if (self.model, self.task) in UNBOUND:
            training["explodes"] = None
        low, high = task.train_lengths
        if self.task in ONE_STRING_PER_LENGTH:  # tested on every n, so validation has lengths of training alone
            training["validation"] = [{"name": "Val0", "low": low, "high": high}]
            testing["every_length"] = True
        if self.task in BRACKETS:
            testing["both_strings"] = True
        if task.is_published:  # which exist as far as the paper looked
            testing["bins"] = [bin_.plain() for bin_ in task.bins(low, high)[:2]]
        return {"training": training, "testing": testing}


def _table() -> Iterable[Block]:
    for task, steps in STEPS.items():
        for model in MODELS:
            many = model in FAST_WEIGHTS and task in ("parity", *BRACKETS)
            yield Block(task, model, steps, RATES, SEEDS if many else FEW_SEEDS, OURS.get(task, {}))


def _long(
    task_options: dict[str, dict[str, Any]], rates: tuple[float, ...] = LONG_RATES, **training: Any
) -> Iterable[Block]:
    """The contested cells, trained as long as the published code trains."""
    for task in BRACKETS:
        for model in CONTESTED:
            yield Block(task, model, EPOCHS, rates, FEW_SEEDS, task_options.get(task, {}), training=training)


def _sizes() -> Iterable[Block]:
    for task in COUNTERS:
        for model in CONTESTED:
            for width in WIDTHS:
                for layers in DEPTHS:
                    size = {"width": width, "layers": layers, "heads": min(4, width // 4)}
                    yield Block(task, model, min(STEPS[task], 4_000), (1e-3,), 3, options=size)


def _initial_values() -> Iterable[Block]:
    for task in ("parity", "dyck-1", "an-bn"):
        for model in FAST_WEIGHTS:
            for scale in SCALES:
                yield Block(task, model, min(STEPS[task], 5_000), (1e-3,), FEW_SEEDS, options={"initial_scale": scale})


def _defaults() -> Iterable[Block]:
    """The published defaults: batches of 64 strings at rate 1e-4, for as many epochs as a study can afford."""
    for task in ("an-bn", "parity", "dyck-1"):
        for model in FAST_WEIGHTS:
            yield Block(task, model, STEPS[task] // 2, (1e-4,), 1, options=DEFAULTS, training={"batch": 64})


@dataclass(frozen=True)
class Part:
    """Blocks that answer one question; each language of them is a piece that can be run alone."""

    question: str
    blocks: tuple[Block, ...]


published = dict.fromkeys(BRACKETS, PUBLISHED)
PARTS = {
    "long": Part("Do the contested cells count when they train as long as the published code?", tuple(_long(OURS))),
    "published": Part("And on the published strings, a fixed set of 10,000?", tuple(_long(published, fixed=FIXED))),
    "both-rules": Part("What does each rule say of all cells?", tuple(_table())),
    "decay": Part(
        "Does a falling learning rate keep what was learned?", tuple(_long(OURS, (1e-3,), schedule="cosine"))
    ),
    "sizes": Part("Does the size decide?", tuple(_sizes())),
    "initial": Part("Do the initial values decide?", tuple(_initial_values())),
    "defaults": Part("What do the published defaults give?", tuple(_defaults())),
}


def _runs(blocks: Iterable[Block]) -> list[RunSpec]:
    return [run for block in blocks for run in block.runs()]


def _pieces() -> dict[str, Callable[[], list[RunSpec]]]:
    pieces: dict[str, list[Block]] = {}
    for name, part in PARTS.items():
        for block in part.blocks:
            pieces.setdefault(f"{name}:{block.task}", []).append(block)
    return {name: partial(_runs, blocks) for name, blocks in pieces.items()}


PIECES = _pieces()
