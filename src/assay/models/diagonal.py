"""Diagonal state-space models (DSS, Gupta et al. 2022; S4D, Gu et al. 2022)."""

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
from assay.models.mixer import Mixer, MixerLayer
from assay.rng import Rng


class DiagonalSsm(Mixer):
    """h' = exp(dt L) h + (exp(dt L) - 1) / L u, y = 2 Re(C h) + D u per channel; then GELU and a gated output map.

    L has negative real parts and starts as S4D-Lin, -1/2 + i pi n; dt is log-uniform in [0.001, 0.1].
    """

    kind: ClassVar[str] = "diagonal-ssm"
    states: Annotated[int, Field(ge=1)] = 16

    def build(self, width: int, rng: Rng) -> DiagonalSsmLayer:
        return DiagonalSsmLayer(self, width, rng)


class DiagonalSsmLayer(MixerLayer):
    operator: ClassVar[str] = "diagonal_scan"

    def __init__(self, description: DiagonalSsm, width: int, rng: Rng) -> None:
        super().__init__()
        N = description.states
        self.log_decay = nn.Parameter(torch.full((width, N), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(N, dtype=torch.float32).expand(width, N).clone())
        self.C = initial.normal(rng.child("C"), width, N, 2, std=0.5**0.5)  # real and imaginary parts
        self.D = initial.normal(rng.child("D"), width)
        self.log_dt = nn.Parameter(initial.log_uniform(rng.child("dt"), width, 1e-3, 1e-1).log())
        self.out = initial.linear(rng.child("out"), width, 2 * width)

    def initial_state(self, batch: int) -> State:
        return torch.complex(*(self.zeros(batch, 1, *self.frequency.shape) for _ in range(2)))

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        L = torch.complex(-self.log_decay.exp(), self.frequency)
        a = torch.exp(self.log_dt.exp()[:, None] * L)
        a, b = (torch.view_as_real(w)[None, None] for w in (a, (a - 1) / L))
        C, D, h = self.C[None, None], self.D[None, None], torch.view_as_real(state)
        y, h = ops.diagonal_scan(x[:, None], a, b, C, D, h, backend=backend)
        return F.glu(self.out(F.gelu(y[:, 0]))), torch.view_as_complex(h)
