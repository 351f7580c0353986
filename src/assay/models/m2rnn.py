"""The M2RNN (Mishra et al. 2026): a recurrent network whose state is a matrix."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.attention import queries_keys_values
from assay.models.causal import State
from assay.models.switches import SwitchedLayer, SwitchedMixer
from assay.models.transition import Decay
from assay.rng import Rng


class M2rnn(SwitchedMixer):
    """H' = f H + (1 - f) tanh(H W + k v^T), o = H'^T q + D v, with f = exp(-exp(A) softplus(F x + b)) per head."""

    kind: ClassVar[str] = "m2rnn"
    convolution: Annotated[int, Field(ge=0)] = 4
    unit: bool = False

    def build(self, width: int, rng: Rng) -> M2rnnLayer:
        return M2rnnLayer(self, width, rng)


class M2rnnLayer(SwitchedLayer):
    operator: ClassVar[str] = "m2rnn"

    def __init__(self, description: M2rnn, width: int, rng: Rng) -> None:
        self.dim = width // description.heads
        super().__init__(description, width, rng, 3 * width, self.dim)
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.forget = initial.linear(rng.child("forget"), width, self.heads, bias=False)
        self.decay = Decay(rng.child("decay"), self.heads, 1)
        self.state_weight = nn.Parameter(torch.eye(self.dim).repeat(1, self.heads, 1, 1))
        self.D = nn.Parameter(torch.ones(self.heads, self.dim))

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim), *self.initial_past(batch)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        H, *past = state
        z, past = self.convolve(self.project(x), tuple(past), backend)
        q, k, v = queries_keys_values(z, self.heads)
        f = self.decay(self.forget(x))[..., 0]
        o, H = ops.m2rnn(self.lengths(q), self.lengths(k), v, f, self.state_weight, H, backend=backend)
        return self.finish(o + self.D[:, None] * v, x), (H, *past)
