"""Reset Dyck-1 by erasure, and the linear Transformer as a recurrent network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.errors import BadInput
from assay.models.causal import Causal
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.claim import Examined, compared
from assay.theory.constructions.fast_weights import LinearTransformerIsRnn, ResetDyck, RoundedResetDyck, Shape

from .cases import examine, mixer


@pytest.mark.parametrize("claim", [ResetDyck(), RoundedResetDyck()])
def test_reset_dyck_up_to_the_length_that_it_states(claim: ResetDyck):
    result = claim.check(2894, inputs=32)
    assert result.holds
    assert result.margin == pytest.approx(1, abs=1e-3)
    assert result.width == 8
    with pytest.raises(BadInput, match="exact up to"):
        claim.check(2**23)


def mountain(height: int) -> Tensor:
    """Up to this depth and back, one more pair, and one bracket too many."""
    return torch.tensor([[1] * height + [2] * height + [1, 2, 2]])


def climbed(claim: ResetDyck, height: int, dtype: torch.dtype = torch.float32) -> Examined:
    word = mountain(height)
    return compared(claim.build(1).to(dtype)(word)[0], claim.task(1).solve(word))


class LargerBeta(ResetDyck):
    beta = 2.0**-12


def test_the_bound_follows_beta():
    """Exact up to the bound, and wrong at a few times that."""
    assert LargerBeta().exact_to == 63
    assert ResetDyck().exact_to == 2894
    for claim in (LargerBeta(), ResetDyck()):
        assert climbed(claim, int(claim.exact_to) // 2).wrong == 0
        assert climbed(claim, 2 * int(claim.exact_to)).wrong == 1


def test_rounding_repairs_the_count_and_exact_numbers_do_not():
    assert climbed(RoundedResetDyck(), 2**15).margin == 1
    assert climbed(RoundedResetDyck(), 2**15, dtype=torch.float64).wrong == 1


def forgetful(model: Model) -> Model:
    """A reset forgets the depth and not the mistake."""
    beta = mixer(model, 1).beta.weight
    beta[0, 3] = 0
    return model


def test_wrong_where_a_reset_does_not_reach_the_second_layer():
    assert examine(ResetDyck(), 50, 64, forgetful).wrong > 0


# -- the linear Transformer ----------------------------------------------------------------------------------------


def test_attention_and_the_fast_weight_are_the_same_in_double():
    result = LinearTransformerIsRnn().check(20)
    assert result.holds
    assert result.inputs == 7 * 3 * 2, "sizes, initialisations, inputs"
    assert float(result.note.split()[4]) < 1e-13, result.note


class Once(LinearTransformerIsRnn):
    seeds = 1


class InSingle(Once):
    dtype = torch.float32


class Noncausal(Once):
    """Attention that looks ahead as well."""

    def parallel(self, shape: Shape, rng: Rng) -> Model:
        model = super().parallel(shape, rng)
        for block in model.blocks:
            block.mixer = LooksAhead(block.mixer)  # type: ignore[arg-type]
        return model


class LooksAhead(Causal):
    def __init__(self, parallel: Causal) -> None:
        super().__init__()
        self.parallel = parallel

    def forward(self, x: Tensor, state: None = None) -> tuple[Tensor, None]:
        y, _ = self.parallel(x)
        return y[:, -1:].expand_as(y), None


class OneFeatureMap(Once):
    """Attention with elu(z) + 1, whatever the feature map of the recurrence is."""

    def parallel(self, shape: Shape, rng: Rng) -> Model:
        return super().parallel(shape._replace(features="elu"), rng)


@pytest.mark.parametrize("broken", [InSingle, Noncausal, OneFeatureMap])
def test_not_to_machine_precision_otherwise(broken: type[LinearTransformerIsRnn]):
    assert not broken().check(10).holds
