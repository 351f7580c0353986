"""The self-referential weight matrix (Irie et al. 2022): a weight that computes its own modification."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.rng import Rng


class Srwm(HeadedMixer):
    """Per head, on its slice of the input; the initial matrices are learned. y is read before or after the write."""

    kind: ClassVar[str] = "srwm"
    reading: Literal["before", "after"] = "before"

    def build(self, width: int, rng: Rng) -> SrwmLayer:
        return SrwmLayer(self, width, rng)


class SrwmLayer(MixerLayer):
    op: ClassVar[str] = "srwm"

    def __init__(self, made_of: Srwm, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.read_after_write = made_of.heads, made_of.reading == "after"
        self.dim = d = width // self.heads
        self.W_y = initial.normal(rng.child("W_y"), 1, self.heads, d, d, std=d**-0.5)
        self.W_q = initial.normal(rng.child("W_q"), 1, self.heads, d, d, std=0.01 * d**-0.5)
        self.W_k = initial.normal(rng.child("W_k"), 1, self.heads, d, d, std=d**-0.5)
        self.w_b = initial.normal(rng.child("w_b"), 1, self.heads, d, 4, std=d**-0.5, mean=-1.0)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        return tuple(W.expand(batch, *W.shape[1:]) for W in self._learned)

    @property
    def _learned(self) -> State:
        return self.W_y, self.W_q, self.W_k, self.w_b

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """From the beginning all rows have one state: the op need not read a copy for each."""
        return self.mix(x, self._learned if state is None else state, "auto")

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        y, state = ops.srwm(split_heads(x, self.heads), state, read_after_write=self.read_after_write, backend=backend)
        return self.out(join_heads(y)), state
