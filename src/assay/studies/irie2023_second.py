"""Which formal languages do linear Transformers (LTs) and their recurrent and self-referential extensions learn?

Irie et al. 2023 ask this of eight languages. This study repeats their experiment and judges the same runs by two rules.
By the published rule, accuracy in Bin1 (lengths beyond those of training) selects the state, and the best run counts;
by ours validation selects, and all seeds count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.findings import Change, Choice, Comparison, Expectation, Finding, Outcome, Replication
from assay.models import named_model
from assay.spec import RunSpec, run_spec
from assay.studies.irie2023_runs import BATCH, DELTA, FAST_WEIGHTS, LINEAR, MODELS, RECURRENT, SRWM, STEPS, UNBOUND
from assay.tasks import named_task
from assay.tasks.task import Task

CONTESTED = (DELTA, RECURRENT, SRWM)
BRACKETS = ("dyck-1", "shuffle", "reset-dyck-1")  # the contested languages, of which published strings exist
COUNTERS = ("an-bn", "an-bn-cn", "dyck-1", "shuffle")
REGULAR = ("parity", "even-a", "abab")
# Also that of published strings, since other strings are ours.
OURS: dict[str, dict[str, Any]] = {"reset-dyck-1": {"excursions": "growing"}}
PUBLISHED = {task: OURS.get(task, {}) | {"strings": "published"} for task in BRACKETS}
FIXED = 10_000  # strings of the published training sets
EPOCHS = 94_000  # steps: 300 epochs of the published sets, with 32 strings at a time
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
# On the contested cells, validation of the first edition was often best at 1e-2, which should not be the last rate.
MORE_RATES = (*RATES, 3e-2)
LONG_RATES, FALLING_RATE = (1e-3, 3e-3, 1e-2), 3e-3
SEEDS, FEW_SEEDS, LONG_SEEDS = 10, 5, 4
STATES = ("best", "watched", "averaged")
# The published code looks every 50 steps, and after every epoch if that is shorter: 2 steps of a^n b^n, 8 of (aa)*.
WATCH_EVERY = {"an-bn": 2, "an-bn-cn": 2, "even-a": 20, "abab": 20}
ROWS = {"an-bn": 64, "an-bn-cn": 64, "even-a": 256, "abab": 128}  # of a test bin: these languages have few strings
ONE_STRING_PER_LENGTH = ("an-bn", "an-bn-cn")
SIZES = [(width, layers) for width in (8, 16, 32, 64, 128, 256) for layers in (1, 2, 4)]
LOOKS = 10  # steps between two looks at a^n b^n in other sizes, to save time
DEFAULTS = {"width": 512, "heads": 8, "layers": 2}  # of the published command line
SCALES = (0.3, 1.0, 3.0)
INITIAL_STEPS = {"parity": 5_000, "dyck-1": 5_000, "an-bn": 3_000}
LONG, ON_PUBLISHED, FALLING = "94,000 steps", "94,000 steps on published strings", "94,000 steps, falling rate"
ONE_LAYER, DEFAULT_SIZE = "one layer", "published defaults"


@dataclass(frozen=True)
class Block:
    """The runs of one model, size and way of training on one language: all seeds at each rate.

    Every run is tested in four states: its last, the best by validation, the watched one, which the published rule
    selects, and averaged parameters. `change` says what differs from the table.
    """

    task: str
    model: str
    steps: int
    rates: tuple[float, ...]
    seeds: int
    change: str = ""
    task_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    watch_every: int | None = None  # steps between two looks, if not as published

    @property
    def variant(self) -> str:
        return f"{self.model}, {self.change}" if self.change else self.model

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
            "watch_every": self.watch_every or WATCH_EVERY.get(self.task, 50),
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


def _table(*tasks: str) -> Iterable[Block]:
    for task in tasks:
        for model in MODELS:
            contested = model in CONTESTED and task in BRACKETS
            many = contested or (model in (RECURRENT, SRWM) and task == "parity")
            rates, seeds = MORE_RATES if contested else RATES, SEEDS if many else FEW_SEEDS
            yield Block(task, model, STEPS[task], rates, seeds, task_options=OURS.get(task, {}))


def _long(
    change: str,
    task_options: dict[str, dict[str, Any]],
    rates: tuple[float, ...] = LONG_RATES,
    **training: Any,
) -> Iterable[Block]:
    """The contested cells, trained as long as the published code trains."""
    for task in BRACKETS:
        for model in CONTESTED:
            options = task_options.get(task, {})
            yield Block(task, model, EPOCHS, rates, LONG_SEEDS, change, options, training=training)


def _one_layer() -> Iterable[Block]:
    for model in (LINEAR, DELTA):
        task, rates = "reset-dyck-1", MORE_RATES if model == DELTA else RATES
        yield Block(task, model, STEPS[task], rates, FEW_SEEDS, ONE_LAYER, OURS[task], {"layers": 1})


def _sizes() -> Iterable[Block]:
    for task in COUNTERS:
        steps, looks = min(STEPS[task], 4_000), LOOKS if task in ONE_STRING_PER_LENGTH else None
        for model in CONTESTED:
            for width, layers in SIZES:
                options = {"width": width, "layers": layers, "heads": min(4, width // 4)}
                change = _size(width, layers)
                yield Block(task, model, steps, (1e-3,), 3, change, options=options, watch_every=looks)


def _size(width: int, layers: int) -> str:
    return f"width {width}, {layers} layer{'s' * (layers > 1)}"


def _initial_values() -> Iterable[Block]:
    for task, steps in INITIAL_STEPS.items():
        for model in FAST_WEIGHTS:
            for scale in SCALES:
                options = {"initial_scale": scale}
                yield Block(task, model, steps, (1e-3,), FEW_SEEDS, _initial(scale), options=options)


def _initial(scale: float) -> str:
    return f"initial values x {scale:g}"


def _defaults() -> Iterable[Block]:
    """The published defaults: batches of 64 strings at rate 1e-4, for as many epochs as a study can afford."""
    for task in ("an-bn", "parity", "dyck-1"):
        for model in FAST_WEIGHTS:
            steps, batch = STEPS[task] // 2, {"batch": 64}
            yield Block(task, model, steps, (1e-4,), 1, DEFAULT_SIZE, options=DEFAULTS, training=batch)


@dataclass(frozen=True)
class Part:
    """Blocks that answer one question; each language of them is a piece that can be run alone."""

    question: str
    blocks: tuple[Block, ...]


# In the order in which they are worth running: the first three answer whether all variants count, and why.
PARTS = {
    "counting": Part("What does each rule say of counting?", tuple(_table(*COUNTERS, "reset-dyck-1"))),
    "long": Part("Do the contested cells count when they train as long as published?", tuple(_long(LONG, OURS))),
    "published": Part(
        "And on the published strings, a fixed set of 10,000?", tuple(_long(ON_PUBLISHED, PUBLISHED, fixed=FIXED))
    ),
    "regular": Part("What does each rule say of regular languages?", tuple(_table(*REGULAR))),
    "one-layer": Part("Does one layer of the delta rule forget?", tuple(_one_layer())),
    "defaults": Part("What do the published defaults give?", tuple(_defaults())),
    "initial": Part("Do the initial values decide?", tuple(_initial_values())),
    "decay": Part(
        "Does a falling learning rate keep what was learned?",
        tuple(_long(FALLING, OURS, (FALLING_RATE,), schedule="cosine")),
    ),
    "sizes": Part("Does the size decide?", tuple(_sizes())),
}


def _runs(blocks: Iterable[Block]) -> list[RunSpec]:
    return [run for block in blocks for run in block.runs()]


def _lazily(named: Iterable[tuple[str, Block]]) -> dict[str, Callable[[], list[RunSpec]]]:
    blocks: dict[str, list[Block]] = {}
    for name, block in named:
        blocks.setdefault(name, []).append(block)
    return {name: partial(_runs, group) for name, group in blocks.items()}


PIECES = _lazily((f"{name}:{block.task}", block) for name, part in PARTS.items() for block in part.blocks)
QUESTIONS = {piece: PARTS[piece.partition(":")[0]].question for piece in PIECES}
VARIANTS = _lazily((block.variant, block) for part in PARTS.values() for block in part.blocks)

# -- what is compared and judged ---------------------------------------------------------------------------------------


def _changed(models: Iterable[str], *changes: str) -> tuple[str, ...]:
    return tuple(f"{model}, {change}" for model in models for change in changes)


COMPARISONS = [
    Comparison(
        "All models and languages",
        "Two layers of width 64 with 4 heads (LSTM and e-LSTM: one layer of width 128); the sizes of the paper are not "
        "known to us.",
        MODELS,
    ),
    Comparison("One layer", "Reset Dyck-1 with a single layer.", _changed((LINEAR, DELTA), ONE_LAYER)),
    Comparison(
        "Training for longer",
        "94,000 steps, as long as the published code, with four seeds: at the rates 1e-3, 3e-3 and 1e-2, and at 3e-3 "
        "with a rate that falls to zero.",
        _changed(CONTESTED, LONG, FALLING),
    ),
    Comparison(
        "Published strings",
        "A fixed set of 10,000 published strings, and tests on such strings; 94,000 steps, at 1e-3, 3e-3 and 1e-2.",
        _changed(CONTESTED, ON_PUBLISHED),
    ),
    Comparison(
        "Size",
        "At rate 1e-3, for at most 4,000 steps, three seeds; a look at Bin1 every 10 steps of a^n b^n and its like.",
        _changed(CONTESTED, *(_size(width, layers) for width, layers in SIZES)),
    ),
    Comparison(
        "Initial values",
        "All matrices scaled at the beginning; at rate 1e-3, for 3,000 steps of a^n b^n and 5,000 of the others.",
        _changed(FAST_WEIGHTS, *map(_initial, SCALES)),
    ),
    Comparison(
        "Published defaults",
        "Width 512, 8 heads, batches of 64, rate 1e-4, one seed; half as many steps as in the table.",
        _changed(FAST_WEIGHTS, DEFAULT_SIZE),
    ),
]


def expect(outcome: Outcome, variants: Iterable[str], *languages: str) -> tuple[Expectation, ...]:
    return tuple(Expectation(task=task, variant=variant, outcome=outcome) for variant in variants for task in languages)


BASELINE = "baseline"
DIGEST = "key results, in the words of a digest of the paper"
FINDINGS = [
    Finding(
        name="the linear Transformer",
        says="The linear Transformer fails on parity and (aa)*, and counts.",
        quote="Standard LTs struggle with parity and (aa)* tasks but succeed on counter languages",
        source=DIGEST,
        expects=expect("fails", (LINEAR,), "parity", "even-a") + expect("learns", (LINEAR,), *COUNTERS),
    ),
    Finding(
        name="recurrence and self-reference",
        says="Recurrent delta and SRWM solve parity, (aa)* and reset Dyck-1, and generalise.",
        quote="both the recurrent (Recurrent Delta) and self-referential (SRWM) extensions successfully solve and "
        "generalise on these tasks",
        source="Section 4.2; the tasks are parity, (aa)* and reset Dyck-1",
        expects=expect("learns", (RECURRENT, SRWM), "parity", "even-a", "reset-dyck-1"),
    ),
    Finding(
        name="counting",
        says="The linear Transformer and all its variants count.",
        quote="We also confirm that all LT variants can learn representative counter languages that the original "
        "Transformer can learn",
        source="Section 4.2",
        expects=expect("learns", FAST_WEIGHTS, *COUNTERS),
    ),
    Finding(
        name="forgetting",
        says="DeltaNet learns reset Dyck-1, and the linear Transformer does not.",
        quote="Delta-rule extension enables explicit forgetting mechanism crucial for reset Dyck-1",
        source=DIGEST,
        expects=expect("learns", (DELTA,), "reset-dyck-1") + expect("fails", (LINEAR,), "reset-dyck-1"),
    ),
    Finding(
        name="forgetting in one layer",
        says="DeltaNet learns reset Dyck-1 with a single layer.",
        quote="Table 2: Accuracies of single-layer models",
        source="which shows DeltaNet succeeding on reset Dyck-1",
        expects=expect("learns", _changed((DELTA,), ONE_LAYER), "reset-dyck-1"),
    ),
    Finding(
        name="the LSTM",
        says="The LSTM learns all eight languages.",
        source=BASELINE,
        expects=expect("learns", ("lstm",), *STEPS),
    ),
    Finding(
        name="the e-LSTM",
        says="The e-LSTM learns parity, (aa)* and reset Dyck-1.",
        source=BASELINE,
        expects=expect("learns", ("e-lstm",), "parity", "even-a", "reset-dyck-1"),
    ),
    Finding(
        name="the Transformer",
        says="The Transformer fails on parity, (aa)*, (abab)* and reset Dyck-1.",
        source=f"{BASELINE}, after Bhattamishra et al. 2020",
        expects=expect("fails", ("transformer",), "parity", "even-a", "abab", "reset-dyck-1"),
    ),
]

LAST, BEST, WATCHED, BEST_RUN = "last state", "best by validation", "chosen by Bin1", "best run"
LONGER, ON_THEIRS, BY_THEIRS = "94,000 steps", "tested on published strings", "trained on them"
REPLICATION = Replication(
    title="Do linear Transformers count? Irie et al. 2023, repeated",
    main="counting",
    configurations={model: tuple(name for name in VARIANTS if name.split(", ")[0] == model) for model in MODELS},
    changes=(
        Change(LAST, "at the end of training"),
        Change("averaged", "parameters averaged over about a thousand steps", state="averaged"),
        Change(BEST, "as our rule chooses", state="best"),
        Change(WATCHED, "by Bin0 and Bin1, as the published rule chooses", state="watched"),
        Change(BEST_RUN, "the same, of the best run at any rate", state="watched", best_run=True),
        Change(LONGER, "chosen by Bin1, trained as long as published", f", {LONG}", "watched"),
        Change("falling rate", "the same, with a rate that falls to zero", f", {FALLING}", "watched"),
        Change(ON_THEIRS, f"the states of {LONGER}, in the published Bin1", f", {LONG}", "watched", other_strings=True),
        Change(BY_THEIRS, "and trained on a fixed set of published strings", f", {ON_PUBLISHED}", "watched"),
    ),
    contested=tuple((model, task) for task in BRACKETS for model in CONTESTED),
    protocol=(
        Choice("state that counts", "the best by Bin0 and Bin1", "the best by validation", (BEST, WATCHED)),
        Choice("runs that count", "one, of a configuration from the appendix", "all seeds", (WATCHED, BEST_RUN)),
        Choice(
            "steps",
            "300 epochs: 94,000 steps of 32 strings",
            "3,000 to 20,000; 94,000 for contested cells",
            (WATCHED, LONGER),
        ),
        Choice(
            "test strings",
            "by a grammar; Shuffle-2 well nested; reset Dyck-1 with one reset",
            "uniform words; interleaved; resets at every depth, and long excursions in Bin1",
            (LONGER, ON_THEIRS),
        ),
        Choice("training strings", "the same, a fixed set of 10,000", "drawn afresh", (ON_THEIRS, BY_THEIRS)),
        Choice(
            "test set", "2,000 strings of a bin, 50 of a^n b^n", "512 (256 of (aa)*, 128 of (abab)*); a^n b^n: every n"
        ),
        Choice(
            "size",
            "not said; the code's defaults are width 512, 8 heads, 2 layers",
            "width 64, 4 heads, 2 layers (LSTM, e-LSTM: 128, 1 layer); others for counting",
            see="Size",
        ),
        Choice(
            "rate and batch",
            "not said; the defaults are 1e-4 and 64",
            "1e-4 to 3e-2, chosen by validation; 32 (8 for (aa)* and (abab)*)",
            see="Published defaults",
        ),
    ),
    questions=QUESTIONS,
)
