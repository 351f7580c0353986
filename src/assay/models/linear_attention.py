"""The linear Transformer's mixer (Katharopoulos et al. 2020): an additive fast weight, without normaliser."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.features import FeatureMap, features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, project, split_heads
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
    starts_at_zero: ClassVar[bool] = True

    def __init__(self, description: LinearAttention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.features, self.dim = description.heads, description.features, width // description.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)
        self.beta = initial.linear(rng.child("beta"), width, self.heads, bias=False) if description.gated else None

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values, and the strengths of the writes if these are gated."""
        if has_kernel("qkv", x) and self.beta is not None:
            z = project(x, self.project, self.beta)
            return ops.qkvb(z, heads=self.heads, features=self.features, sigmoid=True)
        if has_kernel("qkv", x):
            return *ops.qkv(self.project(x), heads=self.heads, features=self.features), None
        q, k, v = (split_heads(part, self.heads) for part in self.project(x).chunk(3, -1))
        beta = None if self.beta is None else self.beta(x).sigmoid().transpose(1, 2)
        return features(self.features, q), features(self.features, k), v, beta

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        q, k, v, beta = self._heads(x)
        if beta is not None:
            v = beta[..., None] * v
        o, state = ops.linear_attention(q, k, v, state, backend=backend)
        return self.out(join_heads(o)), state
