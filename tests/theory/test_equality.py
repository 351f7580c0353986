"""Equality by two layers and by one: the machines are right, and fail when a part of the proof is missing."""

from __future__ import annotations

import pytest
import torch

from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.equality import EqualityRandom
from assay.theory.claim import Change, strings
from assay.theory.codes import Code
from assay.theory.constructions.equality import EqualityOneLayer, EqualityTwoLayers, OneBitEach
from assay.theory.precision import least_fixed

from .cases import examine, examine_inputs, feed_forward, mixer, positions


@pytest.mark.parametrize("length", [2, 10, 100])
def test_it_holds(length: int):
    result = EqualityTwoLayers().check(length, inputs=200)
    assert result.holds
    assert result.margin is not None
    assert result.margin > 0.99


def test_it_holds_at_the_largest_length_in_the_stated_width():
    claim = EqualityTwoLayers()
    seen = examine(claim, 1024, 20)
    assert seen.wrong == 0
    assert claim.build(1024).read_out.in_features == 2 * 32 + 4


def test_all_pairs_of_length_10():
    x, y = strings(2, 10).chunk(2, dim=1)
    pairs = torch.cat([x, torch.full((len(x), 1), 3), y], dim=1)
    seen = examine_inputs(EqualityTwoLayers(), 10, pairs)
    assert (seen.inputs, seen.wrong) == (1024, 0)


def test_inputs_are_equal_unequal_by_one_symbol_by_many_and_out_of_shape():
    inputs = EqualityTwoLayers().draw(40, Rng.seeded(3).rows(1000))
    formed = ((inputs == 3) == (torch.arange(41) == 20)).all(1)
    differences = (inputs[:, :20] != inputs[:, 21:]).sum(1)[formed]
    counts = [(~formed).sum(), (differences == 0).sum(), (differences == 1).sum(), (differences > 5).sum()]
    assert min(int(count) for count in counts) > 50
    answers = EqualityRandom().solve(inputs)[:, -1]
    assert torch.equal(answers[formed] == 1, differences == 0)
    assert not answers[~formed].any()


# -- broken in one place -------------------------------------------------------------------------------------------


def wrong(claim: EqualityTwoLayers, length: int, change: Change | None = None) -> int:
    return examine(claim, length, 500, change).wrong


@pytest.mark.parametrize("length", [8, 64])
def test_with_queries_halved_it_fails(length: int):
    def halved(model: Model) -> Model:
        queries, _, _ = mixer(model, 0).project.weight.chunk(3)
        queries *= 0.5
        return model

    assert wrong(EqualityTwoLayers(), length, halved)


def test_a_code_with_larger_inner_products_fails_at_the_same_scale():
    class Confused(EqualityTwoLayers):
        def code(self, length: int) -> Code:
            """Neighbours differ in the sign of one coordinate, but the scale is one for the right code."""
            right = super().code(length)
            near = right.signs.clone()
            near[1::2] = near[::2][: len(near) // 2]
            near[1::2, 0] *= -1
            code = Code("near", near)
            vars(code)["gamma"] = right.gamma
            return code

    assert wrong(Confused(), 64)


def test_pointers_one_off_fail():
    def one_off(model: Model) -> Model:
        y = positions(model)[33:, -32:]
        y.copy_(y.roll(1, dims=0))
        return model

    assert wrong(EqualityTwoLayers(), 64, one_off)


def test_one_difference_must_suffice():
    def two_are_needed(model: Model) -> Model:
        feed_forward(model, 1)[0].bias[:2] -= 1
        return model

    assert wrong(EqualityTwoLayers(), 64, two_are_needed)


def test_the_mean_must_be_scaled_by_the_number_of_tokens():
    def too_little(model: Model) -> Model:
        feed_forward(model, 1)[0].weight[:2] *= 0.45
        return model

    assert wrong(EqualityTwoLayers(), 64, too_little)


def test_a_missing_mark_must_count_as_a_difference():
    def counts_as_less_than_none(model: Model) -> Model:
        feed_forward(model, 0)[1].weight[:, 4] = 0
        return model

    claim = EqualityTwoLayers()
    assert examine_inputs(claim, 4, claim.every(4), counts_as_less_than_none).wrong


# -- one layer -----------------------------------------------------------------------------------------------------


class Packed(EqualityOneLayer):
    """Any number of symbols in each number."""

    def __init__(self, packed: int) -> None:
        self.packed = packed  # type: ignore[misc]


@pytest.mark.parametrize("packed", [1, 3, 16])
@pytest.mark.parametrize("length", [10, 64])
def test_one_layer_holds(packed: int, length: int):
    result = Packed(packed).check(length, inputs=300)
    assert result.holds
    assert result.width == -(-length // 2 // packed) + 4
    assert result.margin is not None
    assert result.margin > 0.5


def test_numbers_of_float32_do_not_hold_24_symbols():
    assert not Packed(24).check(64, inputs=300).holds


def alike(model: Model) -> Model:
    """0 and 1 get the same attention."""
    model.embed.weight[2] = model.embed.weight[1]
    return model


def misplaced(model: Model) -> Model:
    """One place of y counts for another of x."""
    table = positions(model)
    table[[-1, -2]] = table[[-2, -1]]
    return model


def one_sided(model: Model) -> Model:
    """Differences below zero do not count."""
    inside = feed_forward(model, 0)[0].weight
    inside[len(inside) // 4 :] = 0
    return model


def formless(model: Model) -> Model:
    """A # counts for nothing."""
    model.embed.weight[3, -4] = 0
    return model


@pytest.mark.parametrize("broken", [alike, misplaced, one_sided, formless])
def test_one_layer_without_a_part_fails(broken: Change):
    assert not OneBitEach().check(10, change=broken, inputs=300).holds


def test_more_symbols_in_a_number_take_more_bits_and_less_width():
    few, many = (least_fixed(Packed(packed), 32, inputs=200) for packed in (1, 8))
    assert few is not None
    assert many is not None
    assert many.bits > few.bits
    assert width(Packed(8), 32) < width(Packed(1), 32)


def width(claim: EqualityOneLayer, length: int) -> int:
    return claim.build(length).read_out.in_features
