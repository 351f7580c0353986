"""A member of a population is the run that it would be alone: trajectories, neighbours, slots, leaving.

On a machine with a GPU all of this runs there, from captured graphs.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import BadInput
from assay.lab import evaluate as evaluation
from assay.lab.data import held_out
from assay.lab.evaluate import evaluate
from assay.lab.population import Population
from assay.lab.slots import Slots
from assay.lab.stacking import why_unmappable
from assay.models import MODELS
from assay.models.skeleton import Foreign
from assay.spec import RunSpec, run_spec

from .alone import DEVICE, batch, built, loss_of, trained

# On a CPU, where populations have one slot, one model for each operator; on a GPU all of them.
FEW: tuple[str, ...] = (
    "transformer",
    "linear-transformer",
    "delta-net",
    "recurrent-delta",
    "srwm",
    "lstm",
    "elman",
    "dss",
    "mamba",
)
FEW += ("gated-delta-net", "mlstm", "slstm", "m2rnn", "pd-ssm", "path", "hybrid")
SOME = FEW if DEVICE.type == "cpu" else tuple(MODELS.entries)
SMALL = {"width": 8, "heads": 2}  # with heads of 2, retention's norm makes signs of its outputs, and chaos of a run


def run(model: Any, seed: int = 0, task: str = "parity", every: int = 10, **training: Any) -> RunSpec:
    settings = {"lengths": [2, 6], "batch": 4, "validation_rows": 8, "validate_every": every, "steps": 1000} | training
    taken = inspect.signature(MODELS.load(model)).parameters if isinstance(model, str) else {}
    options = {name: size for name, size in SMALL.items() if name in taken}
    return run_spec(task, model, seed=seed, model_options=options, training=settings, testing={"rows": 8})


def populated(specs: list[RunSpec], slots: int | None = None, dtype: torch.dtype = torch.float64) -> Population:
    tasks = list(dict.fromkeys(spec.task for spec in specs))
    population = Population(specs[0], tasks, slots or len(specs), DEVICE, dtype)
    for slot, spec in enumerate(specs):
        population.admit(slot, spec)
    return population


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("model", MODELS.entries)
def test_a_member_takes_the_path_that_it_takes_alone(model: str):
    """20 steps in float64, beside a member with another seed and rate; alone means a plain loop with torch's AdamW."""
    specs = [run(model, seed=k, every=20, lr=lr) for k, lr in enumerate((1e-3, 3e-3))]
    population = populated(specs)
    reports = population.round()
    for slot, spec in enumerate(specs):
        alone, losses = trained(spec, 20)
        assert reports[slot].step == 20
        assert reports[slot].loss == pytest.approx(sum(losses), rel=1e-8)
        torch.testing.assert_close(flat(population.module(slot)), flat(alone), rtol=0, atol=1e-8)


