"""Number formats against torch's own and against counting; and machines that compute in them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models import MIXERS
from assay.models.causal import Causal
from assay.models.skeleton import Model
from assay.numbers import Fixed, Float, Format, read_format
from assay.theory.rounding import Rounded, _Rounding

from ..models.cases import NAMED, Case, tokens

FINE, COARSE = Fixed(20, 40), Fixed(6, 3)
HYBRID = Case("hybrid", {"mixers": tuple(MIXERS.entries)})
PARTS: dict[str, dict[str, bool]] = {
    "all": {},
    "weights": {"activations": False, "state": False},
    "activations": {"weights": False, "state": False},
    "state": {"weights": False, "activations": False},
}
every_model = pytest.mark.parametrize("case", [*NAMED, HYBRID], ids=str)


# -- formats -------------------------------------------------------------------------------------------------------


def numbers(smallest: int, largest: int) -> Tensor:
    """Many float32 numbers of many sizes, and halfway cases."""
    rng = torch.Generator().manual_seed(0)
    size = torch.exp2(torch.randint(smallest, largest, (100_000,), generator=rng).double())
    some = (torch.randn(100_000, generator=rng, dtype=torch.float64) * size).float()
    coarse = (torch.randint(-4096, 4096, (100_000,), generator=rng) * size).float()  # of few bits: often halfway
    edges = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 2.0**-25, 3 * 2.0**-25, 65519.0, 65520.0, 3.4e38, 1e-45])
    return torch.cat([some, coarse, edges])


@pytest.mark.parametrize(
    ("name", "dtype"), [("float16", torch.half), ("bfloat16", torch.bfloat16), ("e5m2", torch.float8_e5m2)]
)
def test_floats_are_torchs_own(name: str, dtype: torch.dtype):
    x, format = numbers(-150, 130), read_format(name)
    assert torch.equal(format.round(x), x.to(dtype).float())
    assert torch.equal(format.round(x.double()), x.to(dtype).double())
    assert format.round(torch.tensor(torch.nan)).isnan()
    assert isinstance(format, Float)
    assert format.largest == torch.finfo(dtype).max
    assert format.bits == torch.finfo(dtype).bits


def test_a_finite_format_is_torchs_and_saturates():
    x = numbers(-20, 20)
    inside = x[x.abs() <= 448]
    assert torch.equal(Float(4, 3, finite=True).round(inside), inside.to(torch.float8_e4m3fn).float())
    assert read_format("e4m3").round(torch.tensor([1e9, -torch.inf])).tolist() == [448.0, -448.0]


@pytest.mark.parametrize(("whole", "fraction"), [(0, 3), (2, 1), (3, 0), (1, 4)])
def test_fixed_point_has_two_to_the_bits_numbers_and_takes_the_nearest(whole: int, fraction: int):
    format, step = Fixed(whole, fraction), Fraction(1, 2**fraction)
    x = torch.arange(-20 * 64, 20 * 64, dtype=torch.float64) / 64
    got = format.round(x)
    assert len(got.unique()) == 2**format.bits
    for number, near in zip(x.tolist(), got.tolist(), strict=True):
        wanted = round(Fraction(number) / step) * step  # Python's own goes to even too
        assert near == min(max(wanted, Fraction(-(2**whole))), 2**whole - step)


def test_a_float_format_has_as_many_numbers_as_its_bits_say():
    got = Float(3, 2).round(torch.linspace(-20, 20, 100_001, dtype=torch.float64)).unique()
    assert len(got[got.isfinite()]) == 2**6 - 2 * 4 - 1  # less infinities and what is no number, and -0 is 0
    assert got.isinf().sum() == 2


def test_what_is_no_real_number():
    z = torch.complex(torch.tensor([0.3, 7.0]), torch.tensor([-0.3, 0.1]))
    assert Fixed(2, 1).round(z).tolist() == [0.5 - 0.5j, 3.5 + 0j]
    whole = torch.tensor([1000])
    assert Fixed(2, 1).round(whole) is whole


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("fixed:6.2", Fixed(6, 2)),
        ("float:5.10", Float(5, 10)),
        ("float16", Float(5, 10)),
        ("bfloat16", Float(8, 7)),
        ("float32", Float(8, 23)),
        ("e4m3", Float(4, 3, finite=True)),
    ],
)
def test_formats_are_read_and_written(text: str, format: Format):
    assert read_format(text) == format
    assert read_format(str(format)) == format


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("float17", "did you mean 'float16'"),
        ("zzz", "choose from: .*bfloat16.*fixed:6.2"),
        ("fixed:6", "fixed:WHOLE.FRACTION"),
        ("fixed:40.40", "together at most 62"),
        ("float:1.10", "2 to 11 bits of exponent"),
    ],
)
def test_bad_formats(text: str, said: str):
    with pytest.raises(BadInput, match=said) as error:
        read_format(text)
    assert "\n" not in str(error.value)


# -- machines ------------------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("part", PARTS)
def test_fine_numbers_change_nothing_and_coarse_ones_do(case: Case, part: str):
    made, x = case.build(), tokens(2, 7)
    before = {name: value.clone() for name, value in made.state_dict().items()}
    with torch.no_grad():
        wanted = made(x)
    fine, coarse = (Rounded(made, format, **PARTS[part]) for format in (FINE, COARSE))
    for a, b in zip(pytree.tree_leaves(fine(x)), pytree.tree_leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert (coarse(x)[0] - wanted[0]).abs().max() > 1e-3
    assert all(torch.equal(made.state_dict()[name], value) for name, value in before.items())


def in_format(tree: Any, format: Format) -> bool:
    return all(torch.equal(format.round(leaf), leaf) for leaf in pytree.tree_leaves(tree))


@every_model
def test_what_is_rounded_is_in_the_format(case: Case):
    x = tokens(2, 7)
    everything = Rounded(case.build(), COARSE)
    logits, state = everything(x)
    assert in_format((logits, state, list(everything.parameters())), COARSE)
    assert int(state[0]) == 7
    carried = Rounded(case.build(), COARSE, **PARTS["state"])
    logits, state = carried(x)
    assert in_format((state, carried.initial_state(2)), COARSE)
    assert not in_format(logits, COARSE)
    assert not in_format(list(carried.parameters()), COARSE)
    assert int(state[0]) == 7


@every_model
@pytest.mark.parametrize("part", ["all", "state"])
def test_state_is_handed_over_and_forward_is_the_fold_of_step(case: Case, part: str):
    made, x = Rounded(case.build(), COARSE, **PARTS[part]), tokens(2, 7)
    with torch.no_grad():
        logits, state = made(x)
        first, between = made(x[:, :4])
        second, after = made(x[:, 4:], between)
        folded = Causal.forward(made, x)
    for got in ((torch.cat([first, second], dim=1), after), folded):
        for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves((logits, state)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_sums_are_rounded_once():
    with _Rounding(Fixed(8, 0)):
        weights = torch.full((100,), 0.125).double() * 1
        assert not weights.any()  # every product alone is rounded away
    weights = torch.full((1, 100), 0.125)
    with _Rounding(Fixed(8, 0)):
        assert (torch.ones(1, 100) @ weights.T).item() == 12  # 12.5, to even


def test_moving_rounds_no_weight():
    """`x @ W.T` with only activations rounded: W.T is a view of a weight and no result."""
    W, x = torch.tensor([[0.3, 0.4]]), torch.ones(1, 2)
    with _Rounding(Fixed(4, 1)):
        assert (x @ W.T).item() == 0.5  # 0.7, not 0.5 + 0.5
        assert torch.equal(torch.cat([W, W]), W.repeat_interleave(2, 0))


def test_what_is_done_in_place_is_rounded_in_place():
    x = torch.ones(3)
    with _Rounding(Fixed(4, 1)):
        y = x.mul_(0.3)
    assert y is x
    assert x.tolist() == [0.5] * 3


def test_masks_stay():
    """Were -inf the smallest number of a narrow format, attention would see the future."""
    made, x = Rounded(Case("transformer").build(), Fixed(1, 6)), tokens(2, 7)
    other = x.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 3
    a, b = made(x)[0], made(other)[0]
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.equal(a[:, 5:], b[:, 5:])


def test_real_inputs_come_in_any_type():
    made = Case("gru").build(features=4)
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(Rounded(made, FINE)(x)[0], made(x.double())[0])


def test_a_machine_in_training_is_left_alone():
    made: Model = Case("lstm").build()
    logits, _ = Rounded(made, COARSE)(tokens(2, 5))
    assert not logits.requires_grad
    assert all(p.requires_grad for p in made.parameters())
    assert Rounded(made, COARSE).state_floats(5) == made.state_floats(5)
