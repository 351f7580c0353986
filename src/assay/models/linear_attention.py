"""The linear Transformer's mixer (Katharopoulos et al. 2020): an additive fast weight, without normaliser."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.features import FeatureMap, features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.rng import Rng


class LinearAttention(HeadedMixer):
    """W' = W + v phi(k)^T, o = W' phi(q); if `gated`, W' = W + beta v phi(k)^T with beta = sigmoid(w x)."""

    kind: ClassVar[str] = "linear-attention"
    added: ClassVar[tuple[str, ...]] = ("gated",)
    features: FeatureMap = "elu"
    gated: bool = False

    def build(self, width: int, rng: Rng) -> LinearAttentionLayer:
        return LinearAttentionLayer(self, width, rng)


class LinearAttentionLayer(MixerLayer):
    operator: ClassVar[str] = "linear_attention"

    def __init__(self, description: LinearAttention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.features, self.dim = description.heads, description.features, width // description.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)
        self.beta = initial.linear(rng.child("beta"), width, self.heads, bias=False) if description.gated else None

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        q, k, v = (split_heads(part, self.heads) for part in self.project(x).chunk(3, -1))
        q, k = features(self.features, q), features(self.features, k)
        if self.beta is not None:
            v = self.beta(x).sigmoid().transpose(1, 2)[..., None] * v
        o, state = ops.linear_attention(q, k, v, state, backend=backend)
        return self.out(join_heads(o)), state
