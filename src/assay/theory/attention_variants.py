"""Constructions with another attention in place of softmax: hard, average-hard, sigmoid or linear."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from assay.errors import BadInput, suggestion
from assay.models.attention import WEIGHTINGS, AttentionLayer, Weighting, softmax
from assay.rng import Rng
from assay.theory.claim import Construction, Examined, Machine

SCALES = tuple(2.0**power for power in range(-4, 21))
OFFSETS = (0.0, 0.5, 0.625, 0.75, 0.875, 0.9375)  # for sigmoid, as shares of the largest score of the layer
INPUTS = 256
AnyModule = TypeVar("AnyModule", bound=nn.Module)


def survive(claim: Construction, length: int, variant: str, inputs: int = INPUTS) -> dict[str, Any]:
    """Whether a construction stays correct with another attention, with which scale of its scores, and the reason.

    Scores s become c (s - b). `scale` is the least c of SCALES that keeps every input right; hard attention depends
    on the order of the scores alone and is tried with c = 1. Only sigmoid has a b: `offset` is the least of OFFSETS.
    """
    if variant not in WEIGHTINGS:
        raise BadInput(f"unknown attention '{variant}'{suggestion(variant, WEIGHTINGS)}")
    machine, fewest = claim.machine(length), inputs
    layers = scores(claim, machine, inputs)
    row = {"claim": claim.name, "length": length, "variant": variant}
    scales = (1.0,) if "hard" in variant else SCALES
    for scale, offset in product(scales, OFFSETS if variant == "sigmoid" else OFFSETS[:1]):
        weightings = [weighing(variant, scale, offset * layer.largest) for layer in layers]
        wrong = _examine(claim, machine, inputs, weightings).wrong
        if not wrong:
            return row | {"scale": scale, "offset": offset, "why": _why(variant, layers)}
        fewest = min(fewest, wrong)
    return row | {"scale": None, "offset": None, "why": f"{_why_not(variant, layers)}; at best {fewest} wrong"}


def table(claims: Iterable[Construction], length: int, inputs: int = INPUTS) -> list[dict[str, Any]]:
    """A row for every construction with every attention."""
    return [survive(claim, length, variant, inputs) for claim in claims for variant in WEIGHTINGS]


# -- replacing softmax ---------------------------------------------------------------------------------------------


def weighing(variant: str, scale: float = 1.0, offset: float = 0.0) -> Weighting:
    """Attention weights from scores c (s - b), with the scale c and the offset b."""
    weigh = WEIGHTINGS[variant]
    return lambda scores: weigh(scale * (scores - offset))


def exchanged(model: AnyModule, weightings: Sequence[Weighting]) -> AnyModule:
    """A copy of a model with one other weighting for each of its layers of attention, in order."""
    changed = copy.deepcopy(model)
    for layer, weighting in zip(attention_layers(changed), weightings, strict=True):
        layer.weighting = weighting
    return changed


def attention_layers(model: nn.Module) -> list[AttentionLayer]:
    return [layer for layer in model.modules() if isinstance(layer, AttentionLayer)]


def _examine(claim: Construction, machine: Machine, inputs: int, weightings: Sequence[Weighting]) -> Examined:
    changed = machine._replace(module=exchanged(machine.module, weightings))
    return claim.examine_random(changed, Rng.seeded(0, "attention"), inputs)


# -- reasons -------------------------------------------------------------------------------------------------------


class Scores(NamedTuple):
    """The attention scores of a layer at the last position, over some inputs."""

    smallest: float  # the smallest and the largest value of the inputs' largest scores
    largest: float
    equal: int  # the most positions that share the largest score
    others: float  # the sum of the absolute values of the other scores, as a multiple of the largest


def scores(claim: Construction, machine: Machine, inputs: int = INPUTS) -> list[Scores]:
    """The scores of each layer of attention, with softmax."""
    layers = attention_layers(machine.module)
    if not layers:
        raise BadInput(f"{claim.name} has no layer of attention to exchange")
    last_scores: list[Tensor] = [torch.empty(0)] * len(layers)

    def recording(layer: int) -> Weighting:
        def weigh(scores: Tensor) -> Tensor:
            last_scores[layer] = scores[:, :, -1]
            return softmax(scores)

        return weigh

    _examine(claim, machine, inputs, [recording(layer) for layer in range(len(layers))])
    return [_summary(last) for last in last_scores]


def _summary(last: Tensor) -> Scores:
    last = last.where(last > -torch.inf, 0.0)
    top = last.amax(-1, keepdim=True)
    others = (last.abs().sum(-1) - top[..., 0].abs()) / top[..., 0].abs().clamp(min=1e-9)
    return Scores(float(top.min()), float(top.max()), int((last == top).sum(-1).max()), float(others.max()))


def _why(variant: str, layers: Sequence[Scores]) -> str:
    if variant == "hard":
        return "one position at a time is enough"
    if variant == "average-hard" and _mean(layers):
        return "equal scores keep their mean"
    if variant == "sigmoid":
        return "an offset separates the position looked for from all others"
    if variant == "linear":
        return "the other positions' scores cancel or vanish"
    return "the position looked for has the largest score"


def _why_not(variant: str, layers: Sequence[Scores]) -> str:
    mean = _mean(layers)
    if variant == "hard" and mean:
        return f"layer {mean} takes a mean over equal scores, of which one is picked"
    if variant == "sigmoid":
        layer = max(layers, key=lambda layer: layer.largest - layer.smallest)
        return f"no offset fits: the largest score lies between {layer.smallest:.6g} and {layer.largest:.6g}"
    if variant == "linear":
        if mean:
            return f"layer {mean} takes a mean by scores of 0, which weigh nothing"
        most = max(layer.others for layer in layers)
        return f"nothing is normalised: the other scores add up to {most:.3g} times the largest"
    return "the answer needs the weights that softmax gives"


def _mean(layers: Sequence[Scores]) -> int:
    """The number of the first layer in which several positions share the largest score; 0 if there is none."""
    return next((number for number, layer in enumerate(layers, 1) if layer.equal > 1), 0)
