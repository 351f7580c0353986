"""One's own modules: what sees the future or other rows is refused, digests cover all code, errors are shown."""

from __future__ import annotations

import contextlib
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import assay
from assay.cli import app
from assay.errors import BadInput
from assay.lab import execute as execution
from assay.lab.execute import execute
from assay.lab.integrity import Outputs, examine, examine_untrained, relative_change
from assay.lab.stacking import build_module
from assay.models.skeleton import Foreign
from assay.spec import RunSpec, run_spec
from assay.store import Store

CPU = torch.device("cpu")
D = 8
QUICK: dict[str, Any] = {
    "training": {"steps": 20, "lengths": [2, 12], "validate_every": 10, "validation_rows": 8, "batch": 8},
    "testing": {"rows": 8, "bins": [{"name": "Bin0", "low": 2, "high": 12}, {"name": "Bin1", "low": 13, "high": 96}]},
}


def quick(factory: Any, task: str = "parity", **options: Any) -> RunSpec:
    return run_spec(task, Foreign.of(factory, **options), **QUICK)


class Plain(nn.Module):
    """Tokens to logits without any mixing along time; `mix` adds some."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.embed: nn.Module = nn.Linear(features, D) if features else nn.Embedding(vocab, D)
        self.read = nn.Linear(D, answers)
        self.make()

    def make(self) -> None: ...

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return x

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.mix(self.embed(tokens), tokens))


# -- what is causal ----------------------------------------------------------------------------------------------------


class Gru(Plain):
    def make(self) -> None:
        self.rnn = nn.GRU(D, D, batch_first=True)

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.rnn(x)[0]


class Lstm(Gru):
    def make(self) -> None:
        self.rnn = nn.LSTM(D, D, 2, batch_first=True, dropout=0.5)  # type: ignore[assignment]


class Encoder(Plain):
    def make(self) -> None:
        self.layer = nn.TransformerEncoderLayer(D, 2, 16, 0.1, batch_first=True)

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]), is_causal=True)


class LongConvolution(Plain):
    """A causal convolution by FFT: every output is rounded differently if any token changes."""

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        length = x.shape[1]
        kernel = 0.9 ** torch.arange(length, device=x.device, dtype=x.dtype)[:, None]
        product = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(kernel, 2 * length, dim=0)
        return torch.fft.irfft(product, 2 * length, dim=1)[:, :length]


class Chaotic(LongConvolution):
    """Doubles the effect of rounding at every token, until no digit is right; later in float64 than in float32."""

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        powers = 2.0 ** torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        return (powers * super().mix(x, tokens)).sin()


class Frozen(Plain):
    """A batch norm that stays in eval mode."""

    def make(self) -> None:
        self.norm = nn.BatchNorm1d(D)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.norm.eval()
        return self

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class Packed(Gru):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        lengths = (tokens != 0).sum(1).clamp(min=1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        unpacked = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        return unpacked[0]


class PackedDropping(Packed, Lstm):
    """Dropout draws numbers for the tokens that are not padding."""


class Remembering(Gru):
    """Keeps a result with its gradient, so that it cannot be copied; counts calls in a buffer and an attribute."""

    calls: Tensor

    def make(self) -> None:
        super().make()
        self.count = 0
        self.register_buffer("calls", torch.zeros(()))

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        self.count += 1
        self.calls += 1
        self.last = super().mix(x, tokens)
        return self.last


@pytest.mark.parametrize("factory", [Gru, Lstm, Encoder, LongConvolution, Chaotic, Frozen, Packed, Remembering])
def test_causal_modules_pass_and_are_left_as_they_were(factory: type[nn.Module]):
    spec = quick(factory)
    examine_untrained([spec], CPU)
    module = build_module(spec, CPU)
    module(torch.ones(2, 3, dtype=torch.int64))
    before = {name: x.clone() for name, x in module.state_dict().items()}
    generator, count, threads = torch.get_rng_state(), getattr(module, "count", None), torch.get_num_threads()
    assert examine(module, spec, CPU) == ""
    assert all(torch.equal(x, before[name]) for name, x in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert (getattr(module, "count", None), torch.get_num_threads()) == (count, threads)
    assert module.training


def test_real_valued_inputs_are_examined_too():
    examine_untrained([run_spec("nearest-neighbour", Foreign.of(Gru))], CPU)
    with pytest.raises(BadInput, match="sees the future"):
        examine_untrained([run_spec("nearest-neighbour", Foreign.of(Mean))], CPU)


# -- what is not -------------------------------------------------------------------------------------------------------


class BothWays(Gru):
    def make(self) -> None:
        self.rnn = nn.GRU(D, D // 2, batch_first=True, bidirectional=True)


class Mean(Plain):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return x + x.mean(1, keepdim=True)


class Offset(Plain):
    """A convolution that sees one token ahead."""

    def make(self) -> None:
        self.conv = nn.Conv1d(D, D, 3, padding=1)

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.conv(x.mT).mT


class ByLength(Gru):
    """Only padding tells."""

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x, tokens) / (tokens != 0).sum(1)[:, None, None]


class OnlyLong(Mean):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x, tokens) if x.shape[1] > 50 else x


class OnlyTraining(Mean):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x, tokens) if self.training else x


class DroppingMean(Mean):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(nn.functional.dropout(x, 0.5, self.training), tokens)


class MaskedMean(Mean):
    """A few huge logits must not hide that the others change."""

    def forward(self, tokens: Tensor) -> Tensor:
        far = torch.arange(tokens.shape[1], device=tokens.device)[:, None] % 3 == 0
        return super().forward(tokens).masked_fill(far & torch.tensor([True, False]), -1e9)


class Normed(Plain):
    def make(self) -> None:
        self.norm = nn.BatchNorm1d(D)

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return self.norm(x.mT).mT


class FirstRow(Plain):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return x + x[:1]


class TimeFirst(Gru):
    def make(self) -> None:
        self.rnn = nn.GRU(D, D)


FUTURE = r"sees the future: changing token {} changes the output at position {}, counted from 0, in an input of {} tok"


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (BothWays, FUTURE.format(7, 0, 8)),
        (Mean, FUTURE.format(7, 0, 8)),
        (Offset, FUTURE.format(1, 0, 8)),
        (ByLength, FUTURE.format(7, 0, 8)),
        (DroppingMean, FUTURE.format(7, 0, 8)),
        (MaskedMean, FUTURE.format(7, 0, 8)),
        (OnlyLong, FUTURE.format(r"\d+", 0, 96)),
        (OnlyTraining, r"sees the future in train mode: changing token 7"),
        (FirstRow, r"depends on the other rows of its batch: .* row [13] at position 0, counted from 0"),
        (TimeFirst, r"depends on the other rows of its batch: .* row [1-3]"),
        (Normed, r"depends on the other rows of its batch in train mode"),
    ],
)
def test_what_sees_the_future_or_other_rows_is_refused(factory: type[nn.Module], message: str):
    with pytest.raises(BadInput, match=rf"^tests\.lab\.test_integrity:{factory.__name__} {message}"):
        examine_untrained([quick(factory)], CPU)


class Tempted(Gru):
    """Learns to look ahead: at first the mean over all time has no weight."""

    def make(self) -> None:
        super().make()
        self.weight = nn.Parameter(torch.zeros(()))

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x, tokens) + self.weight * x.mean(1, keepdim=True)


class Curriculum(Mean):
    """Looks ahead after some steps, which it counts in an attribute."""

    steps = 0

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        self.steps += self.training and torch.is_grad_enabled()
        return super().mix(x, tokens) if self.steps > 10 else x


@pytest.mark.parametrize("factory", [Tempted, Curriculum])
def test_the_trained_state_is_examined_again(factory: type[nn.Module]):
    examine_untrained([quick(factory)], CPU)
    with pytest.raises(BadInput, match="sees the future"):
        assay.run("parity", factory, **QUICK)
    record = execute(quick(factory), CPU)
    assert (record.verdict, record.scores, record.traceback) == ("failed", (), "")
    assert "sees the future" in str(record.error)


class Noisy(Gru):
    """Draws random numbers that no torch seed determines."""

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        noise = torch.from_numpy(np.random.default_rng().normal(size=x.shape)).to(x)
        return super().mix(x, tokens) + (noise if self.training else 0)


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (Noisy, "two calls with the same input and the same random state differ"),
        (PackedDropping, "how many random numbers it draws depends on its input"),
    ],
)
def test_what_cannot_be_compared_is_named_in_the_record(factory: type[nn.Module], reason: str):
    assert execute(quick(factory), CPU).population["not_examined"] == f"train mode at 8 tokens: {reason}"


def test_changes_of_nan_and_infinite_logits_count():
    same = torch.tensor([[[1.0, torch.nan], [1.0, torch.inf], [1.0, 2.0], [1.0, 2.0]]])
    other = torch.tensor([[[1.0, torch.nan], [1.0, torch.inf], [1.0, torch.nan], [1.0, -torch.inf]]])
    changes = relative_change(Outputs(same, []), Outputs(other, []))[0]
    assert changes[:2].tolist() == [0, 0]
    assert (changes[2:] > 1).all()


# -- before training ---------------------------------------------------------------------------------------------------


class Positions(Gru):
    def make(self) -> None:
        super().make()
        self.table = nn.Embedding(50, D)

    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x + self.table(torch.arange(x.shape[1])), tokens)


class LastOnly(Gru):
    def mix(self, x: Tensor, tokens: Tensor) -> Tensor:
        return super().mix(x, tokens)[:, -1]


class Named(Gru):
    def forward(self, tokens: Tensor) -> Any:
        return {"logits": super().forward(tokens)}


def test_the_longest_input_is_read_before_training(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(execution, "GroupTrainer", None)  # nothing is trained
    with pytest.raises(BadInput, match=r"cannot read 96 tokens, the longest input of this run: IndexError") as raised:
        assay.run("parity", Positions, **QUICK)
    assert isinstance(raised.value.__cause__, IndexError)
    record = execute(quick(Positions), CPU)
    assert "self.table(torch.arange" in record.traceback
    expected = r"should give logits \[batch, time, answers\] = \[1, 12, 2\] for inputs \[1, 12\]"
    with pytest.raises(BadInput, match=r"gives torch.float32 of shape \[1, 2\]; it " + expected):
        assay.run("parity", LastOnly, **QUICK)
    with pytest.raises(BadInput, match=r"gives a dict; it " + expected):
        assay.run("parity", Named, **QUICK)


# -- errors ------------------------------------------------------------------------------------------------------------


class Late(Gru):
    def forward(self, tokens: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():
            raise KeyError("too late")
        return super().forward(tokens)


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("in the test")


def test_errors_raise_in_python(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(KeyError, match="too late") as raised:
        assay.run("parity", Late, **QUICK)
    assert raised.traceback[-1].name == "forward"
    assert raised.value.__suppress_context__, "how the trainer handles an error is not shown"
    assert '"too late"' in execute(quick(Late), CPU).traceback
    monkeypatch.setattr(execution, "evaluate", broken)
    with pytest.raises(ZeroDivisionError):
        assay.run("parity", "gru", model_options={"width": 4}, **QUICK)


HELPER = "import torch\n\nclass Part(torch.nn.Linear):\n    scale = 1.0\n"
NET = """
import torch
from . import parts
from .parts.helper import Part

