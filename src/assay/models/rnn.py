"""The classical recurrent networks: Elman (tanh or relu), GRU, LSTM. The output is the hidden state."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import Mixer, MixerLayer
from assay.rng import Rng


class RnnLayer(MixerLayer):
    """Input weights W and recurrent weights R of all gates, initialised like torch's recurrent layers."""

    gates: ClassVar[int]
    starts_at_zero: ClassVar[bool] = True

    def __init__(self, width: int, rng: Rng) -> None:
        super().__init__()
        self.dim = width
        self.project = initial.linear(rng.child("W"), width, self.gates * width)
        self.R = initial.uniform(rng.child("R"), 1, 1, self.gates * width, width, bound=width**-0.5)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, 1, self.dim)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        h, state = self.recur(self.project(x)[:, None], state, backend)
        return h.squeeze(1), state

    @abstractmethod
    def recur(self, a: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]: ...


class Elman(Mixer):
    """h' = tanh(W x + R h + b), or relu."""

    kind: ClassVar[str] = "elman"
    activation: Literal["tanh", "relu"] = "tanh"

    def build(self, width: int, rng: Rng) -> ElmanLayer:
        return ElmanLayer(self, width, rng)


class ElmanLayer(RnnLayer):
    operator: ClassVar[str] = "elman"
    gates: ClassVar[int] = 1

    def __init__(self, description: Elman, width: int, rng: Rng) -> None:
        super().__init__(width, rng)
        self.relu = description.activation == "relu"

    def recur(self, a: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        return ops.elman(a, self.R, state, relu=self.relu, backend=backend)


class Gru(Mixer):
    """The gated recurrent unit (Cho et al. 2014), with the reset gate applied as in torch."""

    kind: ClassVar[str] = "gru"

    def build(self, width: int, rng: Rng) -> GruLayer:
        return GruLayer(width, rng)


class GruLayer(RnnLayer):
    operator: ClassVar[str] = "gru"
    gates: ClassVar[int] = 3

    def __init__(self, width: int, rng: Rng) -> None:
        super().__init__(width, rng)
        self.b_n = initial.uniform(rng.child("b_n"), 1, 1, width, bound=width**-0.5)

    def recur(self, a: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        return ops.gru(a, self.R, self.b_n, state, backend=backend)


class Lstm(Mixer):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""

    kind: ClassVar[str] = "lstm"

    def build(self, width: int, rng: Rng) -> LstmLayer:
        return LstmLayer(width, rng)


class LstmLayer(RnnLayer):
    operator: ClassVar[str] = "lstm"
    gates: ClassVar[int] = 4

    def initial_state(self, batch: int) -> State:
        return super().initial_state(batch), super().initial_state(batch)

    def recur(self, a: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        return ops.lstm(a, self.R, state, backend=backend)
