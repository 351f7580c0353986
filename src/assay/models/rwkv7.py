"""RWKV-7's mixer (Peng et al. 2025): a decay per key, and a removal along another key than the write."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.features import features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.models.switches import LowRank, Output
from assay.rng import Rng

RANK = 32
MIXED = ("r", "w", "k", "v", "a", "g")  # what is computed from a mixture of this token and the last


class Rwkv7(HeadedMixer):
    """S' = (Diag(w) - (a * kk) kk^T) S + k v^T with w = exp(-sigmoid(.) / sqrt(e)), unit kk, a in (0, 1), k = kept key.

    `shift`: every projection sees a mixture of this input and the one before. `output`: `plain`; `norm`, a norm of
    every head; `gated`, (norm(o) + (r . u * k) v) * g with a trained u.
    """

    kind: ClassVar[str] = "rwkv-7"
    shift: bool = True
    output: Output = "gated"

    def build(self, width: int, rng: Rng) -> Rwkv7Layer:
        return Rwkv7Layer(self, width, rng)


class Rwkv7Layer(MixerLayer):
    operator: ClassVar[str] = "dplr"

    def __init__(self, description: Rwkv7, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.shift, self.output = description.heads, description.shift, description.output
        self.dim = width // self.heads
        parts = MIXED if self.output == "gated" else MIXED[:-1]
        if self.shift:
            self.mixture = nn.Parameter(
                rng.child("mixture").uniform(len(parts) * width).view(len(parts), width).float()
            )
        self.receptance, self.key, self.value, self.out = (
            initial.linear(rng.child(name), width, width, bias=False) for name in ("r", "k", "v", "out")
        )
        self.decay = LowRank(rng.child("decay"), width, RANK, width)
        self.decay.up.bias = nn.Parameter(6 * rng.child("decay_bias").uniform(width).float() - 5.5)
        self.rate = LowRank(rng.child("rate"), width, RANK, width)
        self.removed, self.kept = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        if self.output != "plain":
            self.head_norm = nn.GroupNorm(self.heads, width, eps=1e-5 * self.dim)
        if self.output == "gated":
            self.gate = LowRank(rng.child("gate"), width, RANK, width, bias=False)
            self.bonus = initial.uniform(rng.child("bonus"), self.heads, self.dim, bound=self.dim**-0.5)

    def initial_state(self, batch: int) -> State:
        S = self.zeros(batch, self.heads, self.dim, self.dim)
        return (S, self.zeros(batch, self.heads * self.dim)) if self.shift else (S,)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        S, *last = state
        x_r, x_w, x_k, x_v, x_a, *x_g = self._shifted(x, *last)
        r, k, v = (split_heads(z, self.heads) for z in (self.receptance(x_r), self.key(x_k), self.value(x_v)))
        w = torch.exp(-math.exp(-0.5) * self.decay.up(self.decay.down(x_w).tanh()).sigmoid())
        a = split_heads(self.rate(x_a).sigmoid(), self.heads)
        removed, kept = (z.view(self.heads, 1, self.dim) for z in (self.removed, self.kept))
        unit = features("unit", k * removed)
        k = k * (1 + (a - 1) * kept)
        k_n, v_n, a_n, b_n = (z[:, :, :, None] for z in (k, v, -unit, a * unit))
        o, S = ops.dplr(r, k_n, v_n, split_heads(w, self.heads), a_n, b_n, S, backend=backend)
        y = join_heads(o)
        if self.output != "plain":
            y = self.head_norm(y.flatten(0, 1)).view(y.shape)
        if self.output == "gated":
            y = y + join_heads((r * k * self.bonus[:, None]).sum(-1, keepdim=True) * v)
            y = y * self.gate.up(self.gate.down(x_g[0]).sigmoid())
        return self.out(y), (S, x[:, -1]) if self.shift else (S,)

    def _shifted(self, x: Tensor, last: Tensor | None = None) -> tuple[Tensor, ...]:
        """The inputs of the projections: mixtures of x and the x before it."""
        if last is None:
            return (x,) * len(MIXED)
        change = torch.cat([last[:, None], x[:, :-1]], dim=1) - x
        return tuple(x + change * mixture for mixture in self.mixture)
