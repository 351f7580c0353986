"""Nearest neighbour by two layers: as published and repaired, and what each needs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.codes import trace_code
from assay.theory.constructions.neighbour import Neighbour, PublishedNeighbour, RepairedNeighbour, crowded

from .cases import mixer, scaled_queries

FORMS = [PublishedNeighbour, RepairedNeighbour]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("length", "margin"), [(2, 0.1), (3, 0.3), (24, 1e-3), (24, 1e-5)])
def test_both_forms_hold(form: type[Neighbour], length: int, margin: float):
    result = form(margin).check(length, inputs=200)
    assert result.holds
    assert result.margin is not None
    assert result.margin > 0.9


@pytest.mark.parametrize("form", FORMS)
def test_in_double_precision_the_margin_may_be_smaller(form: type[Neighbour]):
    class Doubled(nn.Module):
        def __init__(self, model: Model) -> None:
            super().__init__()
            self.model = model.double()

        def forward(self, x: Tensor) -> tuple[Tensor, object]:
            result: tuple[Tensor, object] = self.model(x.double())
            return result

    margin = form(1e-6).check(change=Doubled, inputs=200).margin
    assert margin is not None
    assert margin > 0.9


def test_the_width_of_the_repair_does_not_depend_on_the_margin():
    published, repaired = PublishedNeighbour(), RepairedNeighbour()
    assert [form.build(24).read_out.in_features for form in (published, repaired)] == [60, 36]
    assert [form.width_at(24, 1e-3) for form in (published, repaired)] == [60, 36]
    assert published.width_at(10**10, 0.1) > 8_000_000
    assert published.width_at(10**10, 0.01) > 64 * published.width_at(10**10, 0.1)
    assert {repaired.width_at(8192, margin) for margin in (0.1, 1e-6)} == {84}


def test_the_hard_inputs_use_up_the_margin():
    form = RepairedNeighbour(margin=0.05)
    drawn = form.task(9).inputs(torch.full((50,), 17), Rng.seeded(1).rows(50))
    hard = crowded(drawn, 8, 0.05)
    points = hard[:, ::2, :8].double()
    nearness = (points[:, :-1] * points[:, -1:]).sum(-1).sort(1, descending=True).values
    torch.testing.assert_close(nearness[:, :1] - nearness[:, 1:], torch.full((50, 7), 0.05).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(points.norm(dim=-1), torch.ones(50, 9).double(), atol=1e-6, rtol=0)
    assert torch.equal(form.task(9).solve(hard), form.task(9).solve(drawn)), "the nearest stays the nearest"
    assert (hard[:, 1::2, -1].sum(1) % 6 == 1).all(), "one label against seven"


# -- what breaks them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "layer"), [(form, layer) for form in FORMS for layer in (0, 1)])
def test_with_duller_attention_it_fails(form: type[Neighbour], layer: int):
    assert not form().check(change=scaled_queries(layer, 1 / 4), inputs=200).holds


@pytest.mark.parametrize("form", FORMS)
def test_points_nearer_than_the_margin_are_too_near(form: type[Neighbour]):
    class Unfair(form):  # type: ignore[misc, valid-type]
        def draw(self, length: int, rows: Rng) -> Tensor:
            drawn: Tensor = super().draw(length, rows)
            return crowded(drawn, self.dimension, self.margin / 8)

    assert not Unfair().check(inputs=200).holds


class Coded(PublishedNeighbour):
    """The published form with a code that is narrower, and has inner products far above gamma / 100."""

    def vectors(self, length: int) -> Tensor:
        code = trace_code(length, gamma=0.5, signed=True)
        assert self.margin / 100 < code.gamma <= 0.5
        vectors: Tensor = code.signs / code.k**0.5
        return vectors

    def width_at(self, length: int, margin: float) -> int:
        return self.dimension + 2 * self.vectors(length).shape[1] + 4


def test_the_published_form_needs_small_inner_products_and_the_repair_does_not():
    assert not Coded(margin=0.05).check(inputs=200).holds
    assert RepairedNeighbour(margin=0.05).check(inputs=200).holds


def test_a_query_that_may_find_itself_finds_itself():
    def unmasked(model: Model) -> Model:
        weight = mixer(model, 0).project.weight
        weight[8 : 8 + 24] = 0.0  # the -4 T(k) of the query
        return model

    assert not PublishedNeighbour().check(change=unmasked, inputs=200).holds
