"""What the tests of constructions share: a check on random inputs alone, and the parts of a model to break."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from assay.models.skeleton import Model
from assay.rng import Rng
from assay.theory.claim import Change, Construction, Examined


def examine(claim: Construction, length: int, inputs: int, change: Change | None = None) -> Examined:
    """The machine on random inputs of one length."""
    return claim.examine_random(claim.machine(length, change), Rng.seeded(0), inputs)


def examine_inputs(claim: Construction, length: int, inputs: Tensor, change: Change | None = None) -> Examined:
    return claim.examine(claim.machine(length, change), [inputs])


def mixer(model: Model, layer: int) -> Any:
    return model.blocks[layer].mixer


def feed_forward(model: Model, layer: int) -> Any:
    return model.blocks[layer].ff


def positions(model: Model) -> Tensor:
    """The table of learned positions."""
    learned: Any = model.positions
    table: Tensor = learned.table
    return table


def scaled_queries(layer: int, factor: float) -> Change:
    """Attention with its logits scaled: with a factor below 1 it spreads."""

    def change(model: Model) -> Model:
        attention = mixer(model, layer)
        attention.project.weight[: attention.out.out_features] *= factor
        return model

    return change
