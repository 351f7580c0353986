"""Passes of tests that are replayed give the answers of direct calls. With a GPU from real graphs, else called."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from assay.lab.cuda_graphs import GraphedFunction
from assay.lab.evaluate import answers_in_parallel, predict
from assay.lab.replays import Replays
from assay.lab.stacking import build_module
from assay.rng import Rng
from assay.spec import run_spec

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    if DEVICE.type == "cpu":
        monkeypatch.setattr(GraphedFunction, "capture", lambda self, pool: "there are no graphs on a CPU")
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))


@pytest.mark.parametrize("width", [16, 128])  # the LSTM of the second is computed step by step
def test_replayed_answers_follow_inputs_and_parameters(width: int) -> None:
    model = build_module(run_spec("cyclic", "lstm", task_options={"n": 5}, model_options={"width": width}), DEVICE)
    sets = [Rng.seeded(seed).rows(9).integers(length, 5).to(DEVICE) + 1 for seed, length in enumerate((7, 30, 7, 30))]
    replays, answers = Replays(partial(answers_in_parallel, model)), list[torch.Tensor]()
    expected = list[torch.Tensor]()
    for scale in (4.0, -2.0, -0.25):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(scale)
        answers += [predict(model, inputs, replays=replays) for inputs in sets]
        expected += [predict(model, inputs) for inputs in sets]
    assert all(torch.equal(one, other) for one, other in zip(answers, expected, strict=True))
    assert len({tuple(each.flatten().tolist()) for each in expected}) == len(expected)  # parameters and inputs matter
    assert sorted(shape[1] for shape, _ in replays.passes) == [7, 30]
    if DEVICE.type == "cuda":
        assert all(replay and replay.graphed.graph for replay in replays.passes.values())
