"""Equality by two layers: the machine holds, and each part that the proof needs is needed."""

from __future__ import annotations

import pytest
import torch

from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.equality import EqualityRandom
from assay.theory.claim import Change, strings
from assay.theory.codes import Code
from assay.theory.constructions.equality import EqualityTwoLayers


@pytest.mark.parametrize("length", [2, 10, 100])
def test_it_holds(length: int):
    verdict = EqualityTwoLayers().verify(length, inputs=200)
    assert verdict.holds
    assert verdict.margin is not None
    assert verdict.margin > 0.99


def test_it_holds_at_the_largest_length_in_the_stated_width():
    claim = EqualityTwoLayers()
    seen = claim.examine_random(1024, Rng.seeded(1), 20, None)
    assert seen.wrong == 0
    assert claim.build(1024).read_out.in_features == 2 * 32 + 4


def test_all_pairs_of_length_10():
    x, y = strings(2, 10).chunk(2, dim=1)
    pairs = torch.cat([x, torch.full((len(x), 1), 3), y], dim=1)
    seen = EqualityTwoLayers().examine(10, iter([pairs]))
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
    return claim.examine_random(length, Rng.seeded(2), 500, change).wrong


@pytest.mark.parametrize("length", [8, 64])
def test_with_queries_halved_it_fails(length: int):
    def halved(model: Model) -> Model:
        queries, _, _ = model.blocks[0].mixer.project.weight.chunk(3)
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
        y = model.positions.table[33:, -32:]
        y.copy_(y.roll(1, dims=0))
        return model

    assert wrong(EqualityTwoLayers(), 64, one_off)


def test_one_difference_must_suffice():
    def two_are_needed(model: Model) -> Model:
        model.blocks[1].ff[0].bias[:2] -= 1
        return model

    assert wrong(EqualityTwoLayers(), 64, two_are_needed)


def test_the_mean_must_be_scaled_by_the_number_of_tokens():
    def too_little(model: Model) -> Model:
        model.blocks[1].ff[0].weight[:2] *= 0.45
        return model

    assert wrong(EqualityTwoLayers(), 64, too_little)


def test_a_missing_mark_must_count_as_a_difference():
    def counts_as_less_than_none(model: Model) -> Model:
        model.blocks[0].ff[1].weight[:, 4] = 0
        return model

    claim = EqualityTwoLayers()
    assert claim.examine(4, iter([claim.every(4)]), counts_as_less_than_none).wrong
