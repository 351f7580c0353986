"""The delta rule (DeltaNet, Schlag et al. 2021) and products of its steps (DeltaProduct, Siems et al. 2025)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.features import FeatureMap, features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, project, split_heads
from assay.rng import Rng


class DeltaRule(HeadedMixer):
    """W' = W + beta (v - W phi(k)) phi(k)^T, o = W' phi(q), with beta in (0, `beta`), `steps` writes per token.

    With `beta` = 2 and unit keys, I - beta k k^T reaches the reflections (Grazzi et al. 2024). Read `before` the write,
    o = W phi(q).
    """

    kind: ClassVar[str] = "delta-rule"
    added: ClassVar[tuple[str, ...]] = ("reading",)
    features: FeatureMap = "elu-sum"
    beta: Literal[1, 2] = 1
    steps: Annotated[int, Field(ge=1)] = 1
    reading: Literal["before", "after"] = "after"

    def build(self, width: int, rng: Rng) -> DeltaRuleLayer:
        return DeltaRuleLayer(self, width, rng)


class DeltaRuleLayer(MixerLayer):
    operator: ClassVar[str] = "delta_rule"
    starts_at_zero: ClassVar[bool] = True

    def __init__(self, description: DeltaRule, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.features, self.dim = description.heads, description.features, width // description.heads
        self.beta_range, self.steps, self.reads_before = (
            description.beta,
            description.steps,
            description.reading == "before",
        )
        self.query = initial.linear(rng.child("query"), width, width, bias=False)
        self.key = initial.linear(rng.child("key"), width, self.steps * width, bias=False)
        self.value = initial.linear(rng.child("value"), width, self.steps * width, bias=False)
        self.beta = initial.linear(rng.child("beta"), width, self.steps * self.heads, bias=False)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim)

    def _steps(self, x: Tensor) -> Tensor:
        """Reshape [batch, time, steps * n] to [batch, time * steps, n]: the writes of a token become time steps."""
        return x.reshape(len(x), x.shape[1] * self.steps, -1)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries; keys, values and rates of all writes, of which a token has several time steps."""
        if self.steps == 1 and has_kernel("qkvb", x):
            z = project(x, self.query, self.key, self.value, self.beta)
            return ops.qkvb(z, heads=self.heads, features=self.features, sigmoid=True)
        q = features(self.features, split_heads(self.query(x), self.heads))
        k = features(self.features, split_heads(self._steps(self.key(x)), self.heads))
        v = split_heads(self._steps(self.value(x)), self.heads)
        return q, k, v, self._steps(self.beta(x)).sigmoid().transpose(1, 2)

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        q, k, v, beta = self._heads(x)
        beta = beta if self.beta_range == 1 else self.beta_range * beta
        per_token = self.steps + self.reads_before
        if self.reads_before:  # the output is read at an additional first step of each token, which writes nothing
            k, v, beta = (self._with_empty_step(x) for x in (k, v, beta))
        if per_token > 1:
            q = q.repeat_interleave(per_token, dim=2)
        o, state = ops.delta_rule(q, k, v, beta, state, backend=backend)
        if per_token > 1:
            o = o[:, :, 0 if self.reads_before else per_token - 1 :: per_token]
        return self.out(join_heads(o)), state

    def _with_empty_step(self, x: Tensor) -> Tensor:
        """Insert zeros before the writes of each token in [batch, heads, time * steps, ...]."""
        by_token = x.unflatten(2, (-1, self.steps))
        return torch.cat([torch.zeros_like(by_token[:, :, :, :1]), by_token], dim=3).flatten(2, 3)
