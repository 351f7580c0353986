"""Softmax attention (Vaswani et al. 2017), causal; its state is the growing cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.models.positions import linear_bias, rotate
from assay.rng import Rng

Scores = Float[Tensor, "batch heads time past"]  # -inf at future positions

# -- from scores to weights -------------------------------------------------------------------------------------------


def softmax(scores: Scores) -> Scores:
    return scores.softmax(-1)


def hard(scores: Scores) -> Scores:
    """All weight on the largest score; on the first of several equal ones."""
    return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores)


def average_hard(scores: Scores) -> Scores:
    """Equal weights on all scores that are exactly equal to the largest."""
    largest = (scores == scores.amax(-1, keepdim=True)).to(scores)
    return largest / largest.sum(-1, keepdim=True)


def sigmoid(scores: Scores) -> Scores:
    """The logistic function of each score: the weights do not sum to 1."""
    return scores.sigmoid()


def linear(scores: Scores) -> Scores:
    """The scores as weights."""
    return scores.masked_fill(scores == -torch.inf, 0.0)


Weighting = Callable[[Scores], Scores]
WEIGHTINGS: dict[str, Weighting] = {
    "softmax": softmax,
    "hard": hard,
    "average-hard": average_hard,
    "sigmoid": sigmoid,
    "linear": linear,
}

# -- the layer -----------------------------------------------------------------------------------------------------


class Attention(HeadedMixer):
    """Softmax attention; `rotary` rotates queries and keys by their positions, `alibi` lowers scores by distance."""

    kind: ClassVar[str] = "attention"
    added: ClassVar[tuple[str, ...]] = ("alibi",)
    bias: bool = False
    rotary: bool = False
    alibi: bool = False

    @property
    def rotates(self) -> bool:
        return self.rotary

    def build(self, width: int, rng: Rng) -> AttentionLayer:
        return AttentionLayer(self, width, rng)


class AttentionLayer(MixerLayer):
    """A `weighting` replaces softmax in a built model, to test whether a construction depends on it."""

    operator: ClassVar[str] = "attention"

    def __init__(self, description: Attention, width: int, rng: Rng) -> None:
        super().__init__()
        self.weighting: Weighting | None = None
        self.alibi = description.alibi
        self.heads, self.rotary, self.dim = description.heads, description.rotary, width // description.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=description.bias)
        self.out = initial.linear(rng.child("out"), width, width, bias=description.bias)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, 0, self.dim), self.zeros(batch, self.heads, 0, self.dim)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        past_k, past_v = state
        q, k, v = queries_keys_values(self.project(x), self.heads)
        past = past_k.shape[2]
        if self.rotary:
            positions = torch.arange(past, past + x.shape[1], device=x.device)
            q, k = rotate(q, positions), rotate(k, positions)
        if past:
            k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        return self.out(join_heads(self._attend(q, k, v, backend))), (k, v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, backend: ops.Backend) -> Tensor:
        if not self.alibi:
            if self.weighting is None:
                return ops.attention(q, k, v, backend=backend)
            return self.weighting(ops.causal_scores(q, k)) @ v
        bias = linear_bias(self.heads, torch.arange(k.shape[2], device=k.device), k.dtype)
        if self.weighting is None:
            return ops.biased_attention(q, k, v, bias.expand(len(k), -1, -1), backend=backend)
        distances = bias[:, None] - bias[:, -q.shape[2] :, None]
        return self.weighting(ops.causal_scores(q, k) + distances) @ v

    def state_floats(self, length: int) -> int:
        return 2 * length * self.heads * self.dim


def queries_keys_values(z: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of every head, from one projection z [batch, time, 3 width]."""
    if has_kernel("qkv", z):
        return ops.qkv(z, heads=heads)
    q, k, v = (split_heads(part, heads) for part in z.chunk(3, -1))
    return q, k, v
