"""PaTH attention (Yang et al. 2025): between two positions lies a product of Householder-like matrices."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from assay import ops
from assay.models import initial
from assay.models.attention import queries_keys_values
from assay.models.causal import State
from assay.models.features import features
from assay.models.mixer import HeadedMixer, MixerLayer, join_heads, split_heads
from assay.ops.chunked import CHUNK
from assay.rng import Rng


class PathAttention(HeadedMixer):
    """Scores q_i^T M_i ... M_{j+1} k_j / sqrt d, M = I - beta w w^T, with unit w and beta in (0, 2) from the token.

    w is a projection, after a causal convolution over `convolution` tokens with silu; 0: without one.
    """

    kind: ClassVar[str] = "path-attention"
    convolution: Annotated[int, Field(ge=0)] = 3

    def build(self, width: int, rng: Rng) -> PathAttentionLayer:
        return PathAttentionLayer(self, width, rng)


class PathAttentionLayer(MixerLayer):
    """The keys of its state are multiplied by the matrices of all later positions."""

    def __init__(self, description: PathAttention, width: int, rng: Rng) -> None:
        super().__init__()
        self.heads, self.dim, self.window = description.heads, width // description.heads, description.convolution
        self.project = initial.linear(rng.child("qkv"), width, 3 * width, bias=False)
        self.normal = initial.linear(rng.child("normal"), width, width, bias=False)
        if self.window:
            self.conv_weight = initial.uniform(rng.child("conv"), width, self.window, bound=self.window**-0.5)
        self.beta = initial.linear(rng.child("beta"), width, self.heads)
        self.out = initial.linear(rng.child("out"), width, width, bias=False)

    def initial_state(self, batch: int) -> State:
        k, v = (self.zeros(batch, self.heads, 0, self.dim) for _ in range(2))
        return k, v, self.zeros(batch, self.heads * self.dim, max(0, self.window - 1))

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        k, v, past = state
        w, past = self._normals(x, past, backend)
        beta = 2 * self.beta(x).sigmoid().transpose(1, 2)
        length, outputs = 1 if backend == "reference" else CHUNK, []
        parts = (z.split(length, dim=2) for z in (*queries_keys_values(self.project(x), self.heads), w, beta))
        for q_c, k_c, v_c, w_c, beta_c in zip(*parts, strict=True):
            v = torch.cat([v, v_c], dim=2)
            scores, k = path_scores(q_c, torch.cat([k, k_c], dim=2), w_c, beta_c)
            outputs.append(scores.softmax(-1) @ v)
        return self.out(join_heads(torch.cat(outputs, dim=2))), (k, v, past)

    def _normals(self, x: Tensor, past: Tensor, backend: ops.Backend) -> tuple[Tensor, Tensor]:
        """w of every head, and the last inputs of the convolution."""
        w = self.normal(x)
        if self.window:
            no_bias = w.new_zeros(1, 1, w.shape[-1])
            weight = self.conv_weight[None, None]
            w, last = ops.causal_convolution(w[:, None], weight, no_bias, past[:, None], backend=backend)
            w, past = w[:, 0], last[:, 0]
        return features("unit", split_heads(w, self.heads)), past

    def state_floats(self, length: int) -> int:
        return 2 * length * self.heads * self.dim + self.heads * self.dim * max(0, self.window - 1)


def path_scores(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """The scores of PaTH, -inf at future positions, and the keys after all matrices; the past of k comes first.

    The product of the matrices that key j meets takes sum_s w_s u_sj from it, where u_s = beta_s (w_s . k_j -
    sum_{r<s} (w_s . w_r) u_r) for s > j: a unit triangular system for all j.
    """
    time, source = q.shape[2], k.shape[2]
    positions = torch.arange(source, device=q.device)
    later = positions[source - time :, None] > positions
    system = beta[..., None] * (w @ w.mT).tril(-1) + torch.eye(time, dtype=w.dtype, device=w.device)
    right = beta[..., None] * (w @ k.mT).where(later, 0.0)
    u = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    scores = ops.causal_scores(q, k) - q.shape[-1] ** -0.5 * (q @ w.mT).tril() @ u
    return scores, k - u.mT @ w
