"""A run and its record: determinism, divergence, failure, early stopping."""

from __future__ import annotations

import functools
import re
import subprocess
from datetime import datetime
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.errors import BadInput
from assay.lab.device import parse_device
from assay.lab.execute import execute
from assay.lab.provenance import commit
from assay.lab.stacking import member_losses
from assay.models.skeleton import Foreign
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.tasks.task import IGNORE

CPU = torch.device("cpu")
SHORT: dict[str, Any] = {"training": {"steps": 30, "lengths": [2, 8], "validate_every": 10}, "testing": {"rows": 16}}


def short(model: Any = "gru", **changes: Any) -> RunSpec:
    return run_spec("parity", model, **{**SHORT, **changes})


def facts(record: Record) -> dict[str, object]:
    return record.model_dump(exclude={"seconds", "started", "ended"})


def test_the_same_spec_gives_the_same_record_bit_for_bit():
    torch.manual_seed(1)
    first = execute(short(), CPU)
    torch.manual_seed(2)  # no global seed has a say
    assert facts(execute(short(), CPU)) == facts(first)
    assert facts(execute(short(seed=1), CPU)) != facts(first)


def test_a_record_says_everything():
    record = execute(short(), CPU)
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout
    assert re.fullmatch(r"[0-9a-f]{12}\+?", record.commit) if head else record.commit == ""
    assert record.versions["torch"] == torch.__version__
    assert record.device.startswith("cpu")
    assert record.backend == {"gru": "cpu", "affine": "reference"}
    assert record.parameters == sum(p.numel() for p in short().model.build(3, 0, 2, assay.Rng.seeded(0)).parameters())
    assert record.state_floats == 128
    assert record.state_bits == 128 * 32
    assert [point.step for point in record.curve] == [10, 20, 30]
    assert record.stopped == "steps"
    assert record.steps == 30
    assert set(record.seconds) == {"train", "test"}
    assert datetime.fromisoformat(record.started) <= datetime.fromisoformat(record.ended)
    assert {score.bin for score in record.scores} == {"Bin0", "Bin1", "Bin2", "Bin3"}
    assert RunSpec(**record.spec) == short()


def test_a_copy_of_a_checkout_may_be_told_its_commit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ASSAY_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "")  # there is no git
    assert commit() == ""
    monkeypatch.setenv("ASSAY_COMMIT", "0123456789ab")
    assert commit() == "0123456789ab"


def test_perfect_validation_stops_the_run():
    spec = run_spec("flip-flop", "gru", training={"steps": 3000, "lengths": [2, 8], "lr": 5e-3}, testing={"rows": 32})
    record = execute(spec, CPU)
    assert record.stopped == "solved"
    assert record.steps < 3000
    assert record.solved_at == record.steps - 200  # patience 3, every 100
    assert [min(p.sequences.values()) for p in record.curve[-3:]] == [1, 1, 1]


def test_a_stop_can_be_forbidden():
    spec = run_spec(
        "flip-flop", "gru", training={"steps": 700, "lengths": [2, 8], "lr": 5e-3, "stop": "never"}, testing={"rows": 8}
    )
    record = execute(spec, CPU)
    assert record.steps == 700
    assert record.solved_at is not None


class Exploding(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)
        self.calls = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self.calls += self.training
        return self.table(tokens) * (float("inf") if self.calls > 5 else 1.0)


def test_divergence_is_a_record():
    record = execute(short(Foreign.of(Exploding)), CPU)
    assert (record.verdict, record.stopped, record.steps) == ("diverged", "diverged", 6)
    assert record.finished
    assert record.scores == ()


def test_a_last_update_that_destroys_the_weights_is_a_divergence():
    record = execute(short(training={**SHORT["training"], "steps": 1, "lr": 1e38}), CPU)
    assert record.verdict == "diverged"


class Dropping(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(vocab, 8), nn.Dropout(0.5), nn.Linear(8, answers))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)


def test_a_foreign_module_s_own_randomness_is_seeded():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = execute(short(Foreign.of(Dropping)), CPU)
    assert torch.equal(torch.get_rng_state(), state), "and the global generator is left alone"
    torch.manual_seed(4)
    assert facts(execute(short(Foreign.of(Dropping)), CPU)) == facts(first)
    assert first.state_floats is None


def test_what_cannot_be_imported_is_no_model():
    class Local(nn.Module):
        pass

    for factory in (lambda *_: nn.Linear(1, 1), Local, functools.partial(Dropping)):
        with pytest.raises(BadInput, match="cannot be imported"):
            Foreign.of(factory)
    assert Foreign.of(Nest.Egg).build(3, 0, 2, assay.Rng.seeded(0)) is not None


class Nest:
    class Egg(Dropping):
        pass


class Faulty(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)

    def forward(self, tokens: Tensor) -> Tensor:
        raise RuntimeError("no such luck\nand more")


def test_an_error_is_a_record():
    record = execute(short(Foreign.of(Faulty)), CPU)
    assert record.verdict == "failed"
    assert record.error == "RuntimeError: no such luck"
    assert not record.finished


def test_a_run_of_one_s_own_architecture():
    record = assay.run("parity", Tiny, **SHORT)
    assert record.verdict in ("censored", "collapsed")
    assert record.backend == {"model": "torch"}
    assert record.model.endswith(":Tiny")


class Tiny(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Embedding(vocab, 4), nn.Linear(4, answers))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)


def test_the_loss_is_the_mean_over_what_is_asked():
    logits = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[[1, IGNORE, 2], [IGNORE] * 3], [[IGNORE] * 3] * 2])
    by_hand = -(logits[0, 0, 0].log_softmax(-1)[1] + logits[0, 0, 2].log_softmax(-1)[2]) / 2
    assert member_losses(logits, targets).tolist() == pytest.approx([float(by_hand), 0])


def test_devices():
    assert parse_device("cpu").type == "cpu"
    with pytest.raises(BadInput, match="did you mean 'cuda'"):
        parse_device("cudda")
    if not torch.cuda.is_available():
        with pytest.raises(BadInput, match="no CUDA device"):
            parse_device("cuda")


def test_the_learning_rate_and_the_clip_take_effect():
    changes: list[dict[str, Any]] = [
        {},
        {"lr": 1e-2},
        {"clip": 1e-3},
        {"weight_decay": 10.0},
        {"betas": [0.5, 0.9]},
        {"eps": 1e-2},
    ]
    changes += [{"warmup": 20}, {"schedule": "linear"}, {"schedule": "cosine"}]
    losses = {execute(short(training={**SHORT["training"], **change}), CPU).curve[-1].loss for change in changes}
    assert len(losses) == len(changes)
