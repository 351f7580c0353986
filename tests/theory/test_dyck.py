"""Bounded Dyck languages by a recurrent network and by two layers, and what each needs."""

from __future__ import annotations

import math

import pytest
import torch

from assay.models.causal import Causal
from assay.models.skeleton import Model
from assay.theory.claim import Change, Construction, Examined, strings
from assay.theory.constructions.dyck import DyckRnn, DyckTwoLayers
from assay.theory.subspaces import Space

from .cases import examine, feed_forward, mixer

SIZES = [(1, 1), (1, 5), (2, 1), (2, 2), (3, 3), (4, 4), (2, 8)]


def at(claim: Construction, length: int, change: Change | None = None) -> Examined:
    """On 200 random inputs of one length."""
    return examine(claim, length, 200, change)


# -- the recurrent network -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "depth"), SIZES)
def test_the_network_recognises(k: int, depth: int):
    result = DyckRnn(k, depth).check(40, inputs=400)
    assert result.holds
    assert result.margin == 1.0
    assert result.width == (2 * depth + 1) * math.ceil(1 + math.log2(k)) + 2


def test_its_size_does_not_depend_on_the_length():
    short, long = DyckRnn().build(2), DyckRnn().build(1000)
    assert all(torch.equal(a, b) for a, b in zip(short.parameters(), long.parameters(), strict=True))
    assert isinstance(long, Causal)
    assert long.state_floats(1000) == 12
    assert at(DyckRnn(), 1000).wrong == 0


def test_its_units_are_bits():
    claim = DyckRnn()
    model = claim.build(7)
    states, _ = model.blocks[0](model.embed(strings(4, 7)))
    bits, past = states[..., :-1], states[..., -1]
    assert set(bits.unique().tolist()) == {0.0, 1.0}
    assert past.max() == 2, "how many bits differed at the first mistake"
    assert claim.state_bits() == 11 + 2
    reached = states.flatten(0, 1).unique(dim=0)
    assert 8 <= len(reached) <= 2 ** claim.state_bits(), "as many as the minimal automaton has, or more"


def without(unit: str) -> Change:
    """One kind of unit never fires."""

    def change(model: Model) -> Model:
        part, rows = mixer(model, 0), DyckRnn().space().slices[unit]
        part.R[0, 0, rows] = 0.0
        part.project.weight[rows] = 0.0
        return model

    return change


@pytest.mark.parametrize("unit", DyckRnn().space().sizes)
def test_every_unit_is_needed(unit: str):
    assert at(DyckRnn(), 20, without(unit)).wrong


def test_a_stack_of_one_slot_fewer_is_another_language():
    class Shallow(DyckRnn):
        def build(self, length: int) -> Model:
            return DyckRnn(self.k, self.depth - 1).build(length)

    assert at(Shallow(2, 3), 20).wrong


# -- two layers ----------------------------------------------------------------------------------------------------


def test_two_layers_recognise():
    result = DyckTwoLayers().check(10, inputs=200)
    assert result.holds
    assert result.width == 12
    assert result.margin is not None
    assert result.margin > 0.9


@pytest.mark.parametrize("length", [50, 130, 256])
def test_longer_strings_too(length: int):
    assert at(DyckTwoLayers(), length).wrong == 0


def test_it_answers_every_prefix():
    claim, words = DyckTwoLayers(), strings(4, 7)
    said = claim.build(7)(words)[0].argmax(-1)
    assert torch.equal(said, claim.task(7).machine.answer(words))


@pytest.mark.parametrize("unit", range(6))
def test_every_check_is_needed(unit: int):
    def change(model: Model) -> Model:
        feed_forward(model, 0)[1].weight[:, unit] = 0.0
        return model

    assert not DyckTwoLayers().check(6, change=change, inputs=1).holds


@pytest.mark.parametrize("head", [0, 1])
def test_with_a_duller_head_it_fails(head: int):
    def change(model: Model) -> Model:
        part = mixer(model, 0)
        part.project.weight[head * part.dim : (head + 1) * part.dim] /= 8
        return model

    assert at(DyckTwoLayers(), 64, change).wrong


def test_one_mistake_among_more_than_n_tokens_may_go_unseen():
    class Scaled(DyckTwoLayers):
        def remember(self, model: Model, stream: Space, length: int) -> None:
            super().remember(model, stream, length // 8)

    assert at(Scaled(), 64).wrong


def test_in_half_precision_places_run_together():
    class Half(DyckTwoLayers):
        def build(self, length: int) -> Model:
            return super().build(length).bfloat16()

    assert at(Half(), 96).wrong


def test_beyond_4096_places_it_computes_in_float64():
    assert DyckTwoLayers().build(4096).read_out.weight.dtype == torch.float32
    assert DyckTwoLayers().build(4098).read_out.weight.dtype == torch.float64
