"""Softmax attention (Vaswani et al. 2017), causal; its state is the growing cache of keys and values."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.models.positions import rotate
from assay.ops import Backend
from assay.rng import Rng


class Attention(HeadedMixer):
    """Softmax attention; `rotary` turns queries and keys by their positions."""

    kind: ClassVar[str] = "attention"
    bias: bool = False
    rotary: bool = False

    @property
    def turns(self) -> bool:
        return self.rotary

    def build(self, width: int, rng: Rng) -> AttentionLayer:
        return AttentionLayer(self, width, rng)


class AttentionLayer(MixerLayer):
    def __init__(self, made_of: Attention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.rotary, self.dim = made_of.heads, made_of.rotary, width // made_of.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=made_of.bias)
        self.out = initial.linear(rng.child("out"), width, width, bias=made_of.bias)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, 0, self.dim), self.zeros(batch, self.heads, 0, self.dim)

    def mix(self, x: Tensor, state: State, backend: Backend) -> tuple[Tensor, State]:
        past_k, past_v = state
        q, k, v = (split_heads(part, self.heads) for part in self.project(x).chunk(3, -1))
        past = past_k.shape[2]
        here = torch.arange(past, past + x.shape[1], device=x.device)
        if self.rotary:
            q, k = rotate(q, here), rotate(k, here)
        if past:
            k, v = torch.cat([past_k, k], dim=2), torch.cat([past_v, v], dim=2)
        future = torch.arange(k.shape[2], device=x.device) > here[:, None]
        # Explicit rather than PyTorch's fused attention, whose backward has no rule for vmap.
        scores = (q @ k.mT * self.dim**-0.5).masked_fill(future, -torch.inf)
        return self.out(join_heads(scores.softmax(-1) @ v)), (k, v)

    def state_floats(self, length: int) -> int:
        return 2 * length * self.heads * self.dim
