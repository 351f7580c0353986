"""Associative recall by two layers: every string, every key bound before; and what it needs."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.codes import Code, binary
from assay.theory.constructions import recall
from assay.theory.constructions.recall import EXACT, MultiQuery, PairRecall, RecallByTwo

from .cases import examine_inputs, mixer, positions, scaled_queries

BOTH = [PairRecall, MultiQuery]


@pytest.mark.parametrize(("kind", "length"), [(PairRecall, 1), (PairRecall, 17), (MultiQuery, 4), (MultiQuery, 36)])
@pytest.mark.parametrize("vocabulary", [36, 256])
def test_every_key_gets_its_value(kind: type[RecallByTwo], length: int, vocabulary: int):
    result = kind(vocabulary).check(length, inputs=200)
    assert result.holds
    assert result.margin is not None
    assert result.margin > 0.9


def test_width_and_lengths_are_as_stated():
    assert PairRecall().build(20).read_out.in_features == 3 * 7 + 4 == MultiQuery().build(200).read_out.in_features
    with pytest.raises(BadInput, match="no such input"):
        PairRecall(vocabulary=8).check(4)


def test_random_inputs_ask_often_and_bind_again():
    kind = MultiQuery(vocabulary=36)
    inputs = kind.draw(36, Rng.seeded(0).rows(100))
    asked = kind.task(36).solve(inputs) >= 0
    assert asked.sum() > 500
    key = inputs.where(inputs <= 18, 0)
    bound = (key[:, :-1] > 0) & (inputs[:, 1:] > 18)
    assert (bound & asked[:, :-1]).any(), "a key that asks is bound to another value on the way"


# -- what breaks it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(("layer", "factor"), [(0, 1 / 6), (1, 1 / 40)])
def test_with_duller_attention_it_fails(kind: type[RecallByTwo], layer: int, factor: float):
    assert not kind().check(change=scaled_queries(layer, factor), inputs=200).holds


def test_of_two_bindings_the_first_is_found_by_its_place():
    class Timeless(MultiQuery):
        c = 0.0

    once, twice = torch.tensor([[1, 4, 2, 3, 1, 2, 2, 2]]), torch.tensor([[1, 4, 1, 3, 1, 2, 2, 2]])
    assert examine_inputs(Timeless(), 8, once).wrong == 0
    assert examine_inputs(Timeless(), 8, twice).wrong == 1
    assert examine_inputs(MultiQuery(), 8, twice).wrong == 0


def test_a_bit_fewer_confuses_keys(monkeypatch: pytest.MonkeyPatch):
    def fewer(count: int) -> Code:
        signs = binary(count).signs.clone()
        signs[:, -1] = 1.0
        return Code("one digit fewer", signs)

    monkeypatch.setattr(recall, "binary", fewer)
    assert not PairRecall().check(inputs=200).holds


def test_without_its_mask_a_key_passes_for_a_value():
    def unmasked(model: Model) -> Model:
        model.embed.weight[:, 1] = 0.0  # is_key, where there is one bit per key
        return model

    again = torch.tensor([[1, 1, 4, 1, 2, 2, 2, 2]])  # the second k0 stands behind a k0, as the value does
    assert examine_inputs(MultiQuery(), 8, again).wrong == 0
    assert examine_inputs(MultiQuery(), 8, again, unmasked).wrong == 1


def weight_of_the_previous(length: int, dtype: torch.dtype) -> float:
    """The least that layer 1 gives to the token before, at the last 200 places."""
    model = MultiQuery().build(length).to(dtype)
    part = mixer(model, 0)
    queries, keys, _ = part.project(positions(model)).chunk(3, -1)
    scores = queries[-200:] @ keys.T * part.dim**-0.5
    future = torch.ones(200, length).triu(length - 199).bool()
    return float(scores.masked_fill(future, -torch.inf).softmax(-1).diagonal(length - 201).min())


def test_float32_tells_4096_places_apart_and_not_twice_as_many():
    assert weight_of_the_previous(EXACT, torch.float32) > 0.9
    assert weight_of_the_previous(2 * EXACT, torch.float32) < 0.6
    assert weight_of_the_previous(2 * EXACT, torch.float64) > 0.9
    assert MultiQuery().build(EXACT).read_out.weight.dtype == torch.float32
    assert MultiQuery().build(EXACT + 4).read_out.weight.dtype == torch.float64
