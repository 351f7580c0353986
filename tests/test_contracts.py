"""Every task meets every model: one batch trains, whatever the shapes."""

from __future__ import annotations

import pytest
import torch

from assay.lab.evaluate import logits_of
from assay.lab.stacking import member_losses
from assay.models import MODELS
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.tasks import TASKS
from assay.tasks.task import Batch

from .lab.alone import batch

NEEDED = {
    "dfa": {"alphabet": "ab", "table": [[0, 1], [1, 0]], "accept": [1]},
    "regex": {"pattern": "(a|b)*abb"},
    "group": {"table": [[0, 1], [1, 0]]},
    # The rest are made small, so that embedding tables do not fill the memory of a test machine.
    "equality-one": {"alphabet": 16},
    "equality-ncp": {"alphabet": 16},
    "multi-query-recall": {"vocabulary": 64},
}
SMALL = {"lstm": {"width": 8}, "e-lstm": {"width": 8}, "elman": {"width": 8}, "gru": {"width": 8}}


def small_run(task: str, model: str) -> RunSpec:
    options = SMALL.get(model, {"width": 8})
    return run_spec(task, model, task_options=NEEDED.get(task), model_options=options, training={"batch": 4})


@pytest.mark.parametrize("task", TASKS.entries)
def test_every_model_can_be_trained_on_every_task(task: str):
    for model in MODELS.entries:
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
