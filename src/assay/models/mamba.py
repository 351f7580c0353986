"""Mamba's mixer (Gu and Dao 2023): a short convolution and a selective diagonal state-space model, gated."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import Mixer, MixerLayer
from assay.rng import Rng


class SelectiveSsm(Mixer):
    """x, z = in(u); x = silu(conv(x)); dt, B, C from x; h' = exp(dt A) h + dt B x; y = (C h' + D x) silu(z); out(y)."""

    kind: ClassVar[str] = "selective-ssm"
    states: Annotated[int, Field(ge=1)] = 16
    expand: Annotated[int, Field(ge=1)] = 2
    convolution: Annotated[int, Field(ge=1)] = 4

    def build(self, width: int, rng: Rng) -> SelectiveSsmLayer:
        return SelectiveSsmLayer(self, width, rng)


class SelectiveSsmLayer(MixerLayer):
    operator: ClassVar[str] = "selective_scan"

    def __init__(self, description: SelectiveSsm, width: int, rng: Rng) -> None:
        super().__init__()
        self.inner, self.states, self.kernel = description.expand * width, description.states, description.convolution
        self.dim = self.states  # the axis that a kernel does not split; channels are independent
        self.rank = -(-width // 16)
        self.project = initial.linear(rng.child("in"), width, 2 * self.inner, bias=False)
        bound = self.kernel**-0.5
        self.conv_weight = initial.uniform(rng.child("conv"), self.inner, 1, self.kernel, bound=bound)
        self.conv_bias = initial.uniform(rng.child("conv_bias"), self.inner, bound=bound)
        self.select = initial.linear(rng.child("select"), self.inner, self.rank + 2 * self.states, bias=False)
        self.dt = initial.linear(rng.child("dt"), self.rank, self.inner)
        self.dt.bias = nn.Parameter(initial.step_sizes(rng.child("dt_bias"), self.inner))
        A = torch.arange(1, self.states + 1, dtype=torch.float32)
        self.A_log = nn.Parameter(A.log().expand(self.inner, -1).clone())
        self.D = nn.Parameter(torch.ones(self.inner))
        self.out = initial.linear(rng.child("out"), self.inner, width, bias=False)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, 1, self.inner, self.states), self.zeros(batch, self.inner, self.kernel - 1)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        h, past = state
        no_bias = x.new_zeros(1, 1, self.inner)
        # Two maps: the halves of one output would have to be copied apart, and their gradients together.
        x, z = (ops.affine(x[:, None], w[None, None], no_bias) for w in self.project.weight.chunk(2))
        weights = self.conv_weight[:, 0][None, None], self.conv_bias[None, None]
        x, past = ops.causal_convolution(x, *weights, past[:, None], backend=backend)
        dt, B, C = self.select(x).split([self.rank, self.states, self.states], dim=-1)
        y, h = ops.selective_scan(
            x, z, self.dt(dt), self.A_log[None, None], B, C, self.D[None, None], h, backend=backend
        )
        return self.out(y[:, 0]), (h, past[:, 0])
