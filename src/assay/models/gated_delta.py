"""Delta rules with decay: Gated DeltaNet, its products, Kimi Delta Attention, and the delta rule with two gates."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.models import initial
from assay.models.mixer import split_heads
from assay.models.switches import LowRank, SwitchedMixer
from assay.models.transition import Decay, Transition, TransitionLayer
from assay.rng import Rng


class GatedDelta(SwitchedMixer):
    """S' = (I - beta k k^T) alpha S + beta k v^T with one decay alpha per head, and beta in (0, `beta`).

    Gated DeltaNet (Yang et al. 2024a); with several `steps` per token, of which the first decays, Gated DeltaProduct
    (Siems et al. 2025). Without `decays`, alpha is 1: with output `norm`, the layer of DeltaNet (Yang et al. 2024b).
    """

    kind: ClassVar[str] = "gated-delta"
    added: ClassVar[tuple[str, ...]] = ("decays",)
    beta: Literal[1, 2] = 1
    steps: Annotated[int, Field(ge=1)] = 1
    decays: bool = True

    def build(self, width: int, rng: Rng) -> GatedDeltaLayer:
        return GatedDeltaLayer(self, width, rng)


class GatedDeltaLayer(TransitionLayer):
    def __init__(self, description: GatedDelta, width: int, rng: Rng) -> None:
        super().__init__(description, width, rng, description.steps)
        self.beta_range, self.decays = description.beta, description.decays
        self.beta = initial.linear(rng.child("beta"), width, self.steps * self.heads, bias=False)
        if self.decays:
            self.alpha = initial.linear(rng.child("alpha"), width, self.heads, bias=False)
            self.decay = Decay(rng.child("decay"), self.heads, 1)

    def transition(self, x: Tensor, k: Tensor, v: Tensor) -> Transition:
        beta = self.beta_range * self.split_writes(self.beta(x)).sigmoid()
        w = self.decay(self.alpha(x)) if self.decays else torch.ones_like(beta[:, :, :, 0])
        removed = torch.cat([w[:, :, :, None] * beta[:, :, :, :1], beta[:, :, :, 1:]], dim=3)  # of the decayed state
        return Transition(k, beta * v, w, -removed * k, k)


class ChannelDelta(SwitchedMixer):
    """S' = (I - k (e * k)^T) Diag(alpha) S + k (g * v)^T with a decay per key.

    With one gate e = g = beta in (0, `beta`): Kimi Delta Attention (2025). With `gates` = 2, e and g are vectors: the
    erase gate in (0, `beta`) per key and the write gate in (0, 1) per value of Gated DeltaNet-2 (2026).
    """

    kind: ClassVar[str] = "channel-delta"
    beta: Literal[1, 2] = 1
    gates: Literal[1, 2] = 1

    def build(self, width: int, rng: Rng) -> ChannelDeltaLayer:
        return ChannelDeltaLayer(self, width, rng)


class ChannelDeltaLayer(TransitionLayer):
    activation = "sigmoid"

    def __init__(self, description: ChannelDelta, width: int, rng: Rng) -> None:
        self.gates = description.gates
        super().__init__(description, width, rng)
        self.beta_range = description.beta
        gates = self.heads if self.gates == 1 else width
        self.erase = initial.linear(rng.child("erase"), width, gates, bias=False)
        self.write = initial.linear(rng.child("write"), width, width, bias=False) if self.gates == 2 else None
        self.alpha = LowRank(rng.child("alpha"), width, self.dim, width, bias=False)
        self.decay = Decay(rng.child("decay"), self.heads, self.dim)

    def gate_map(self, width: int, inner: int, rng: Rng) -> nn.Module:
        return LowRank(rng, width, width // self.heads, inner, bias=self.gates == 2)

    def transition(self, x: Tensor, k: Tensor, v: Tensor) -> Transition:
        erase = self.beta_range * split_heads(self.erase(x), self.heads)[..., None, :].sigmoid()
        write = erase if self.write is None else split_heads(self.write(x), self.heads)[..., None, :].sigmoid()
        w = self.decay(self.alpha(x))
        return Transition(k, write * v, w, -(erase * w[..., None, :]) * k, k)
