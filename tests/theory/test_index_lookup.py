"""Index lookup: the machines hold, and each part that the proof needs is needed."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.theory.codes import Code, binary
from assay.theory.constructions.index_lookup import (
    BinaryLookup,
    Lookup,
    Pointers,
    QuadraticLookup,
    RandomLookup,
    TraceLookup,
)
from assay.theory.registry import named_claim

from .cases import feed_forward, scaled_queries

LOOKUPS = [TraceLookup, BinaryLookup, QuadraticLookup]


@pytest.mark.parametrize("alphabet", [2, 5, 16])
def test_a_lookup_has_an_alphabet(alphabet: int):
    lookup = named_claim("lookup-quadratic", alphabet=alphabet)
    assert isinstance(lookup, QuadraticLookup)
    assert lookup.task(20).alphabet == alphabet
    assert lookup.check(20, inputs=200).holds
    with pytest.raises(BadInput, match="no alphabet of 1 symbols"):
        named_claim("lookup-quadratic", alphabet=1)


@pytest.mark.parametrize("lookup", LOOKUPS)
@pytest.mark.parametrize("length", [5, 20, 130])
def test_every_lookup_holds(lookup: type[Lookup], length: int):
    result = lookup().check(length, inputs=600)
    assert result.holds
    assert result.inputs >= 18_048 + 600
    assert result.margin is not None
    assert result.margin > 0.5


@pytest.mark.parametrize(("lookup", "width"), list(zip(LOOKUPS, (70, 28, 10), strict=True)))
def test_64_symbols_and_2048_positions_in_the_stated_width(lookup: type[Lookup], width: int):
    assert lookup().build(2048).read_out.in_features == width


@pytest.mark.parametrize(
    ("lookup", "factor"), [(RandomLookup, 1 / 4), (TraceLookup, 1 / 2), (BinaryLookup, 1 / 4), (QuadraticLookup, 1 / 6)]
)
def test_with_duller_attention_it_fails(lookup: type[Lookup], factor: float):
    result = lookup().check(130, change=scaled_queries(0, factor), inputs=1200)
    assert not result.holds
    assert "wrong" in result.note


class Spoilt(TraceLookup):
    """The scale of the right code, with another code in its place."""

    def spoil(self, signs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def pointers(self, length: int, bits: int) -> Pointers:
        right, signs = super().pointers(length, bits), self.spoil(self.code(length).signs)
        return right._replace(indices=right.stream.vector(idx=signs), positions=right.stream.vector(pos=signs))


def test_a_code_with_larger_inner_products_fails_at_the_same_scale():
    class Confused(Spoilt):
        def spoil(self, signs: torch.Tensor) -> torch.Tensor:
            near = signs[: -(-len(signs) // 16)].repeat(16, 1)[: len(signs)]
            for copy, rows in enumerate(near.chunk(16)):
                rows[:, copy] *= -1  # inner products of 3/4 and more now, where 1/4 was promised
            return near

    assert not Confused().check(130, inputs=1200).holds


def test_one_binary_digit_fewer_confuses_positions():
    class Fewer(Spoilt):
        def code(self, length: int) -> Code:
            return binary(length)

        def spoil(self, signs: torch.Tensor) -> torch.Tensor:
            return torch.cat([signs[:, :-1], torch.ones(len(signs), 1)], dim=1)

    assert not Fewer().check(130, inputs=1200).holds


def test_the_rounding_is_needed_for_the_margin():
    def unrounded(model: Model) -> Model:
        for layer in feed_forward(model, 0):
            layer.weight.zero_()
            layer.bias.zero_()
        return model

    rounded, plain = TraceLookup().check(64, inputs=300), TraceLookup().check(64, change=unrounded, inputs=300)
    assert rounded.margin is not None
    assert plain.margin is not None
    assert rounded.margin > plain.margin


def test_inputs_are_checked_against_the_oracle_at_every_length():
    lookup = TraceLookup()
    inputs = lookup.every(3)
    assert len(inputs.unique(dim=0)) == len(inputs) == 8**3 * 3
    assert (lookup.task(3).solve(inputs)[:, -1] < 8).all(), "none is dead"
    assert torch.equal(inputs[:, -1].unique(), torch.tensor([9, 10, 11]))
