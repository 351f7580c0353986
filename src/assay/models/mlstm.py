"""The mLSTM (Beck et al. 2024): linear attention with an exponential input gate, a normaliser and a running maximum."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.switches import SwitchedMixer
from assay.models.transition import MatrixLayer
from assay.rng import Rng


class Mlstm(SwitchedMixer):
    """C' = f C + i k v^T, n' = f n + i k, o = C'^T q / max(|n'^T q|, 1), with f = sigmoid and i = exp of maps of x.

    C and n are kept divided by e^m, m' = max(log f + m, log i), so that no exponential overflows. n is an additional
    column of the state: a value that is always 1.
    """

    kind: ClassVar[str] = "mlstm"
    convolution: Annotated[int, Field(ge=0)] = 0
    unit: bool = False

    def build(self, width: int, rng: Rng) -> MlstmLayer:
        return MlstmLayer(self, width, rng)


class MlstmLayer(MatrixLayer):
    activation: ClassVar[Literal["silu", "sigmoid"]] = "sigmoid"

    def __init__(self, description: Mlstm, width: int, rng: Rng) -> None:
        super().__init__(description, width, rng)
        self.dim += 1
        self.input = initial.linear(rng.child("input"), width, self.heads)
        self.input.bias = initial.normal(rng.child("input_bias"), self.heads, std=0.1)
        self.forget = initial.linear(rng.child("forget"), width, self.heads)
        self.forget.bias = nn.Parameter(3 + 3 * rng.child("forget_bias").uniform(self.heads).float())

    def initial_state(self, batch: int) -> State:
        return (
            self.zeros(batch, self.heads, self.dim - 1, self.dim),
            self.zeros(batch, self.heads),
            *self.initial_past(batch),
        )

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        S, m, *past = state
        q, k, v, past = self.split(x, tuple(past), backend)
        log_i, log_f = self.input(x).transpose(1, 2), F.logsigmoid(self.forget(x)).transpose(1, 2)
        largest = running_maximum(log_i.detach(), log_f.detach(), m)  # the output does not depend on it
        before = torch.cat([m[..., None], largest[..., :-1]], dim=-1)
        w, i = torch.exp(log_f + before - largest)[..., None], torch.exp(log_i - largest)[..., None, None]
        k = i * k * (self.dim - 1) ** -0.5
        both, S = ops.dplr(q, k, F.pad(v, (0, 1), value=1.0), w, S=S, backend=backend)
        o, n = both[..., :-1], both[..., -1:]
        o = o / torch.maximum(n.abs(), torch.exp(-largest)[..., None])
        return self.finish(o, x), (S, largest[..., -1], *past)


def running_maximum(log_i: Tensor, log_f: Tensor, m: Tensor) -> Tensor:
    """m_t = max(log_f_t + m_{t-1}, log_i_t) of all moments, the last axis: F_t + max(m, max_{j<=t} (log_i_j - F_j)),
    where F_t is the sum of log_f up to t."""
    F_t = log_f.cumsum(-1)
    return F_t + torch.maximum((log_i - F_t).cummax(-1).values, m[..., None])
