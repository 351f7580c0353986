"""Word problems by products of reflections."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.groups import S5, Cyclic, Group
from assay.theory.constructions.groups import (
    A5Reflections,
    CyclicReflections,
    Reflections,
    S3Reflections,
    as_permutations,
    transpositions,
)

from .cases import examine, mixer

KLEIN = Group(table=((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0)))
CLAIMS = (Reflections(), A5Reflections(), S3Reflections(), CyclicReflections(), Reflections(Cyclic(n=4)),
          Reflections(KLEIN))  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.group.kind)
def test_right_at_a_length_of_five_hundred(claim: Reflections):
    result = claim.check(500, inputs=32)
    assert result.holds
    n = len(as_permutations(claim.group)[0])
    assert result.width == n**2 + 1
    assert result.margin == pytest.approx(1, abs=1e-4)


def test_transpositions_make_up_the_permutation():
    for permutation in as_permutations(S5()):
        P = torch.eye(5)
        for i, j in transpositions(permutation):
            order = list(range(5))
            order[i], order[j] = j, i
            P = P @ torch.eye(5)[order]
        assert torch.equal(P, torch.eye(5)[list(permutation)])


def state_after(claim: Reflections, length: int) -> torch.Tensor:
    words = Rng.seeded(3).rows(16).integers(length, len(claim.group.symbols)) + 1
    _, (_, (state,)) = claim.build(length)(words)
    W: torch.Tensor = state
    return W


class OneCoordinate(Reflections):
    copies = 1


def test_with_two_coordinates_for_each_thing_the_state_is_whole():
    whole = state_after(Reflections(), 2000)
    assert torch.equal(whole, whole.round())
    rounded = state_after(OneCoordinate(), 2000)
    assert 0 < (rounded - rounded.round()).abs().max() < 1e-2
    assert 0.99 < examine(OneCoordinate(), 2000, 16).margin < 0.9999


class Projections(Reflections):
    """beta up to 1: what a write takes out of the state is lost."""

    reach = 1


def one_exchange_missing(model: Model) -> Model:
    mixer(model, 0).key.weight.unflatten(0, (4, -1))[3] = 0
    return model


def test_wrong_without_reflections_or_without_one_of_them():
    assert examine(Projections(), 20, 64).wrong > 0
    assert examine(Reflections(), 20, 64, one_exchange_missing).wrong > 0


def test_only_groups():
    with pytest.raises(BadInput, match="parity is not the word problem of a group"):
        Reflections("parity")
