"""The e-LSTM of Irie et al. 2023: an LSTM whose recurrence is element-wise."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel, linear
from assay.models.mixer import Mixer, MixerLayer
from assay.rng import Rng


class ElementwiseLstm(Mixer):
    """z = tanh(W_z x + w_z c + b_z), f = sigmoid(W_f x + w_f c + b_f), c' = f c + (1 - f) z,
    out = c' sigmoid(W_o [x; c'] + b_o). All parameters start as N(0, 0.1).
    """

    kind: ClassVar[str] = "elementwise-lstm"

    def build(self, width: int, rng: Rng) -> ElementwiseLstmLayer:
        return ElementwiseLstmLayer(width, rng)


class ElementwiseLstmLayer(MixerLayer):
    operator: ClassVar[str] = "elementwise_lstm"
    starts_at_zero: ClassVar[bool] = True

    def __init__(self, width: int, rng: Rng) -> None:
        super().__init__()
        self.width = width

        def normal(name: str, *shape: int) -> torch.nn.Parameter:
            return initial.normal(rng.child(name), *shape, std=0.1)

        self.W_z, self.W_f = normal("W_z", width, width), normal("W_f", width, width)
        self.w_z, self.w_f = normal("w_z", 1, 1, width), normal("w_f", 1, 1, width)
        self.b_z, self.b_f = normal("b_z", width), normal("b_f", width)
        self.W_o, self.b_o = normal("W_o", width, 2 * width), normal("b_o", width)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, 1, self.width)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        product = linear if has_kernel("affine", x) else _product
        z, f = product(x, self.W_z, self.b_z), product(x, self.W_f, self.b_f)
        c, state = ops.elementwise_lstm(z[:, None], f[:, None], self.w_z, self.w_f, state, backend=backend)
        c = c.squeeze(1)
        return ops.gate(c, product(torch.cat([x, c], dim=-1), self.W_o, self.b_o)), state


def _product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x @ weight.T + bias