@pytest.mark.parametrize("model", SOME)
def test_the_first_gradient_is_that_of_a_member_alone(model: str):
    specs = [run(model, seed=k) for k in range(3)]
    population = populated(specs, dtype=torch.float32)
    population.draws[0]()
    losses = population.losses(population.modules.leaves, population.batches.inputs[0], population.batches.targets[0])
    grads = torch.autograd.grad(losses.sum(), list(population.modules.leaves.values()))
    for slot, spec in enumerate(specs):
        alone = built(spec, torch.float32)
        loss = loss_of(alone, batch(spec, 1))
        loss.backward()
        torch.testing.assert_close(losses[slot].detach(), loss.detach(), rtol=1e-5, atol=1e-6)
        for grad, p in zip(grads, alone.parameters(), strict=True):
            torch.testing.assert_close(grad[slot], p.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"clip": 0.05}, {"weight_decay": 0.3}, {"betas": [0.8, 0.9], "eps": 1e-4}],
    ids=["clip", "decay", "betas"],
)
def test_every_setting_of_adam_belongs_to_its_member(change: dict[str, Any]):
    specs = [run("gru", seed=1), run("gru", seed=2, **change)]
    population = populated(specs)
    population.round()
    for slot, spec in enumerate(specs):
        torch.testing.assert_close(flat(population.module(slot)), flat(trained(spec, 10)[0]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("model", SOME)
def test_a_run_repeats_bit_for_bit(model: str):
    specs = [run(model, seed=k, batch=32, lengths=[2, 40], every=8) for k in range(2)]
    first, second = (populated(specs, dtype=torch.float32) for _ in "12")
    assert first.round() == second.round()
    assert torch.equal(rows(first), rows(second))


def test_the_rate_rises_and_falls_as_its_schedule_says():
    slots = Slots.empty(4, DEVICE)
    for slot, (warmup, schedule) in enumerate([(0, 0), (4, 0), (0, 1), (4, 2)]):
        slots.set(slot, lr=2.0, warmup=warmup, schedule=schedule, limit=10)
    seen = []
    for step in range(1, 11):
        slots.step.fill_(step)
        seen.append(slots.rate())
    constant, warm, linear, cosine = torch.stack(seen, 1).tolist()
    assert constant == [2.0] * 10
    assert warm == [0.5, 1.0, 1.5] + [2.0] * 7
    assert linear == pytest.approx([2 * (1 - i / 10) for i in range(10)])
    falling = [1 + math.cos(math.pi * i / 10) for i in range(10)]
    assert cosine == pytest.approx([min(1, (i + 1) / 4) * falling[i] for i in range(10)])


@pytest.mark.parametrize(
    "setting",
    [{}, {"warmup": 9}, {"schedule": 1, "clip": 0.5}, {"schedule": 2, "weight_decay": 0.1}, {"explodes": 0.5}],
    ids=str,
)
def test_a_single_slot_is_updated_to_the_bits_of_many(setting: dict[str, float]):
    defaults = {"limit": 25, "lr": 0.1, "beta_1": 0.9, "beta_2": 0.995, "eps": 1e-9, "clip": math.inf}
    one, two = (Slots.empty(count, torch.device("cpu")) for count in (1, 2))
    for slots in (one, two):
        slots.set(0, **({"explodes": math.inf} | defaults | setting))
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(3, 1, 1008, generator=rng).square()
    alone, both = start.clone(), start.repeat(1, 2, 1)
    for _ in range(30):
        g, loss = torch.randn(1, 1008, generator=rng), torch.rand(1, generator=rng)
        one.update(loss, g, *alone)
        two.update(loss.repeat(2), g.repeat(2, 1), *both)
    assert torch.equal(alone[:, 0], both[:, 0])
    assert all(torch.equal(getattr(one, f.name), getattr(two, f.name)[:1]) for f in fields(Slots))
    assert not torch.equal(alone, start)


def rows(population: Population) -> Tensor:
    return torch.stack([population.theta, population.m, population.v])


@pytest.mark.parametrize("model", SOME)
def test_a_member_s_bits_do_not_depend_on_its_neighbours(model: str):
    mine, others = run(model, seed=7), [run(model, seed=k, lr=10.0**-k) for k in range(1, 5)]
    first = populated([mine, *others[:2]], dtype=torch.float32)
    second = populated([mine, *others[2:]], dtype=torch.float32)
    alone = populated([mine], slots=3, dtype=torch.float32)
    said = [population.round()[0] for population in (first, second, alone)]
    assert said[0] == said[1] == said[2]
    assert torch.equal(rows(first)[:, 0], rows(second)[:, 0])
    assert torch.equal(rows(first)[:, 0], rows(alone)[:, 0])


def test_tasks_of_one_shape_mix():
    specs = [run("gru", seed=k, task=task) for k, task in enumerate(("reset-dyck-1", "cyclic", "reset-dyck-1"))]
    population = populated(specs)
    reports = population.round()
    for slot, spec in enumerate(specs):
        alone, losses = trained(spec, 10)
        assert reports[slot].loss == pytest.approx(sum(losses), rel=1e-9)
        torch.testing.assert_close(flat(population.module(slot)), flat(alone), rtol=0, atol=1e-9)


def test_a_slot_is_used_again_and_again():
    first, second = run("lstm", seed=1), run("lstm", seed=2)
    population = populated([first, run("lstm", seed=3)])
    assert not population.why_not_captured or DEVICE.type == "cpu"
    population.round()
    population.vacate(0)
    still = population.theta[0].clone()
    population.round()
    assert torch.equal(population.theta[0], still), "an empty slot is not updated"
    population.admit(0, second)
    report = population.round()[0]
    assert report.step == 10
    torch.testing.assert_close(flat(population.module(0)), flat(trained(second, 10)[0]), rtol=0, atol=1e-10)


def test_a_member_goes_on_from_where_it_was_saved():
    spec = run("gru", seed=5)
    whole = populated([spec, run("gru", seed=6)], dtype=torch.float32)
    for _ in range(3):
        told = whole.round()[0]
    part = populated([spec, run("gru", seed=6)], dtype=torch.float32)
    part.round()
    part.take_snapshot()
    saved = part.state(0)
    part.round()  # what is kept does not move
    other = populated([run("gru", seed=8), run("gru", seed=9)], dtype=torch.float32)
    other.round()
    other.vacate(0)
    other.admit(0, spec, saved, 10)
    other.round()
    assert other.round()[0] == told
    assert torch.equal(rows(other)[:, 0], rows(whole)[:, 0])


def test_a_member_stops_with_its_steps_within_a_round():
    specs = [run("gru", seed=1, steps=7), run("gru", seed=2, steps=1000)]
    population = populated(specs)
    reports = population.round()
    assert [r.step for r in reports] == [7, 10]
    torch.testing.assert_close(flat(population.module(0)), flat(trained(specs[0], 7)[0]), rtol=0, atol=1e-10)
    assert reports[0].loss == pytest.approx(sum(trained(specs[0], 7)[1]))


class Fragile(nn.Module):
    """Its loss is infinite, or merely enormous, for whoever's weight is moved beyond a bound."""

    def __init__(self, vocab: int, features: int, answers: int, height: float = math.inf) -> None:
        super().__init__()
        self.table, self.height = nn.Embedding(vocab, answers), height

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.table(tokens)
        far = self.table.weight.abs().amax() > 5
        return logits * torch.where(far, self.height, 1.0)


@pytest.mark.parametrize("height", [math.inf, 10_000.0])
def test_who_diverges_touches_nobody(height: float):
    model = Foreign.of(Fragile, height=height)
    specs = [run(model, seed=1, lr=1e-3), run(model, seed=2, lr=10.0), run(model, seed=3, lr=1e-3)]
    population = populated(specs)
    calm, wild, other = population.round()
    assert wild.diverged
    assert 1 < wild.step < 10, "it is known when"
    assert not calm.diverged
    assert not other.diverged
    assert population.theta[1].isfinite().all(), "and nothing is updated by what is not a number"
    for slot in (0, 2):
        torch.testing.assert_close(flat(population.module(slot)), flat(trained(specs[slot], 10)[0]), rtol=0, atol=1e-10)
    before = population.theta[1].clone()
    assert population.round()[1].step == wild.step
    assert torch.equal(population.theta[1], before)


def test_a_high_loss_ends_a_run_unless_it_may_be_high():
    model = Foreign.of(Fragile, height=10_000.0)
    free, low = (run(model, seed=2, lr=10.0, explodes=bound) for bound in (None, 1.5))
    usual, unbound, strict = populated([run(model, seed=2, lr=10.0), free, low]).round()
    assert usual.diverged
    assert (unbound.diverged, unbound.step) == (False, 10)
    assert strict.diverged
    assert strict.step <= usual.step
    assert free.digest != low.digest
    assert run(model, explodes=1000.0).digest == run(model).digest


def test_validation_is_that_of_the_module_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evaluation, "held_out", lambda *given: held_out(*given[:4], "validate", given[5]))
    specs = [run("lstm", seed=k, lr=1e-2, every=60) for k in range(2)]
    population = populated(specs)
    reports = population.round()
    windows = specs[0].training.validation
    for slot, spec in enumerate(specs):
        validating = spec.model_copy(update={"testing": spec.testing.model_copy(update={"bins": windows, "rows": 8})})
        module = population.module(slot)
        scores, _ = evaluate(module, validating, DEVICE)
        assert reports[slot].sequences == pytest.approx({score.bin: score.sequences for score in scores})
        assert reports[slot].answers == pytest.approx({score.bin: score.answers for score in scores})
    assert 0 < reports[0].answers["Val0"] <= 1


# -- modules of one's own ------------------------------------------------------------------------------------------


class Own(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(vocab, 8), nn.Linear(8, answers)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("shift", torch.ones(8))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(torch.cumsum(self.table(tokens) * self.scale + self.shift, 1).tanh())


class Encoder(nn.Module):
    def __init__(self, vocab: int, features: int, answers: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(vocab, 8), nn.Linear(8, answers)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        mask = mask.to(self.table.weight.dtype)
        return self.read(self.layer(self.table(tokens), src_mask=mask, is_causal=True))


class Lstm(nn.Module):
    net: Any = nn.LSTM

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table, self.rnn, self.read = (
            nn.Embedding(vocab, 8),
            self.net(8, 8, batch_first=True),
            nn.Linear(8, answers),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return self.read(self.rnn(self.table(tokens))[0])


class Gru(Lstm):
    net = nn.GRU


@pytest.mark.parametrize("factory", [Own, Encoder])
def test_a_module_of_one_s_own_is_mapped_when_it_can_be(factory: type[nn.Module]):
    specs = [run(Foreign.of(factory), seed=k) for k in range(3)]
    assert why_unmappable(specs[0], DEVICE) == ""
    population = populated(specs)
    population.round()
    for slot, spec in enumerate(specs):
        torch.testing.assert_close(flat(population.module(slot)), flat(trained(spec, 10)[0]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("factory", [Lstm, Gru])
def test_what_cannot_be_mapped_is_called_as_it_is(factory: type[nn.Module]):
    spec = run(Foreign.of(factory))
    why = why_unmappable(spec, DEVICE)
    assert why, "or vmap has learned it: then the population test above is the one for it"
    population = Population(spec, [spec.task], 1, DEVICE, torch.float64, unmapped=why)
    population.admit(0, spec)
    population.round()
    torch.testing.assert_close(flat(population.module(0)), flat(trained(spec, 10)[0]), rtol=0, atol=1e-9)


def test_randomness_is_a_reason_to_call_a_module_as_it_is():
    assert "random" in why_unmappable(run(Foreign.of(Encoder, dropout=0.5)), DEVICE)


class Frozen(nn.Module):
    """Has a frozen parameter and a complex buffer."""

    turn: Tensor

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(vocab, 8), nn.Linear(8, answers)
        self.fixed = nn.Parameter(torch.randn(8), requires_grad=False)
        self.register_buffer("turn", torch.polar(torch.ones(4), torch.randn(4)))

    def forward(self, tokens: Tensor) -> Tensor:
        pairs = torch.view_as_complex((self.table(tokens) * self.fixed).unflatten(-1, (4, 2)))
        return self.read(torch.view_as_real(pairs * self.turn.to(pairs.dtype)).flatten(-2))


class Counting(nn.Module):
    """Writes to a buffer at every call in training."""

    mean: Tensor

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, answers)
        self.register_buffer("mean", torch.zeros(answers))

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.table(tokens)
        if self.training:
            self.mean.mul_(0.9).add_(logits.detach().mean((0, 1)))
        return logits - 0.1 * self.mean


class Replacing(Counting):
    """Puts another tensor in its place."""

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.table(tokens)
        if self.training:
            self.mean = self.mean * 0.9 + logits.detach().mean((0, 1))
        return logits - 0.1 * self.mean


class Private(nn.Module):
    """Has numbers from its seed that nobody is told of."""

    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__()
        self.table, self.secret = nn.Embedding(vocab, 8), torch.randn(8, answers)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens) @ self.secret.to(self.table.weight)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("factory", [Frozen, Counting, Replacing, Private])
def test_what_a_module_does_not_learn_is_its_member_s_own(factory: type[nn.Module], slots: int):
    """Also after the steps have run out within a round, and for the second member of a slot."""
    specs = [run(Foreign.of(factory), seed=k, steps=7) for k in (3, 4, 5)]
    why = why_unmappable(specs[0], DEVICE)
    assert bool(why) == (factory in (Replacing, Private)), why
    slots = 1 if why else slots
    population = Population(specs[0], [specs[0].task], slots, DEVICE, torch.float64, unmapped=why)
    for first in range(0, 3, slots):
        for slot, spec in enumerate(specs[first : first + slots]):
            population.admit(slot, spec)
        population.round()
        for slot, spec in enumerate(specs[first : first + slots]):
            module, alone = population.module(slot), trained(spec, 7)[0]
            torch.testing.assert_close(flat(module), flat(alone), rtol=0, atol=1e-10)
            for mine, other in zip(module.buffers(), alone.buffers(), strict=True):
                torch.testing.assert_close(mine, other.to(mine.dtype), rtol=0, atol=1e-7)


def test_complex_parameters_are_refused():
    with pytest.raises(BadInput, match="complex parameters"):
        populated([run(Foreign.of(Complex))])


class Complex(Private):
    def __init__(self, vocab: int, features: int, answers: int) -> None:
        super().__init__(vocab, features, answers)
        self.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))


def test_a_slot_that_was_never_used_holds_numbers():
    population = populated([run("gru")], slots=3)
    population.round()
    assert population.theta.isfinite().all()


def test_real_valued_inputs_and_a_schedule_across_a_resume():
    settings: dict[str, Any] = {"schedule": "cosine", "warmup": 15, "steps": 40, "clip": 0.5, "lengths": [5, 9]}
    specs = [run("gru", seed=k, task="nearest-neighbour", **settings) for k in (1, 2)]
    whole, part = populated(specs, dtype=torch.float32), populated(specs, dtype=torch.float32)
    told = [whole.round() for _ in range(3)][-1]
    part.round()
    part.take_snapshot()
    saved = [part.state(slot) for slot in (0, 1)]
    other = populated(specs, dtype=torch.float32)
    for slot, spec in enumerate(specs):
        other.admit(slot, spec, saved[slot], 10)
    other.round()
    assert other.round() == told
    assert torch.equal(rows(other), rows(whole))