class Inner(torch.nn.Module):
    pass

class Net(torch.nn.Module):
    def __init__(self, vocab, features, answers):
        super().__init__()
        import {package}.lazy
        self.table, self.part = torch.nn.Embedding(vocab, 4), Part(4, answers)
    def forward(self, tokens):
        return self.part(self.table(tokens)) * Part.scale

class Fails(Net):
    def forward(self, tokens):
        raise ValueError("bad shape [/oops] [red]")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one's own, under a name that no other test imports."""
    package = tmp_path / re.sub(r"\W", "_", f"project_{tmp_path.parent.name}_{tmp_path.name}")
    (package / "parts").mkdir(parents=True)
    (package / "net.py").write_text(NET.format(package=package.name))
    (package / "parts" / "helper.py").write_text(HELPER)
    (package / "alone.py").write_text("import torch\n\ndef net(vocab, features, answers):\n    return None\n")
    for name in ("__init__.py", "lazy.py", "unused.py"):
        (package / name).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def command(folder: Path, *words: str) -> Result:
    options = ["--steps", "4", "--jobs", "1", "--set", "training.lengths=[2,6]", "--set", "testing.rows=4"]
    options += ["--set", 'testing.bins=[{"name": "Bin0", "low": 2, "high": 6}]']
    environment = {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}
    with contextlib.chdir(folder):
        return CliRunner(env=environment).invoke(app, ["run", "parity", *words, *options])


