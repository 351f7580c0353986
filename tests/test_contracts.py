"""Every task and every model: one batch trains, whatever the shapes."""

from __future__ import annotations

import pytest
import torch

from assay.lab.evaluate import logits_of
from assay.lab.stacking import member_losses
from assay.models import MODELS
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.tasks import TASKS, example_task
from assay.tasks.task import Batch

from .lab.alone import batch

# Words of two symbols, of which every prefix is asked; points in space; words of many symbols; a single question.
SHAPES = ("parity", "nearest-neighbour", "multi-query-recall", "equality-random")
FEW = ("transformer", "lstm", "srwm")


def small_run(task: str, model: str) -> RunSpec:
    return run_spec(example_task(task), model, model_options={"width": 8}, training={"batch": 4})


@pytest.mark.parametrize("task", TASKS.entries)
def test_models_can_be_trained_on_every_task(task: str):
    """Every model on a task of each shape, and few models on every task."""
    for model in MODELS.entries if task in SHAPES else FEW:
        spec = small_run(task, model)
        machine = spec.model.build(*spec.task.shape, Rng.seeded(0))
        given = batch(spec, 1, torch.device("cpu"))
        given = Batch(given.inputs[:, :40], given.targets[:, :40])
        logits = logits_of(machine, given.inputs)
        assert logits.shape == (*given.inputs.shape[:2], spec.task.shape.answers)
        loss = member_losses(logits[None], given.targets[None]).sum()
        loss.backward()
        assert loss.isfinite()


@pytest.mark.parametrize("task", TASKS.entries)
def test_a_spec_survives_the_round_trip(task: str):
    spec = small_run(task, "hybrid")
    again = RunSpec(**spec.plain())
    assert again == spec
    assert again.digest == spec.digest
