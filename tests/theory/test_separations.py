"""Linear and softmax Transformers of the same size: both claims hold, and each of their conditions is needed."""

from __future__ import annotations

import doctest

import pytest
import torch

from assay.errors import BadInput
from assay.models.linear_attention import LinearAttention
from assay.models.skeleton import Model, Stack
from assay.numbers import Fixed
from assay.rng import Rng
from assay.tasks.task import Task
from assay.theory import separations
from assay.theory.rounding import Rounded
from assay.theory.separations import Lead, LinearNotSoftmax, SoftmaxNotLinear


def test_docstrings():
    assert doctest.testmod(separations).failed == 0


# -- a sum and a mean ----------------------------------------------------------------------------------------------


class Short(LinearNotSoftmax):
    """With few random layers and words, for the tests."""

    layers = 10
    inputs = 4


def test_a_sum_counts_and_a_mean_does_not():
    result = Short().check(6 << 7)
    assert result.holds, result.note
    assert (result.width, result.bits, result.note) == (4, 7, "softmax tells at most 5 of 6 leads apart")
    assert [LinearNotSoftmax().precision(n) for n in (6 << 8, (6 << 9) - 2, 6 << 9)] == [8, 8, 9]


@pytest.mark.parametrize("length", [(6 << 7) - 2, (6 << 7) + 1])
def test_lengths_that_are_too_short_or_odd(length: int):
    with pytest.raises(BadInput, match="even, and at least 768"):
        LinearNotSoftmax().check(length)


def test_the_words_have_the_leads_and_stay_within_them():
    claim, task = LinearNotSoftmax(), Lead()
    words = claim.words(40)
    answers = task.solve(words)
    assert (words[:, -1] == 2).all()
    assert [task.answers[i] for i in answers[:, -1]] == ["-4", "-2", "0", "2", "4", "6"]
    drawn = task.inputs(torch.full((50,), 300), Rng.seeded(0).rows(50))
    answers = task.solve(drawn)
    assert (drawn[:, 0] == 1).all()
    assert set(answers.unique().tolist()) == set(range(13)), "every lead, and none beyond"


def test_the_outputs_of_a_layer_change_by_less_than_a_unit_and_nearly_by_one():
    claim = LinearNotSoftmax()
    spread = claim.confusion(claim.extreme_layer(Fixed(6, 1)), 6 << 8, Fixed(6, 1)).spread
    assert 0.8 < spread < 1


class Wider(Short):
    """A softmax layer with as many coordinates as there are pairs of neighbouring leads."""

    width = 5


class ManyLeads(Short):
    """The linear layer with more leads than its numbers have room for."""

    most = 80


class Decaying(Short):
    """A linear layer that adds a bit less than 1 for an a, and 1 for a b."""

    def linear(self, task: Task) -> Model:
        model = super().linear(task)
        table = model.embed.weight
        assert isinstance(table, torch.Tensor)
        table[2, 0] = 0.5
        return model


def test_a_softmax_layer_of_greater_width_tells_all_leads_apart():
    claim = Wider()
    assert claim.confusion(claim.best_layer(Fixed(6, 1)), 6 << 8, Fixed(6, 1)).classes == 6


def test_a_softmax_layer_tells_all_leads_apart_in_shorter_words():
    claim = LinearNotSoftmax()
    assert claim.confusion(claim.extreme_layer(Fixed(6, 1)), 64, Fixed(6, 1)).classes == 6


def test_a_linear_layer_that_adds_wrongly_is_refuted_by_its_states():
    assert "does not say" in Decaying().check(6 << 8).note


def test_a_linear_layer_whose_numbers_are_too_small_is_refuted_by_its_states():
    claim, task = ManyLeads(), Lead(most=80)
    assert claim.wrong_states(Rounded(claim.linear(task), Fixed(6, 1)), task)
    assert not claim.wrong_states(Rounded(claim.linear(task), Fixed(14, 1)), task)


# -- a cache and a state of fixed size -----------------------------------------------------------------------------


class Few(SoftmaxNotLinear):
    inputs = 200


def test_a_cache_finds_what_a_state_cannot_hold():
    result = Few().check(534)
    assert result.holds, result.note
    assert (result.width, result.bits) == (10, 32)
    assert result.note.startswith("linear: 3,200 bits a layer, 3,204 needed: too few up to L = 1;")


@pytest.mark.parametrize("length", [533, 2049])
def test_lengths_at_which_nothing_is_claimed(length: int):
    with pytest.raises(BadInput, match="534 to 2048"):
        SoftmaxNotLinear().check(length)


class ThreeLayers(Few):
    """A linear Transformer with more layers and so more bits."""

    def linear(self, length: int) -> Model:
        stack = Stack(name="linear", mixers=(LinearAttention(heads=1),) * 3, width=10, ff=4, norm="none")
        return stack.build(*self.softmax.task(length).shape, Rng.seeded(0))


def test_more_layers_have_bits_enough_and_are_larger():
    note = ThreeLayers().check(600).note
    assert "a state of 9,600 bits is large enough for 3,600" in note
    assert "different numbers of parameters" in note
