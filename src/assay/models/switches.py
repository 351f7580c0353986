"""What papers put around the recurrence of a head, each part of which can be left out: a short convolution over q, k
and v, queries and keys of length 1, and a norm of every head's output, with a gate."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.features import features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads
from assay.ops.fusions import rms_norm
from assay.rng import Rng

Output = Literal["plain", "norm", "gated"]


class SwitchedMixer(HeadedMixer):
    """A mixer with heads and three switches.

    `convolution`: the window of a causal convolution per channel, with silu, over q, k and v; 0: none.
    `unit`: queries and keys are divided by their length.
    `output`: `plain`; `norm`, o / rms(o) per head with a trained factor; `gated`, this times a gate computed from x.
    """

    convolution: Annotated[int, Field(ge=0)] = 4
    unit: bool = True
    output: Output = "gated"


class SwitchedLayer(MixerLayer):
    """The switches of a layer whose convolution has `channels` and whose heads have outputs of size `value`.

    In `mix`, a subclass calls `convolve` on its projections, `lengths` on queries and keys, and `finish` on the outputs
    of its recurrence; its initial state ends with `initial_past`.
    """

    activation: ClassVar[Literal["silu", "sigmoid"]] = "silu"  # of the gate

    def __init__(
        self, description: SwitchedMixer, width: int, rng: Rng, channels: int, value: int, conv_bias: bool = False
    ) -> None:
        super().__init__()
        self.heads, self.unit, self.output = description.heads, description.unit, description.output
        self.window, inner = description.convolution, description.heads * value
        if self.window:
            bound = self.window**-0.5
            self.conv_weight = initial.uniform(rng.child("conv"), channels, self.window, bound=bound)
            self.conv_bias = initial.uniform(rng.child("conv_bias"), channels, bound=bound) if conv_bias else None
        if self.output != "plain":
            self.head_norm = nn.Parameter(torch.ones(value))
        if self.output == "gated":
            self.gate = self.gate_map(width, inner, rng.child("gate"))
        self.out = initial.linear(rng.child("out"), inner, width, bias=False)

    def gate_map(self, width: int, inner: int, rng: Rng) -> nn.Module:
        """The map from the input to the gate, before its activation."""
        return initial.linear(rng, width, inner, bias=False)

    def initial_past(self, batch: int) -> tuple[Tensor, ...]:
        """The inputs that the first window begins with; nothing without a convolution."""
        return (self.zeros(batch, len(self.conv_weight), self.window - 1),) if self.window else ()

    def convolve(self, z: Tensor, past: tuple[Tensor, ...], backend: ops.Backend) -> tuple[Tensor, tuple[Tensor, ...]]:
        """silu(conv(z)) of [batch, time, channels], and the last inputs; z without a convolution."""
        if not self.window:
            return z, ()
        bias = z.new_zeros(z.shape[-1]) if self.conv_bias is None else self.conv_bias
        weights = self.conv_weight[None, None], bias[None, None]
        y, last = ops.causal_convolution(z[:, None], *weights, past[0][:, None], backend=backend)
        return y[:, 0], (last[:, 0],)

    def lengths(self, z: Tensor) -> Tensor:
        """Queries or keys with length 1, if this layer has it."""
        return features("unit", z) if self.unit else z

    def finish(self, o: Tensor, x: Tensor) -> Tensor:
        """From the outputs of the heads [batch, heads, time, value] to the output of the layer, whose input was x."""
        if self.output == "gated":
            y = ops.head_norm(o, self.gate(x), self.head_norm[None], activation=self.activation)
        else:
            y = join_heads(rms_norm(o, self.head_norm) if self.output == "norm" else o)
        out: Tensor = self.out(y)
        return out


class LowRank(nn.Module):
    """B A x + b: a map whose matrix has a low rank."""

    def __init__(self, rng: Rng, inputs: int, rank: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.down = initial.linear(rng.child("down"), inputs, rank, bias=False)
        self.up = initial.linear(rng.child("up"), rank, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.down(x))
        return y
