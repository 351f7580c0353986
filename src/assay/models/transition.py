"""Mixers whose state is a matrix per head that every token multiplies by a diagonal plus a low rank, and writes to."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.mixer import project, split_heads
from assay.models.switches import SwitchedLayer, SwitchedMixer
from assay.rng import Rng


class Transition(NamedTuple):
    """What a token does to the state of every head: S' = (Diag(w) + b a^T) S + k v^T, with a, b, k, v per write."""

    k: Tensor
    v: Tensor
    w: Tensor
    a: Tensor | None = None
    b: Tensor | None = None


class MatrixLayer(SwitchedLayer):
    """Projections to q, and to k and v for all writes of a token, with what `switches` puts around them."""

    operator: ClassVar[str] = "dplr"

    def __init__(self, description: SwitchedMixer, width: int, rng: Rng, steps: int = 1) -> None:
        dim = width // description.heads
        super().__init__(description, width, rng, (1 + 2 * steps) * width, dim)
        self.dim, self.steps = dim, steps
        self.query = initial.linear(rng.child("query"), width, width, bias=False)
        self.key = initial.linear(rng.child("key"), width, steps * width, bias=False)
        self.value = initial.linear(rng.child("value"), width, steps * width, bias=False)

    def split_writes(self, z: Tensor) -> Tensor:
        """[batch, time, writes * width] as [batch, heads, time, writes, dim]."""
        by_head: Tensor = z.unflatten(-1, (self.steps, self.heads, -1))
        return by_head.permute(0, 3, 1, 2, 4)

    def split(
        self, x: Tensor, past: tuple[Tensor, ...], backend: ops.Backend
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """q [batch, heads, time, dim]; k and v of all writes; and the past of the next token."""
        z = project(x, self.query, self.key, self.value)
        z, past = self.convolve(z, past, backend)
        if self.steps == 1 and has_kernel("qkv", x):
            q, k, v = ops.qkv(z, heads=self.heads, features="unit" if self.unit else "identity")
            return self.query_features(q), k[:, :, :, None], v[:, :, :, None], past
        width = x.shape[-1]
        q, k, v = z.split([width, self.steps * width, self.steps * width], dim=-1)
        q, k = self.lengths(split_heads(q, self.heads)), self.lengths(self.split_writes(k))
        return self.query_features(q), k, self.split_writes(v), past

    def query_features(self, q: Tensor) -> Tensor:
        return q


class TransitionLayer(MatrixLayer):
    """A layer that is described by its transition."""

    def initial_state(self, batch: int) -> State:
        return self.zeros(batch, self.heads, self.dim, self.dim), *self.initial_past(batch)

    @abstractmethod
    def transition(self, x: Tensor, k: Tensor, v: Tensor) -> Transition:
        """From the input and the keys and values [batch, heads, time, writes, dim] of all writes."""

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        S, *past = state
        q, k, v, past = self.split(x, tuple(past), backend)
        now = self.transition(x, k, v)
        o, S = ops.dplr(q, now.k, now.v, now.w, now.a, now.b, S, backend=backend)
        return self.finish(o, x), (S, *past)


class Decay(nn.Module):
    """exp(-exp(A) softplus(z + b)) with A per head, for `keys` decays of a head; softplus(b) starts in (0.001, 0.1)."""

    def __init__(self, rng: Rng, heads: int, keys: int) -> None:
        super().__init__()
        self.A_log = nn.Parameter((1 + 15 * rng.child("A").uniform(heads)).float().log())
        self.dt_bias = nn.Parameter(initial.step_sizes(rng.child("dt"), heads * keys))

    def forward(self, z: Tensor) -> Tensor:
        """From [batch, time, heads * keys] to [batch, heads, time, keys]."""
        dt = split_heads(F.softplus(z + self.dt_bias), len(self.A_log))
        return torch.exp(-self.A_log.exp()[:, None, None] * dt)
