"""The runs of `leaks`: recurrent architectures on state tracking, and what may cure a leak, in pieces."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from assay.spec import RunSpec, run_spec

MODELS = (
    "linear-transformer",
    "retnet",
    "delta-net",
    "delta-net-signed",
    "delta-product",
    "recurrent-delta",
    "srwm",
    "elman",
    "gru",
    "lstm",
    "e-lstm",
    "dss",
    "mamba",
)
TASKS: dict[str, dict[str, Any]] = {
    "parity": {},
    "flip-flop": {},
    "cyclic": {"n": 5},
    "s3": {},
    "bounded-dyck": {"k": 2, "depth": 3},
}
STEPS = 6_000
RATES, SEEDS = (3e-4, 1e-3, 3e-3), range(100, 110)
FEW_RATES, FEW_SEEDS = (1e-3, 3e-3), range(100, 105)


@dataclass(frozen=True)
class Cure:
    """A change of the task, of the model or of training."""

    task: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


NO_CURE = Cure()
CURED = ("lstm", "gru", "e-lstm")
CURES = {
    "20,000 steps": Cure(training={"stop": "never", "steps": 20_000}),
    "runs in training": Cure(task={"runs": 0.5}),
    "weight decay": Cure(training={"weight_decay": 0.1}),
    "noise": Cure(model={"state": {"noise": 0.05}}),
    "rounded state": Cure(model={"state": {"numbers": "fixed:2.4"}}),
}


def runs(
    model: str, tasks: tuple[str, ...], rates: tuple[float, ...], seeds: range, cure: Cure = NO_CURE
) -> list[RunSpec]:
    """All seeds of a model on each task at each learning rate."""
    specs = [
        run_spec(
            task,
            model,
            task_options=TASKS[task] | cure.task,
            model_options=cure.model,
            training={"steps": STEPS, "lr": lr} | cure.training,
            testing={"rows": 128},
        )
        for task in tasks
        for lr in rates
    ]
    return [spec.with_seed(seed) for spec in specs for seed in seeds]


def table(task: str) -> list[RunSpec]:
    return [run for model in MODELS for run in runs(model, (task,), RATES, SEEDS)]


def cured(cure: str) -> list[RunSpec]:
    return [run for model in CURED for run in _cured(model, cure)]


def _cured(model: str, cure: str) -> list[RunSpec]:
    return runs(model, ("parity", "flip-flop"), FEW_RATES, FEW_SEEDS, CURES[cure])


Runs = Callable[[], list[RunSpec]]
PIECES: dict[str, Runs] = {task: partial(table, task) for task in TASKS}
PIECES |= {f"cure: {cure}": partial(cured, cure) for cure in CURES}
VARIANTS: dict[str, Runs] = {model: partial(runs, model, tuple(TASKS), RATES, SEEDS) for model in MODELS}
VARIANTS |= {f"{model}, {cure}": partial(_cured, model, cure) for model in CURED for cure in CURES}
