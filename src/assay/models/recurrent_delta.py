"""The recurrent delta rule (Irie et al. 2021): the delta rule with feedback of the last output of each head."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, project, split_heads
from assay.rng import Rng


class RecurrentDelta(HeadedMixer):
    """q, k = softmax(q^x + R_q h), softmax(k^x + R_k h), v = v^x + R_v h, beta = sigmoid(b^x + r_b h), h = tanh(o).

    If `additive`, it has the feedback without the delta rule: W' = W + beta v k^T.
    """

    kind: ClassVar[str] = "recurrent-delta"
    added: ClassVar[tuple[str, ...]] = ("additive",)
    additive: bool = False

    def build(self, width: int, rng: Rng) -> RecurrentDeltaLayer:
        return RecurrentDeltaLayer(self, width, rng)


class RecurrentDeltaLayer(MixerLayer):
    operator: ClassVar[str] = "recurrent_delta"
    starts_at_zero: ClassVar[bool] = True

    def __init__(self, description: RecurrentDelta, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.dim = heads, d = description.heads, width // description.heads
        self.additive = description.additive
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.beta = initial.linear(rng.child("beta"), width, heads, bias=False)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)
        self.R_q, self.R_k, self.R_v = (
            initial.normal(rng.child(name), 1, heads, d, d, std=d**-0.5) for name in ("R_q", "R_k", "R_v")
        )
        self.r_b = initial.normal(rng.child("r_b"), 1, heads, d, std=d**-0.5)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim), self.zeros(batch, self.heads, self.dim)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        if has_kernel("qkvb", x):
            q, k, v, beta = ops.qkvb(project(x, self.project, self.beta), heads=self.heads)
        else:
            q, k, v = (split_heads(part, self.heads) for part in self.project(x).chunk(3, -1))
            beta = self.beta(x).transpose(1, 2)
        R = self.R_q, self.R_k, self.R_v, self.r_b
        o, state = ops.recurrent_delta(q, k, v, beta, R, state, additive=self.additive, backend=backend)
        return self.out(join_heads(o)), state
