"""Nearest neighbour by two layers: as published and repaired, and what each needs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.codes import scattered_code
from assay.theory.constructions.neighbour import Neighbour, PublishedNeighbour, RepairedNeighbour, crowded

from .cases import examine, mixer, scaled_queries

FORMS = [PublishedNeighbour, RepairedNeighbour]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("length", "margin"), [(2, 0.1), (3, 0.3), (24, 1e-3), (24, 1e-5)])
def test_both_forms_hold(form: type[Neighbour], length: int, margin: float):
    seen = examine(form(margin), length, 200)
    assert seen.wrong == 0
    assert seen.margin > 0.9


@pytest.mark.parametrize("form", FORMS)
def test_in_double_precision_the_margin_may_be_smaller(form: type[Neighbour]):
    class Doubled(nn.Module):
        def __init__(self, model: Model) -> None:
            super().__init__()
            self.model = model.double()

        def forward(self, x: Tensor) -> tuple[Tensor, object]:
            result: tuple[Tensor, object] = self.model(x.double())
            return result

    assert examine(form(1e-6), 24, 200, Doubled).margin > 0.9


def test_the_width_of_the_repair_does_not_depend_on_the_margin():
    published, repaired = PublishedNeighbour(), RepairedNeighbour()
    assert [form.build(24).read_out.in_features for form in (published, repaired)] == [60, 36]
    assert [form.width_at(24, 1e-3) for form in (published, repaired)] == [60, 36]
    assert published.width_at(10**8, 0.1) > 30_000
    assert published.width_at(10**8, 0.01) > 30 * published.width_at(10**8, 0.1)
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
    assert examine(form(), 24, 200, scaled_queries(layer, 1 / 4)).wrong


@pytest.mark.parametrize("form", FORMS)
def test_points_nearer_than_the_margin_are_too_near(form: type[Neighbour]):
    class Unfair(form):  # type: ignore[misc, valid-type]
        def draw(self, length: int, rows: Rng) -> Tensor:
            drawn: Tensor = super().draw(length, rows)
            return crowded(drawn, self.dimension, self.margin / 8)

    assert examine(Unfair(), 24, 200).wrong


class Nearer(PublishedNeighbour):
    """A code of 128 signs, with inner products of 1/8, in place of one with 1/16; the scale is as for 1/16."""

    def size(self, length: int, margin: float) -> int:
        return 128

    def vectors(self, length: int) -> Tensor:
        vectors: Tensor = scattered_code(length, 1 / 8, Rng.seeded(0)).signs / 128**0.5
        return vectors

    def largest_product(self, length: int) -> float:
        assert super().largest_product(length) == pytest.approx(1 / 8)
        return 1 / 16


def test_the_published_form_needs_small_inner_products():
    published = PublishedNeighbour(0.3, 8, "nearly-orthogonal")
    assert published.largest_product(24) == pytest.approx(1 / 16)
    seen = examine(published, 24, 16)
    assert (seen.wrong, seen.margin > 0.9) == (0, True)
    assert examine(Nearer(0.3), 24, 200).wrong > 5


def test_the_check_runs_nearly_orthogonal_positions_too():
    class Published(PublishedNeighbour):
        def vectors(self, length: int) -> Tensor:
            vectors = super().vectors(length)
            return vectors.roll(1, 0) if vectors.shape[1] == length else vectors[[0] * length]

    assert PublishedNeighbour().check(6, inputs=50).inputs == 50 + 8
    assert examine(Published(), 6, 50).wrong == 0
    assert not Published().check(6, inputs=50).holds, "with one vector for all positions, but not if they are one-hot"


def test_more_points_than_coordinates_have_nearly_orthogonal_vectors():
    form = PublishedNeighbour(0.3)
    assert [form.vectors(n).shape[1] for n in (500, 520)] == [500, 512]
    assert form.largest_product(520) <= 0.3 / 4.8 + 1e-6
    with pytest.raises(BadInput, match="did you mean 'nearly-orthogonal'"):
        PublishedNeighbour(0.3, 8, "near-orthogonal")  # type: ignore[arg-type]


def test_a_query_that_may_find_itself_finds_itself():
    def unmasked(model: Model) -> Model:
        weight = mixer(model, 0).project.weight
        weight[8 : 8 + 24] = 0.0  # the -4 T(k) of the query
        return model

    assert examine(PublishedNeighbour(), 24, 200, unmasked).wrong
