"""The forgetting Transformer's attention (FoX, Lin et al. 2025): scores fall by the log of every gate passed."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.attention import queries_keys_values
from assay.models.causal import State
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads
from assay.rng import Rng


class ForgettingAttention(HeadedMixer):
    """o_i = softmax_j(q_i . k_j / sqrt d + log f_{j+1} + ... + log f_i) v_j, with f = sigmoid(W_f x + b_f) per head."""

    kind: ClassVar[str] = "forgetting-attention"

    def build(self, width: int, rng: Rng) -> ForgettingAttentionLayer:
        return ForgettingAttentionLayer(self, width, rng)


class ForgettingAttentionLayer(MixerLayer):
    """Its state holds keys, values, and the sum of log f up to each position."""

    operator: ClassVar[str] = "attention"

    def __init__(self, description: ForgettingAttention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.dim = description.heads, width // description.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.forget = initial.linear(rng.child("forget"), width, self.heads)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        k, v = (self.zeros(batch, self.heads, 0, self.dim) for _ in range(2))
        return k, v, self.zeros(batch, self.heads, 0)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        past_k, past_v, past_sums = state
        q, k, v = queries_keys_values(self.project(x), self.heads)
        k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        sums = F.logsigmoid(self.forget(x)).transpose(1, 2).cumsum(-1) + past_sums[..., -1:].sum(-1, keepdim=True)
        sums = torch.cat([past_sums, sums], dim=-1)
        o = ops.biased_attention(q, k, v, -sums, backend=backend)
        return self.out(join_heads(o)), (k, v, sums)

    def state_floats(self, length: int) -> int:
        return length * self.heads * (2 * self.dim + 1)
