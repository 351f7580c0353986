"""Mamba-3's mixer (Lahoti et al. 2026), with one input and one output per head (SISO)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.ops.fusions import rms_norm
from assay.rng import Rng


class Mamba3(HeadedMixer):
    """S' = w S + (1 - l) dt w k_{t-1} v_{t-1}^T + l dt k_t v_t^T, y = (S'^T q + D v) silu(z), with w = exp(-A dt).

    A, dt, l and the angles are functions of the token. q and k are normed projections that all heads share, plus a
    bias per head; in each head the first pairs of their entries are rotated by angles that add up along time, dt pi
    tanh(.). `rotated`: the share of the entries; 0 is no rotation. There is no convolution.
    """

    kind: ClassVar[str] = "mamba-3"
    states: Annotated[int, Field(ge=2)] = 16
    expand: Annotated[int, Field(ge=1)] = 2
    rotated: Annotated[float, Field(ge=0, le=1)] = 0.5

    def build(self, width: int, rng: Rng) -> Mamba3Layer:
        return Mamba3Layer(self, width, rng)


class Mamba3Layer(MixerLayer):
    """Its state is S, the last key and value, and the angles, between -pi and pi: formats of few bits hold them."""

    operator: ClassVar[str] = "dplr"
    LEAST_RATE: ClassVar[float] = 1e-4  # of A

    def __init__(self, description: Mamba3, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.states, self.inner = description.heads, description.states, description.expand * width
        self.value, self.pairs = self.inner // self.heads, math.ceil(description.rotated * self.states / 2)
        self.pairs = min(self.pairs, self.states // 2)
        self.dim = max(self.states, self.value)
        sizes = 2 * self.inner + 2 * self.states + 3 * self.heads + self.pairs
        self.project = initial.linear(rng.child("in"), width, sizes, bias=False)
        self.dt_bias = nn.Parameter(initial.step_sizes(rng.child("dt"), self.heads))
        self.q_norm, self.k_norm = (nn.Parameter(torch.ones(self.states)) for _ in range(2))
        self.q_bias, self.k_bias = (nn.Parameter(torch.ones(self.heads, 1, self.states)) for _ in range(2))
        self.D = nn.Parameter(torch.ones(self.heads))
        self.out = initial.linear(rng.child("out"), self.inner, width, bias=False)

    def initial_state(self, batch: int) -> State:
        sizes = (self.states, self.value), (self.states,), (self.value,), (self.pairs,)
        return tuple(self.zeros(batch, self.heads, *size) for size in sizes)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        S, last_k, last_v, last_angles = state
        N, H = self.states, self.heads
        z, v, k, q, dt, A, mix, angles = self.project(x).split([*[self.inner] * 2, N, N, H, H, H, self.pairs], dim=-1)
        dt = F.softplus(dt + self.dt_bias).transpose(1, 2)[..., None]  # [batch, heads, time, 1]
        w = torch.exp(-dt * F.softplus(A).clamp(min=self.LEAST_RATE).transpose(1, 2)[..., None])
        share = mix.sigmoid().transpose(1, 2)[..., None]
        turns = dt * math.pi * angles.tanh()[:, None]
        total = turns.cumsum(2, dtype=torch.float64) + last_angles[:, :, None]  # thousands, whose digits would be lost
        turns = (total - 2 * math.pi * torch.round(total.detach() / (2 * math.pi))).to(turns)
        q, k = (
            rotate_pairs(rms_norm(part, scale)[:, None] + bias, turns)
            for part, scale, bias in ((q, self.q_norm, self.q_bias), (k, self.k_norm, self.k_bias))
        )
        v = split_heads(v, H)
        before_k, before_v = (torch.cat([last[:, :, None], y[:, :, :-1]], 2) for last, y in ((last_k, k), (last_v, v)))
        keys = torch.stack([(1 - share) * dt * w * before_k, share * dt * k], dim=3)
        o, S = ops.dplr(q, keys, torch.stack([before_v, v], dim=3), w, S=S, backend=backend)
        y = join_heads(o + self.D[:, None, None] * v) * F.silu(z)
        return self.out(y), (S, k[:, :, -1], v[:, :, -1], turns[:, :, -1])


def rotate_pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate the first pairs (x_0, x_1), (x_2, x_3), ... of [..., size] by angles [..., pairs]."""
    turned, rest = x.split([2 * angles.shape[-1], x.shape[-1] - 2 * angles.shape[-1]], dim=-1)
    first, second = turned[..., ::2], turned[..., 1::2]
    sin, cos = angles.sin(), angles.cos()
    pairs = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=-1)
