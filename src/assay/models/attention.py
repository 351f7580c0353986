"""Attention (Vaswani et al. 2017), causal, by softmax or another weighting; its state is a cache of keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
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
    """All weight on the largest score; on the first of several equal ones. It has the gradient of softmax."""
    return with_softmax_gradient(torch.zeros_like(scores).scatter(-1, scores.argmax(-1, keepdim=True), 1.0), scores)


def average_hard(scores: Scores) -> Scores:
    """Equal weights on all scores that are exactly equal to the largest. It has the gradient of softmax."""
    largest = (scores == scores.amax(-1, keepdim=True)).to(scores)
    return with_softmax_gradient(largest / largest.sum(-1, keepdim=True), scores)


def with_softmax_gradient(weights: Scores, scores: Scores) -> Scores:
    """The weights, whose own gradient is zero, with the gradient of softmax.

    A straight-through estimator (Bengio et al. 2013; with softmax as in Jang et al. 2017, without their noise).
    """
    soft = scores.softmax(-1)
    return weights.detach() + (soft - soft.detach())


def sigmoid(scores: Scores) -> Scores:
    """The logistic function of each score: the weights do not sum to 1."""
    return scores.sigmoid()


def linear(scores: Scores) -> Scores:
    """The scores as weights."""
    return scores.masked_fill(scores == -torch.inf, 0.0)


def shifted_sigmoid(scores: Scores) -> Scores:
    """The logistic function of each score less log n, with n positions up to the query (Ramapuram et al. 2024).

    So equal scores have weights of about 1 / n, as with softmax, which training at many lengths needs.
    """
    count = (scores > -torch.inf).sum(-1, keepdim=True)
    return (scores - count.to(scores).log()).sigmoid()


Weighting = Callable[[Scores], Scores]
WEIGHTINGS: dict[str, Weighting] = {
    "softmax": softmax,
    "hard": hard,
    "average-hard": average_hard,
    "sigmoid": sigmoid,
    "linear": linear,
}
TrainedWeighting = Literal["softmax", "hard", "average-hard", "sigmoid", "linear"]
TRAINED: dict[str, Weighting | None] = WEIGHTINGS | {"softmax": None, "sigmoid": shifted_sigmoid}  # None: the operator

# -- the layer -----------------------------------------------------------------------------------------------------


class Attention(HeadedMixer):
    """Attention; `rotary` rotates queries and keys by their positions, `alibi` lowers scores by distance.

    `weighting` turns scores into weights.
    """

    kind: ClassVar[str] = "attention"
    added: ClassVar[tuple[str, ...]] = ("alibi", "weighting")
    bias: bool = False
    rotary: bool = False
    alibi: bool = False
    weighting: TrainedWeighting = "softmax"

    @property
    def rotates(self) -> bool:
        return self.rotary

    def build(self, width: int, rng: Rng) -> AttentionLayer:
        return AttentionLayer(self, width, rng)


class AttentionLayer(MixerLayer):
    """Without a `weighting`, softmax. It can be replaced in a built model, to test or to see what depends on it."""

    operator: ClassVar[str] = "attention"

    def __init__(self, description: Attention, width: int, rng: Rng) -> None:
        super().__init__()
        self.weighting: Weighting | None = TRAINED[description.weighting]
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