def test_the_command_line_shows_where_an_error_was_raised(project: Path):
    words = ["--model", f"{project.name}.net:Fails"]
    first = command(project, *words)
    assert first.exit_code == 1
    assert "ValueError: bad shape [/oops] [red]" in first.stdout
    assert "--traceback shows where" in first.stdout
    assert "in forward" not in first.stdout
    second = command(project, *words, "--traceback")
    assert re.search(r'net\.py", line \d+, in forward\n', second.stdout)
    assert "--traceback shows where" not in second.stdout
    (record,) = Store.open(project / "assay-store").records()
    assert 'raise ValueError("bad shape [/oops] [red]")' in record.traceback


def test_stored_runs_are_carried_out_again_on_request_or_when_code_changes(project: Path):
    def stored() -> tuple[int, int]:
        """How many records were ever written, and how many runs they are of."""
        store = Store.open(project / "assay-store")
        return len(list(store.history())), len(store.records())

    words = ["--model", f"{project.name}.net:Net"]
    assert command(project, *words).exit_code == 0
    assert "1 of 1 runs are already in" in command(project, *words).stdout
    assert stored() == (1, 1)
    again = command(project, *words, "--again")
    assert "already in" not in again.stdout
    assert stored() == (2, 1)
    latest = Store.open(project / "assay-store").records()[0]
    assert latest == list(Store.open(project / "assay-store").history())[1]
    (project / "parts" / "helper.py").write_text(HELPER.replace("1.0", "2.0"))
    command(project, *words)
    assert stored() == (3, 2)


