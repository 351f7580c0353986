"""The self-referential weight matrix (Irie et al. 2022): a weight that computes its own modification."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.rng import Rng


class Srwm(HeadedMixer):
    """One matrix per head, on its slice of the input. y is read before or after the write.

    The initial matrices are trainable. Parts in `fixed` (letters of yqkb) are not modified while reading an input.
    As published, W_q is small at initialisation (`q_scale`) and w_b is around -1 (`b_mean`).
    """

    kind: ClassVar[str] = "srwm"
    added: ClassVar[tuple[str, ...]] = ("fixed", "q_scale", "b_mean")
    reading: Literal["before", "after"] = "before"
    fixed: Annotated[str, Field(pattern="^y?q?k?b?$")] = ""
    q_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    b_mean: Annotated[float, Field(allow_inf_nan=False)] = -1.0

    def build(self, width: int, rng: Rng) -> SrwmLayer:
        return SrwmLayer(self, width, rng)


class SrwmLayer(MixerLayer):
    operator: ClassVar[str] = "srwm"

    def __init__(self, description: Srwm, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.read_after_write = description.heads, description.reading == "after"
        self.fixed = description.fixed
        self.dim = d = width // self.heads
        self.W_y = initial.normal(rng.child("W_y"), 1, self.heads, d, d, std=d**-0.5)
        self.W_q = initial.normal(rng.child("W_q"), 1, self.heads, d, d, std=description.q_scale * d**-0.5)
        self.W_k = initial.normal(rng.child("W_k"), 1, self.heads, d, d, std=d**-0.5)
        self.w_b = initial.normal(rng.child("w_b"), 1, self.heads, d, 4, std=d**-0.5, mean=description.b_mean)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        return tuple(W.expand(batch, *W.shape[1:]) for W in self._initial_matrices)

    @property
    def _initial_matrices(self) -> State:
        return self.W_y, self.W_q, self.W_k, self.w_b

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Without a state, all rows share the initial one, and the operator does not need a copy per row."""
        return self.mix(x, self._initial_matrices if state is None else state, "auto")

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        read = self.read_after_write
        y, state = ops.srwm(split_heads(x, self.heads), state, read_after_write=read, fixed=self.fixed, backend=backend)
        return self.out(join_heads(y)), state
