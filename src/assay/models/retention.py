"""Retention (RetNet, Sun et al. 2023): linear attention with a fixed decay per head and rotated keys."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.causal import State
from assay.models.dense import has_kernel
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, positions_from, split_heads
from assay.models.positions import rotate
from assay.rng import Rng


class Retention(HeadedMixer):
    """W' = gamma W + v k^T, o = W' q, gamma = 1 - 2^(-5 - head); normalised heads, gated by swish."""

    kind: ClassVar[str] = "retention"

    @property
    def rotates(self) -> bool:
        return True

    def build(self, width: int, rng: Rng) -> RetentionLayer:
        return RetentionLayer(self, width, rng)


class RetentionLayer(MixerLayer):
    operator: ClassVar[str] = "retention"

    def __init__(self, description: Retention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.dim = description.heads, width // description.heads
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.gate = initial.linear(rng.child("gate"), width, width, bias=False)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        start = torch.zeros((), dtype=torch.int64, device=self.out.weight.device)
        return self.zeros(batch, self.heads, self.dim, self.dim), start

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        W, start = state
        z = self.project(x)
        if has_kernel("qkv", x):
            q, k, v = ops.qkv(z, heads=self.heads)
        else:
            q, k, v = (split_heads(part, self.heads) for part in z.chunk(3, -1))
        positions = positions_from(start, x.shape[1])
        q, k = rotate(q, positions), rotate(k, positions) * self.dim**-0.5
        decay = 1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device, dtype=x.dtype))
        o, W = ops.retention(q, k, v, decay, W, backend=backend)
        y = join_heads(self._normed(o))
        return self.out(F.silu(self.gate(x)) * y), (W, start + x.shape[1])

    def _normed(self, o: Tensor) -> Tensor:
        if not has_kernel("layer_norm", o):
            return F.layer_norm(o, (self.dim,))
        scale = torch.ones(1, self.heads, self.dim, device=o.device, dtype=o.dtype)
        return ops.layer_norm(o, scale, torch.zeros_like(scale))
