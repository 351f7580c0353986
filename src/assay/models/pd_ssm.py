"""PD-SSM (Terzic et al. 2025): the transition is a one-hot column matrix times a complex diagonal one."""

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
from assay.models.dense import Linear
from assay.models.mixer import Mixer, MixerLayer
from assay.rng import Rng

MOST_NUMBERS = 1 << 26  # in the matrices of a pass without gradients: a quarter of a GiB


class PdSsm(Mixer):
    """h' = P D h + B u, y = W [Re h'; Im h'] + w u, and h starts as the first unit vector.

    P has one 1 per column, at the largest entry of that column of M, a mixture of `dictionary` trained matrices with
    weights softmax(S u); its gradient is that of the column's softmax. D = m exp(i p), with m = sigmoid and p = 2 pi
    sigmoid of two networks with one hidden layer. Without `states`, h has as many entries as the width.
    """

    kind: ClassVar[str] = "pd-ssm"
    states: Annotated[int, Field(ge=1)] | None = None
    dictionary: Annotated[int, Field(ge=2)] = 8

    def build(self, width: int, rng: Rng) -> PdSsmLayer:
        return PdSsmLayer(self, width, rng)


class PdSsmLayer(MixerLayer):
    operator: ClassVar[str] = "permuted_scan"

    def __init__(self, description: PdSsm, width: int, rng: Rng) -> None:
        super().__init__()
        self.dim = N = description.states or width
        self.select = initial.linear(rng.child("select"), width, description.dictionary, bias=False)
        self.matrices = initial.normal(rng.child("matrices"), description.dictionary, N, N, std=N**-0.5)
        self.magnitude = _network(rng.child("magnitude"), width, N)
        self.phase = _network(rng.child("phase"), width, N)
        self.B = initial.normal(rng.child("B"), 2 * N, width, std=(2 * N) ** -0.5)  # real and imaginary parts
        self.skip = initial.normal(rng.child("skip"), width, std=width**-0.5)
        self.out = initial.linear(rng.child("out"), 2 * N, width)

    def initial_state(self, batch: int) -> State:
        first = torch.arange(self.dim, device=self.B.device) == 0
        return torch.complex(first.to(self.B), self.zeros(self.dim)).expand(batch, 1, -1)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        """Without gradients some tokens at a time, since every token has a matrix."""
        length = x.shape[1] if torch.is_grad_enabled() else max(1, MOST_NUMBERS // max(1, len(x) * self.dim**2))
        outputs = []
        for part in x.split(length, dim=1):
            y, state = self._mix(part, state, backend)
            outputs.append(y)
        return torch.cat(outputs, dim=1), state

    def _mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        mixture = (self.select(x).softmax(-1) @ self.matrices.flatten(1)).unflatten(-1, (self.dim, self.dim))
        size, angle = self.magnitude(x).sigmoid(), 2 * math.pi * self.phase(x).sigmoid()
        a = torch.stack([size * angle.cos(), size * angle.sin()], dim=-1)
        b = (x @ self.B.T).unflatten(-1, (2, self.dim)).transpose(-1, -2)
        P, a, b = (z[:, None] for z in (one_hot_columns(mixture), a, b))
        h, state = ops.permuted_scan(P, a, b, torch.view_as_real(state), backend=backend)
        read = h[:, 0].transpose(-1, -2).flatten(2)
        return self.out(read) + self.skip * x, torch.view_as_complex(state)


def _network(rng: Rng, inputs: int, outputs: int) -> nn.Sequential:
    hidden = 2 * outputs
    first: Linear = initial.linear(rng.child(1), inputs, hidden)
    return nn.Sequential(first, nn.GELU(), initial.linear(rng.child(2), hidden, outputs))


def one_hot_columns(M: Tensor) -> Tensor:
    """1 at the largest entry of each column, the first of several; with the gradient of the columns' softmax."""
    rows = torch.arange(M.shape[-2], device=M.device)[:, None]
    hard = (rows == M.argmax(-2, keepdim=True)).to(M)
    if not torch.is_grad_enabled():
        return hard
    soft = F.softmax(M, dim=-2)
    return hard + (soft - soft.detach())
