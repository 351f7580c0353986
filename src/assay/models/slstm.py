"""The sLSTM (xLSTM, Beck et al. 2024): exponential input gates, and recurrent matrices within each head."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.rng import Rng

EMPTY = -1e4  # the logarithm of a normaliser that is 0 in any format


class Slstm(HeadedMixer):
    """c' = f c + i tanh(z), n' = f n + i, h' = sigmoid(o) c' / n' with i = exp(i~) and f = sigmoid(f~).

    Each of i~, f~, z and o is W x + R h + b, where R connects units of the same head. `convolution`: the window of a
    causal convolution, with silu, before i~ and f~; 0: none. `output`: `norm` is a layer norm of every head's h.
    """

    kind: ClassVar[str] = "slstm"
    convolution: Annotated[int, Field(ge=0)] = 4
    output: Literal["plain", "norm"] = "norm"

    def build(self, width: int, rng: Rng) -> SlstmLayer:
        return SlstmLayer(self, width, rng)


class SlstmLayer(MixerLayer):
    """Its state has three numbers per unit: h, c / n and log n, which have the published stabiliser in them."""

    operator: ClassVar[str] = "slstm"

    def __init__(self, description: Slstm, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.dim, self.window = description.heads, width // description.heads, description.convolution
        self.gate_inputs = initial.linear(rng.child("gates"), width, 2 * width)  # i and f of each head
        self.value_inputs = initial.linear(rng.child("values"), width, 2 * width)  # z and o
        with torch.no_grad():
            by_gate = self.gate_inputs.bias.view(self.heads, 2, self.dim)
            by_gate[:, 1] = 3 + 3 * rng.child("forget").uniform(width).view(self.heads, self.dim)
        self.R = initial.uniform(rng.child("R"), 1, self.heads, 4 * self.dim, self.dim, bound=self.dim**-0.5)
        if self.window:
            self.conv_weight = initial.uniform(rng.child("conv"), width, self.window, bound=self.window**-0.5)
        if description.output == "norm":
            self.head_norm = nn.Parameter(torch.ones(width))

    def initial_state(self, batch: int) -> State:
        zero = self.zeros(batch, self.heads, self.dim)
        past = (self.zeros(batch, *self.conv_weight[:, 1:].shape),) if self.window else ()
        return zero, zero, zero + EMPTY, *past

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        *cell, past = state if self.window else (*state, None)
        convolved = x
        if self.window:
            weights = self.conv_weight[None, None], x.new_zeros(1, 1, x.shape[-1])
            convolved, past = ops.causal_convolution(x[:, None], *weights, past[:, None], backend=backend)
            convolved, past = convolved[:, 0], past[:, 0]
        a = torch.cat(
            [split_heads(self.gate_inputs(convolved), self.heads), split_heads(self.value_inputs(x), self.heads)],
            dim=-1,
        )
        h, cell = ops.slstm(a, self.R, tuple(cell), backend=backend)
        return join_heads(self._normed(h)), (*cell, past) if self.window else cell

    def _normed(self, h: Tensor) -> Tensor:
        if not hasattr(self, "head_norm"):
            return h
        scale = self.head_norm.view(1, self.heads, self.dim)
        if has_kernel("layer_norm", h):
            return ops.layer_norm(h, scale, torch.zeros_like(scale))
        return F.layer_norm(h, (self.dim,)) * scale[:, :, None]