def test_the_digest_covers_the_code_that_is_imported(project: Path):
    def covered(model: str) -> set[str]:
        """The files whose text is part of a model's digest."""
        files = set()
        for path in project.rglob("*.py"):
            before = assay.named_model(f"{project.name}.{model}")
            path.write_text(path.read_text() + "\nmore = 1\n")
            if assay.named_model(f"{project.name}.{model}") != before:
                files.add(path.name)
        return files

    assert covered("net:Net") == {"net.py", "helper.py", "lazy.py", "__init__.py"}
    assert covered("alone:net") == {"alone.py", "__init__.py"}


def test_the_digest_covers_the_versions_of_installed_packages(project: Path, monkeypatch: pytest.MonkeyPatch):
    model = f"{project.name}.net:Net"
    helper = project / "parts" / "helper.py"

    def digests(module: str) -> set[Any]:
        helper.write_text(f"import {module}\n{HELPER}")
        found = set()
        for version in ("1", "2"):
            monkeypatch.setattr(metadata, "version", lambda _, version=version: version)
            found.add(assay.named_model(model).model_dump()["source"])
        return found

    assert len(digests("typer.main")) == 2
    assert [len(digests(name)) for name in ("json.decoder", "torch.nn", "assay.tasks", "sys", "nowhere")] == [1] * 5
