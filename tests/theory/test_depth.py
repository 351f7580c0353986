"""One layer for equality, at the width that the bound asks for; and what it is made of is needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.models.skeleton import Model
from assay.theory.depth import EqualityOneLayer, OneBitEach, compare
from assay.theory.precision import least_fixed


class Packed(EqualityOneLayer):
    """Any number of symbols in each number."""

    def __init__(self, packed: int) -> None:
        self.packed = packed  # type: ignore[misc]


@pytest.mark.parametrize("packed", [1, 3, 16])
@pytest.mark.parametrize("length", [10, 64])
def test_one_layer_holds(packed: int, length: int):
    verdict = Packed(packed).verify(length, inputs=300)
    assert verdict.holds
    assert verdict.width == -(-length // 2 // packed) + 4
    assert verdict.margin is not None
    assert verdict.margin > 0.5


def test_numbers_of_float32_do_not_hold_24_symbols():
    assert not Packed(24).verify(64, inputs=300).holds


def alike(model: Model) -> Model:
    """0 and 1 get the same attention."""
    model.embed.weight[2] = model.embed.weight[1]
    return model


def misplaced(model: Model) -> Model:
    """One place of y counts for another of x."""
    table = model.positions.table
    table[[-1, -2]] = table[[-2, -1]]
    return model


def one_sided(model: Model) -> Model:
    """Differences below zero do not count."""
    inside = model.blocks[0].ff[0].weight
    inside[len(inside) // 4 :] = 0
    return model


def formless(model: Model) -> Model:
    """A # counts for nothing."""
    model.embed.weight[3, -4] = 0
    return model


@pytest.mark.parametrize("broken", [alike, misplaced, one_sided, formless])
def test_without_a_part_it_fails(broken):
    assert not OneBitEach().verify(10, change=broken, inputs=300).holds


def test_more_symbols_in_a_number_take_more_bits_and_less_width():
    few, many = (least_fixed(Packed(packed), 32, inputs=200) for packed in (1, 8))
    assert few is not None
    assert many is not None
    assert many.bits > few.bits
    assert width(Packed(8), 32) < width(Packed(1), 32)


def width(claim: EqualityOneLayer, length: int) -> int:
    return claim.build(length).read_out.in_features


def test_hard_cases_are_drawn():
    from assay.rng import Rng

    drawn = EqualityOneLayer().draw(32, Rng.seeded(0).rows(400))
    apart: Tensor = (drawn[:, :16] != drawn[:, 17:]).sum(1)
    assert all((apart == count).sum() > 20 for count in (0, 1))
    assert (apart > 4).sum() > 20
    assert torch.equal(drawn.unique(), torch.tensor([1, 2, 3]))


def test_compare():
    rows = compare([16, 512])
    found = {(row["which"], row["length"]): row["width"] for row in rows}
    one, packed, two, lean, paper = dict.fromkeys(row["which"] for row in rows)
    assert found[one, 512] == 260
    assert found[packed, 512] == 20
    assert found[two, 512] < found[one, 512]
    assert found[two, 16] > found[one, 16]
    assert max(found[lean, 512], found[paper, 512]) <= found[packed, 512]
    assert found[paper, 512] == 3  # 256 / (3 (32 + log2 513)), up
