"""Linear attention with a decay per key that the token computes: GLA and HGRN-2."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from assay.models.mixer import split_heads
from assay.models.switches import LowRank, Output, SwitchedMixer
from assay.models.transition import Transition, TransitionLayer
from assay.rng import Rng

RANK, ROOT = 16, 16


class GatedLinearAttention(SwitchedMixer):
    """S' = Diag(alpha) S + k v^T with alpha = sigmoid(B A x + b)^(1/16), where B A has rank 16 (Yang et al. 2023)."""

    kind: ClassVar[str] = "gated-linear-attention"
    convolution: Annotated[int, Field(ge=0)] = 0
    unit: bool = False

    def build(self, width: int, rng: Rng) -> GatedLinearAttentionLayer:
        return GatedLinearAttentionLayer(self, width, rng)


class GatedLinearAttentionLayer(TransitionLayer):
    def __init__(self, description: GatedLinearAttention, width: int, rng: Rng) -> None:
        super().__init__(description, width, rng)
        self.alpha = LowRank(rng.child("alpha"), width, RANK, width)

    def transition(self, x: Tensor, k: Tensor, v: Tensor) -> Transition:
        w = split_heads(F.logsigmoid(self.alpha(x)) / ROOT, self.heads).exp()
        return Transition(k, v, w)


class Hgrn2(SwitchedMixer):
    """S' = Diag(f) S + (1 - f) v^T with f = l + (1 - l) sigmoid(W x), read by silu(q) (Qin et al. 2024).

    `lowest` is the lower bound l of the layer. The key is 1 - f, so it has neither a convolution nor length 1.
    """

    kind: ClassVar[str] = "hgrn-2"
    convolution: Literal[0] = 0
    unit: Literal[False] = False
    output: Output = "norm"
    lowest: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, width: int, rng: Rng) -> Hgrn2Layer:
        return Hgrn2Layer(self, width, rng)


class Hgrn2Layer(TransitionLayer):
    """The projection `key` is that of the gate f."""

    def __init__(self, description: Hgrn2, width: int, rng: Rng) -> None:
        super().__init__(description, width, rng)
        self.lowest = description.lowest

    def query_features(self, q: Tensor) -> Tensor:
        return F.silu(q)

    def transition(self, x: Tensor, k: Tensor, v: Tensor) -> Transition:
        share = 1 - self.lowest
        return Transition(share * torch.sigmoid(-k), v, self.lowest + share * torch.sigmoid(k[:, :, :, 0]))
