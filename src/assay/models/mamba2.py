"""Mamba-2's mixer (Dao and Gu 2024): a decay per head, and keys and queries that all heads share."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import join_heads, split_heads
from assay.models.switches import SwitchedLayer, SwitchedMixer
from assay.ops.fusions import rms_norm
from assay.rng import Rng


class Mamba2(SwitchedMixer):
    """S' = exp(-dt exp(A)) S + B (dt x)^T, y = S'^T C + D x, with heads on an inner width of `expand` times the width.

    x, B and C come out of one convolution with bias. `gated` is rms-norm(y silu(z)) over all heads at once.
    """

    kind: ClassVar[str] = "mamba-2"
    unit: bool = False
    states: Annotated[int, Field(ge=1)] = 16
    expand: Annotated[int, Field(ge=1)] = 2

    def build(self, width: int, rng: Rng) -> Mamba2Layer:
        return Mamba2Layer(self, width, rng)


class Mamba2Layer(SwitchedLayer):
    operator: ClassVar[str] = "dplr"

    def __init__(self, description: Mamba2, width: int, rng: Rng) -> None:
        self.states, self.inner = description.states, description.expand * width
        self.value = self.inner // description.heads
        channels = self.inner + 2 * self.states
        super().__init__(description, width, rng, channels, self.value, conv_bias=True)
        self.dim = max(self.states, self.value)
        if self.output == "gated":
            self.head_norm = nn.Parameter(torch.ones(self.inner))
        self.project = initial.linear(rng.child("in"), width, channels, bias=False)
        self.dt = initial.linear(rng.child("dt"), width, self.heads)
        self.dt.bias = nn.Parameter(initial.step_sizes(rng.child("dt_bias"), self.heads))
        self.A_log = nn.Parameter((1 + 15 * rng.child("A").uniform(self.heads)).float().log())
        self.D = nn.Parameter(torch.ones(self.heads))

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.states, self.value), *self.initial_past(batch)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        S, *past = state
        z, past = self.convolve(self.project(x), tuple(past), backend)
        u, B, C = z.split([self.inner, self.states, self.states], dim=-1)
        dt = F.softplus(self.dt(x)).transpose(1, 2)[..., None]
        v = split_heads(u, self.heads)
        k, q = (self.lengths(part)[:, None].expand(-1, self.heads, -1, -1) for part in (B, C))
        w = torch.exp(-dt * self.A_log.exp()[:, None, None])
        o, S = ops.dplr(q, k[:, :, :, None], (dt * v)[:, :, :, None], w, S=S, backend=backend)
        return self.finish(o + self.D[:, None, None] * v, x), (S, *past)

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        if self.output != "gated":
            return super().finish(o, x)
        y: Tensor = self.out(rms_norm(join_heads(o) * F.silu(self.gate(x)), self.head_norm))
        return y
