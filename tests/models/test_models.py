"""Properties of every model: forward is the fold of step; causality; independent rows; seeds; sizes; positions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models import MIXERS, MODELS, named_model
from assay.models.causal import state_bits
from assay.models.positions import Sinusoidal, rotate
from assay.models.skeleton import Model
from assay.rng import Rng

from .cases import ANSWERS, CASES, NAMED, VOCAB, Case, tokens

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_model = pytest.mark.parametrize("case", NAMED, ids=str)
HYBRID = Case("hybrid", {"mixers": tuple(MIXERS.entries)})


def close(got: Any, expected: Any, tolerance: float = 1e-10) -> None:
    """Two tensors, or two states, agree."""
    for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def differ(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() > 1e-6)


def folded(model: Model, x: Tensor) -> tuple[Tensor, Any]:
    state, outputs = model.initial_state(len(x)), []
    for t in range(x.shape[1]):
        output, state = model.step(x[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def test_options_are_all_covered():
    expected = {
        "transformer-positions=rotary",
        "transformer-positions=alibi",
        "transformer-norm=none",
        "transformer-ff=0",
        "srwm-reading=after",
        "srwm-convention=controlled",
        "linear-transformer-features=unit",
        "hybrid-positions=learned",
    }
    assert expected <= set(map(str, CASES))
    assert {case.name for case in CASES} == set(MODELS.entries)


# -- step, state, time, rows ---------------------------------------------------------------------------------------


@every_case
def test_forward_is_the_fold_of_step(case: Case):
    model, x = case.build(), tokens(2, 13)
    with torch.no_grad():
        logits, state = model(x)
        assert logits.shape == (2, 13, ANSWERS)
        close((logits, state), folded(model, x))


@pytest.mark.parametrize("case", [*NAMED, HYBRID], ids=str)
def test_forward_is_the_fold_of_step_beyond_one_chunk(case: Case):
    model, x = case.build(), tokens(2, 70)
    with torch.no_grad():
        close(model(x), folded(model, x))


@every_case
def test_state_is_handed_over(case: Case):
    model, x = case.build(), tokens(2, 13)
    with torch.no_grad():
        logits, state = model(x)
        first, between = model(x[:, :5])
        second, after = model(x[:, 5:], between)
    close((torch.cat([first, second], dim=1), after), (logits, state))


@every_case
def test_the_past_does_not_see_the_future(case: Case):
    model, x = case.build(), tokens(2, 13)
    y = x.clone()
    y[:, 4] = (y[:, 4] + 1) % VOCAB  # a position that hard attention, too, looks at later
    with torch.no_grad():
        before, after = model(x)[0], model(y)[0]
    close(after[:, :4], before[:, :4], 1e-12)
    assert differ(after[:, 4], before[:, 4])
    assert differ(after[:, 5:], before[:, 5:])


@every_case
def test_rows_do_not_see_one_another(case: Case):
    model, x = case.build(), tokens(3, 9)
    y = x.clone()
    y[1] = (y[1] + 1) % VOCAB
    with torch.no_grad():
        before, after, alone = model(x)[0], model(y)[0], model(x[2:])[0]
    close(after[[0, 2]], before[[0, 2]], 1e-12)
    close(alone[0], before[2], 1e-12)
    assert differ(after[1], before[1])


@every_case
def test_every_parameter_gets_a_gradient(case: Case):
    model = case.build()
    logits, _ = model(tokens(3, 9))
    (logits * torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@every_model
def test_real_valued_inputs(case: Case):
    model = case.build(features=5)
    x = torch.randn(2, 9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = x.clone()
    y[:, 4, 3] += 1
    with torch.no_grad():
        close(model(x), folded(model, x))
        before, after = model(x)[0], model(y)[0]
    close(after[:, :4], before[:, :4], 1e-12)
    assert differ(after[:, 4:], before[:, 4:])


# -- seeds ---------------------------------------------------------------------------------------------------------

# Parameters with a deterministic initial value.
FIXED = ("_norm.weight", "_norm.bias", ".A_log", ".log_decay", ".frequency", ".state_weight")


def drawn(model: Model) -> dict[str, Tensor]:
    fixed = (*FIXED, *(name for name, value in model.named_parameters() if bool((value == 1).all())))
    return {name: value.detach() for name, value in model.named_parameters() if not name.endswith(fixed)}


@every_case
def test_a_seed_determines_the_parameters(case: Case):
    before = torch.get_rng_state()
    first, again, other = case.build(seed=1), case.build(seed=1), case.build(seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.state_dict().keys() == again.state_dict().keys() == other.state_dict().keys()
    assert all(torch.equal(first.state_dict()[name], value) for name, value in again.state_dict().items())
    for name, value in drawn(first).items():
        assert (other.state_dict()[name] != value).float().mean() > 0.9, name


@pytest.mark.parametrize("case", [*NAMED, HYBRID], ids=str)
def test_no_two_parameters_are_drawn_alike(case: Case):
    """Not even up to a factor, as two draws from one stream would be."""
    values = [value.flatten() for value in drawn(case.build()).values()]
    ratios = [tuple(round(float(r), 5) for r in value[1:3] / value[0]) for value in values]
    assert len(set(ratios)) == len(ratios)


# -- sizes ---------------------------------------------------------------------------------------------------------


def feed_forward(D: int) -> int:
    return D * 4 * D + 4 * D + 4 * D * D + D


def around(D: int) -> int:
    """The embedding of 3 symbols and the read-out of 3 answers."""
    return 3 * D + 3 * D + 3


def matrices(square: int, others: int) -> int:
    """Two layers of width 64 with this many square maps and other parameters, in the shared skeleton."""
    return around(64) + 2 * (square * 64 * 64 + others + 4 * 64 + feed_forward(64))


PARAMETERS = [
    # As published for D = 64, H = 4, L = 2, ff = 4.
    ("linear-transformer", {}, 99_843),
    ("delta-net", {}, 100_355),
    ("recurrent-delta", {}, 106_627),
    ("srwm", {}, 81_923),
    ("transformer", {}, 100_483),
    # The rest from their equations.
    ("lstm", {}, around(128) + 4 * (128 * 128 + 128 * 128 + 128)),
    ("gru", {}, around(128) + 3 * (128 * 128 + 128 * 128 + 128) + 128),
    ("elman", {}, around(128) + 128 * 128 + 128 * 128 + 128),
    ("e-lstm", {}, around(128) + 2 * (128 * 128 + 128 + 128) + 128 * 256 + 128),
    ("lstm", {"layers": 2, "width": 32}, around(32) + 2 * 4 * (32 * 32 + 32 * 32 + 32)),
    ("retnet", {}, around(64) + 2 * (5 * 64 * 64 + 4 * 64 + feed_forward(64))),
    ("dss", {}, around(64) + 2 * (64 * 16 * 4 + 2 * 64 + 64 * 128 + 128 + 2 * 64)),
    (
        "mamba",
        {},
        around(64)
        + 2 * 64
        + 2 * (64 * 256 + 128 * 4 + 128 + 128 * (4 + 32) + 4 * 128 + 128 + 128 * 16 + 128 + 128 * 64 + 2 * 64),
    ),
    ("delta-net-signed", {}, 100_355),
    ("delta-product", {"steps": 3}, around(64) + 2 * ((2 + 3 + 3) * 64 * 64 + 3 * 4 * 64 + 4 * 64 + feed_forward(64))),
    # Those with a matrix as their state: square maps, the convolution, gates, constants, the norm of a head.
    ("gated-delta-net", {}, matrices(5, 3 * 64 * 4 + 2 * 64 * 4 + 2 * 4 + 16)),
    ("gated-delta-net", {"convention": "controlled"}, matrices(4, 2 * 64 * 4 + 2 * 4)),
    ("gated-delta-net", {"decays": False, "output": "norm"}, matrices(4, 3 * 64 * 4 + 64 * 4 + 16)),
    ("gated-delta-product", {}, matrices(7, 5 * 64 * 4 + 3 * 64 * 4 + 2 * 4 + 16)),
    ("kda", {}, matrices(4, 3 * 64 * 4 + 64 * 4 + 4 * 64 * 16 + 4 + 64 + 16)),
    ("gated-delta-net-2", {}, matrices(6, 3 * 64 * 4 + 4 * 64 * 16 + 64 + 4 + 64 + 16)),
    ("rwkv-7", {}, matrices(4, 6 * 64 + 6 * 64 * 32 + 2 * 64 + 2 * 64 + 2 * 64 + 64)),
    ("gla", {}, matrices(5, 2 * 64 * 16 + 64 + 16)),
    ("hgrn-2", {}, matrices(4, 16)),
    ("mlstm", {}, matrices(5, 2 * (64 * 4 + 4) + 16)),
    (
        "mamba-2",
        {},
        around(64) + 2 * 64 + 2 * (64 * (128 + 160 + 4) + 160 * 5 + 3 * 4 + 128 + 128 * 64 + 2 * 64),
    ),
    ("transformer", {"positions": "learned", "longest": 50}, 100_483 + 50 * 64),
    ("transformer", {"positions": "rotary"}, 100_483),
    ("linear-transformer", {"norm": "none", "ff": 0}, around(64) + 2 * 4 * 64 * 64),
    ("transformer", {"positions": "alibi"}, 100_483),
    ("slstm", {}, around(64) + 2 * (4 * (64 * 64 + 64 * 16 + 64) + 4 * 64 + 64 + 4 * 64 + feed_forward(64))),
    (
        "slstm",
        {"convolution": 0, "output": "plain"},
        around(64) + 2 * (4 * (64 * 64 + 64 * 16 + 64) + 4 * 64 + feed_forward(64)),
    ),
    (
        "m2rnn",
        {},
        around(64)
        + 2 * (5 * 64 * 64 + 3 * 64 * 4 + 64 * 4 + 4 + 4 + 4 * 16 * 16 + 64 + 16 + 4 * 64 + feed_forward(64)),
    ),
    (
        "pd-ssm",
        {},
        around(64)
        + 2 * (64 * 8 + 8 * 64 * 64 + 2 * (64 * 128 + 128 + 128 * 64 + 64) + 128 * 64 + 64 + 128 * 64 + 64)
        + 2 * (4 * 64 + feed_forward(64)),
    ),
    (
        "mamba-3",
        {},
        around(64)
        + 2 * 64
        + 2 * (64 * (2 * 128 + 2 * 16 + 3 * 4 + 4) + 4 + 2 * 16 + 2 * 4 * 16 + 4 + 128 * 64)
        + 2 * (4 * 64 + feed_forward(64)),
    ),
    ("forgetting-transformer", {}, around(64) + 2 * (4 * 64 * 64 + 64 * 4 + 4 + 4 * 64 + feed_forward(64))),
    ("stick-breaking", {}, around(64) + 2 * (4 * 64 * 64 + 4 * 64 + feed_forward(64))),
    ("path", {}, around(64) + 2 * (5 * 64 * 64 + 3 * 64 + 64 * 4 + 4 + 4 * 64 + feed_forward(64))),
]


@pytest.mark.parametrize(("name", "options", "count"), PARAMETERS)
def test_parameter_counts(name: str, options: dict[str, Any], count: int):
    model = named_model(name, **options).build(3, 0, 3, Rng.seeded(0))
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def real_numbers(state: Any) -> int:
    """The real numbers that a state of one row holds; counters of the position are whole and do not count."""
    leaves = pytree.tree_leaves(state)
    return sum(leaf.numel() * (2 if leaf.is_complex() else 1) for leaf in leaves if leaf.dtype != torch.int64)


STATES: dict[str, Callable[..., int]] = {  # from the equations
    "transformer": lambda L, H, d, D, N, T: L * 2 * T * H * d,
    "linear-transformer": lambda L, H, d, D, N, T: L * H * d**2,
    "retnet": lambda L, H, d, D, N, T: L * H * d**2,
    "delta-net": lambda L, H, d, D, N, T: L * H * d**2,
    "delta-net-signed": lambda L, H, d, D, N, T: L * H * d**2,
    "delta-product": lambda L, H, d, D, N, T: L * H * d**2,
    "recurrent-delta": lambda L, H, d, D, N, T: L * H * (d**2 + d),
    "srwm": lambda L, H, d, D, N, T: L * H * (3 * d**2 + 4 * d),
    "lstm": lambda L, H, d, D, N, T: 2 * L * D,
    "gru": lambda L, H, d, D, N, T: L * D,
    "elman": lambda L, H, d, D, N, T: L * D,
    "e-lstm": lambda L, H, d, D, N, T: L * D,
    "dss": lambda L, H, d, D, N, T: 2 * L * D * N,
    "mamba": lambda L, H, d, D, N, T: L * (2 * D * N + 2 * D * 3),
    "gated-delta-net": lambda L, H, d, D, N, T: L * (H * d**2 + 3 * D * 3),  # and the inputs of the convolution
    "gated-delta-product": lambda L, H, d, D, N, T: L * (H * d**2 + 5 * D * 3),
    "kda": lambda L, H, d, D, N, T: L * (H * d**2 + 3 * D * 3),
    "gated-delta-net-2": lambda L, H, d, D, N, T: L * (H * d**2 + 3 * D * 3),
    "rwkv-7": lambda L, H, d, D, N, T: L * (H * d**2 + D),
    "mamba-2": lambda L, H, d, D, N, T: L * (2 * D * N + (2 * D + 2 * N) * 3),
    "gla": lambda L, H, d, D, N, T: L * H * d**2,
    "hgrn-2": lambda L, H, d, D, N, T: L * H * d**2,
    "mlstm": lambda L, H, d, D, N, T: L * H * (d**2 + d + 1),
    "slstm": lambda L, H, d, D, N, T: L * (3 * D + 3 * D),
    "m2rnn": lambda L, H, d, D, N, T: L * (H * d**2 + 3 * 3 * D),
    "pd-ssm": lambda L, H, d, D, N, T: L * 2 * N,
    "mamba-3": lambda L, H, d, D, N, T: L * H * (N * 2 * d + N + 2 * d + -(-N // 4)),
    "forgetting-transformer": lambda L, H, d, D, N, T: L * H * T * (2 * d + 1),
    "stick-breaking": lambda L, H, d, D, N, T: L * 2 * T * H * d,
    "path": lambda L, H, d, D, N, T: L * (2 * T * H * d + 2 * D),
    "hybrid": lambda L, H, d, D, N, T: H * d**2 + 2 * T * H * d,  # a delta rule and an attention
}


@pytest.mark.parametrize("name", MODELS.entries)
@pytest.mark.parametrize(("L", "H", "D", "N"), [(2, 4, 16, 16), (3, 2, 12, 5)])
def test_state_floats(name: str, L: int, H: int, D: int, N: int):
    taken = inspect.signature(MODELS.load(name)).parameters
    sizes: dict[str, Any] = {"layers": L, "heads": H, "width": D, "states": N}
    options = {option: value for option, value in sizes.items() if option in taken}
    if name == "hybrid":
        options["mixers"] = tuple({"kind": kind, "heads": H} for kind in ("delta-rule", "attention"))
    model = named_model(name, **options).build(3, 0, 3, Rng.seeded(0))
    assert isinstance(model, Model)
    for T in (1, 9):
        floats = real_numbers(model(tokens(1, T))[1])
        assert model.state_floats(T) == floats
        assert state_bits(model, T) == 32 * floats
        assert state_bits(model, T, precision=5) == 5 * floats
        if name in STATES:
            assert floats == STATES[name](L, H, D // H, D, N, T)


def test_state_of_a_hybrid_is_the_sum_of_its_parts():
    whole = HYBRID.build()
    parts = [Case("hybrid", {"mixers": (kind,)}).build() for kind in MIXERS.entries]
    for length in (1, 9):
        assert whole.state_floats(length) == sum(part.state_floats(length) for part in parts)
        assert whole.state_floats(length) == real_numbers(whole(tokens(1, length))[1])


def test_hybrid_runs_its_mixers_in_their_order():
    layers = [type(block.mixer) for block in HYBRID.build().blocks]
    assert layers == [type(MIXERS.load(kind)().build(8, Rng.seeded(0))) for kind in MIXERS.entries]
    x = tokens(2, 9)
    there, back = (Case("hybrid", {"mixers": order}).build() for order in (("gru", "lstm"), ("lstm", "gru")))
    assert differ(there(x)[0], back(x)[0])


def test_every_mixer_can_stand_anywhere_in_a_stack():
    model, x = HYBRID.build(), tokens(2, 13)
    logits, state = model(x)
    close((logits, state), folded(model, x))
    _, between = model(x[:, :5])
    close(model(x[:, 5:], between), (logits[:, 5:], state))
    logits.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in model.parameters())


# -- positions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned", "rotary"])
def test_only_positions_tell_an_order(positions: str):
    """Without positions, one layer of attention at the last token sees the tokens before it as a bag."""
    model = Case("transformer", {"positions": positions}).build(layers=1)
    x = torch.tensor([[0, 0, 1, 2, 1, 2, 0]])
    y = torch.tensor([[2, 1, 0, 1, 0, 2, 0]])
    with torch.no_grad():
        a, b = model(x)[0][:, -1], model(y)[0][:, -1]
    if positions == "none":
        close(a, b, 1e-12)
    else:
        assert differ(a, b)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_added_positions_move_every_mixer(positions: str):
    case = Case("hybrid", {"mixers": ("linear-attention",)})
    x = torch.tensor([[0, 0, 1, 2, 1, 2, 0]])
    with torch.no_grad():
        assert differ(case.build(positions=positions)(x)[0], case.build()(x)[0])


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions(width: int):
    pairs = (width + 1) // 2
    got = Sinusoidal()(torch.zeros(1, 3, width, dtype=torch.float64), torch.arange(5, 8))[0]
    for row, place in enumerate((5, 6, 7)):
        for i in range(width):
            angle = torch.tensor(place / 10000 ** (i % pairs / pairs), dtype=torch.float64)
            close(got[row, i], angle.sin() if i < pairs else angle.cos(), 1e-12)


def test_rotary_scores_depend_on_distance_alone():
    q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def score(i: int, j: int) -> Tensor:
        return (rotate(q, torch.tensor([i])) * rotate(k, torch.tensor([j]))).sum()

    close(score(7, 4), score(103, 100))
    close(score(5, 5), (q * k).sum())
    assert all(differ(a, b) for a, b in pairwise([score(9, 9), score(9, 8), score(9, 7), score(9, 10)]))


def test_learned_positions_end_where_their_table_does():
    case = Case("transformer", {"positions": "learned", "longest": 6})
    model = case.build()
    _, state = model(tokens(1, 6))
    for beyond in (
        lambda: model(tokens(1, 7)),
        lambda: model(tokens(1, 1), state),
        lambda: model.step(tokens(1, 1)[:, 0], state),
        lambda: case.described().check_length(7),
    ):
        with pytest.raises(BadInput, match=r"7 tokens .* 6 positions .*longest=7"):
            beyond()
    case.described().check_length(6)
    Case("transformer", {"positions": "sinusoidal"}).described().check_length(10**6)
    with pytest.raises(BadInput, match="set positions to learned"):
        Case("transformer", {"positions": "sinusoidal", "longest": 6}).described()
