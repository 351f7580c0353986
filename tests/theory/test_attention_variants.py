"""Weightings by their equations, and which constructions survive them."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.func import grad, vmap

from assay.errors import BadInput
from assay.models import attention, named_model
from assay.models.attention import TRAINED, WEIGHTINGS, Attention, AttentionLayer, Weighting
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.attention_variants import exchanged, survive, table, weighing
from assay.theory.codes import Code, trace_code
from assay.theory.constructions.equality import EqualityTwoLayers
from assay.theory.constructions.index_lookup import BinaryLookup, CodedLookup, Lookup, QuadraticLookup, TraceLookup
from assay.theory.constructions.parity import ElmanParity

SCORES = torch.tensor([[[[1.0, -math.inf, -math.inf], [2.0, 2.0, -math.inf], [0.0, 3.0, -1.0]]]])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("hard", [[1, 0, 0], [1, 0, 0], [0, 1, 0]]),
        ("average-hard", [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]]),
        ("linear", [[1, 0, 0], [2, 2, 0], [0, 3, -1]]),
        ("sigmoid", [[0.7310586, 0, 0], [0.8807971, 0.8807971, 0], [0.5, 0.9525741, 0.2689414]]),
        ("softmax", [[1, 0, 0], [0.5, 0.5, 0], [0.0466126, 0.9362396, 0.0171478]]),
    ],
)
def test_weightings(name: str, wanted: list[list[float]]):
    torch.testing.assert_close(WEIGHTINGS[name](SCORES)[0, 0], torch.tensor(wanted, dtype=torch.float32))


def transformer() -> Model:
    model = named_model("transformer", width=8, heads=2).build(3, 0, 3, Rng.seeded(0))
    assert isinstance(model, Model)
    return model


def test_softmax_is_the_default_and_no_part_of_a_description():
    model = transformer()
    layers = [layer for layer in model.modules() if isinstance(layer, AttentionLayer)]
    assert [layer.weighting for layer in layers] == [None] * 2
    assert set(Attention().plain()) == {"kind", "version", "heads", "bias", "rotary"}
    x = torch.tensor([[1, 2, 0, 1]])
    hard = exchanged(model, [attention.hard] * 2)
    assert layers[0].weighting is None
    assert not torch.equal(hard(x)[0], model(x)[0])
    assert torch.equal(exchanged(model, [attention.softmax] * 2)(x)[0], model(x)[0])


def gradient(weighting: Weighting, scores: torch.Tensor) -> torch.Tensor:
    """That of a weighted sum of the values 0, 1, 2, in each of several slots."""
    values = torch.arange(3, dtype=scores.dtype)
    return vmap(grad(lambda slot: (weighting(slot) * values).sum()))(scores)


@pytest.mark.parametrize("name", TRAINED)
def test_weightings_train(name: str):
    """Hard weightings have the gradient of softmax, the others their own; future positions have none."""
    weighting = TRAINED[name] or attention.softmax
    scores = SCORES.double()[None].repeat(2, 1, 1, 1, 1)
    found = gradient(weighting, scores)
    assert found.isfinite().all()
    assert not found[scores == -math.inf].any()
    if "hard" in name:
        torch.testing.assert_close(found, gradient(attention.softmax, scores))
    else:
        free = torch.randn(1, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        assert torch.autograd.gradcheck(weighting, free.requires_grad_())
    described = named_model("transformer", width=8, heads=2, layers=1, weighting=name).build(3, 0, 3, Rng.seeded(0))
    (layer,) = (layer for layer in described.modules() if isinstance(layer, AttentionLayer))
    assert layer.weighting is TRAINED[name]


def test_a_trained_sigmoid_weighs_equal_scores_like_softmax():
    weights = attention.shifted_sigmoid(torch.zeros(1, 1, 3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -math.inf))
    torch.testing.assert_close(weights[0, 0], torch.tensor([[1 / 2, 0, 0], [1 / 3, 1 / 3, 0], [1 / 4, 1 / 4, 1 / 4]]))


@pytest.mark.parametrize("name", ["softmax", "average-hard"])
def test_a_machine_compiles(name: str):
    changed, x = exchanged(transformer(), [WEIGHTINGS[name]] * 2), torch.tensor([[1, 2, 0, 1]])
    torch.testing.assert_close(torch.compile(changed, backend="eager", fullgraph=True)(x)[0], changed(x)[0])


@pytest.mark.parametrize(
    ("lookup", "wanted"),
    [
        (TraceLookup, {"softmax", "hard", "average-hard", "sigmoid"}),
        (BinaryLookup, {"softmax", "hard", "average-hard", "sigmoid"}),
        (QuadraticLookup, {"softmax", "hard", "average-hard"}),  # its largest score is p^2, so no offset fits
    ],
)
def test_which_lookups_survive(lookup: type[Lookup], wanted: set[str]):
    rows = table([lookup()], 32, inputs=16)
    assert {row["variant"] for row in rows if row["scale"] is not None} == wanted
    assert all(row["why"] for row in rows)


@pytest.mark.parametrize("variant", ["softmax", "sigmoid"])
def test_the_scale_reported_is_the_least(variant: str):
    found = survive(TraceLookup(), 64, variant)
    assert found["scale"] is not None
    shift = found["offset"] * trace_code(64).scale(64, eps=1 / 8)  # the largest score is eta
    for scale, holds in ((found["scale"], True), (found["scale"] / 2, False)):
        change = partial(exchanged, weightings=[weighing(variant, scale, shift)])
        claim = TraceLookup()
        seen = claim.examine_random(claim.machine(64, change), Rng.seeded(0, "attention"), 256)
        assert (seen.wrong == 0) == holds


class Orthogonal(CodedLookup):
    """Positions without any likeness, in as many dimensions as there are of them."""

    def code(self, length: int) -> Code:
        return Code("one-hot", length**0.5 * torch.eye(length))


def test_linear_attention_needs_orthogonal_positions():
    assert survive(Orthogonal(), 16, "linear", inputs=64)["scale"] is not None
    broken = survive(BinaryLookup(), 16, "linear", inputs=64)
    assert broken["scale"] is None
    assert "nothing is normalised" in broken["why"]


def test_equality_takes_a_mean():
    found = {row["variant"]: row for row in table([EqualityTwoLayers()], 16, inputs=200)}
    assert found["hard"]["scale"] is None
    assert "layer 2 takes a mean" in found["hard"]["why"]
    assert found["average-hard"]["scale"] == 1.0
    assert found["linear"]["scale"] is None


def test_bad_input():
    with pytest.raises(BadInput, match="did you mean 'softmax'"):
        survive(TraceLookup(), 8, "sofmax")
    with pytest.raises(BadInput, match="no layer of attention"):
        survive(ElmanParity(), 8, "hard")
