"""Linear maps, norms and tables, applied to every moment alike, by the ops that do them in one kernel on a GPU."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from assay import ops


def _as_torch(op: str, x: Tensor) -> bool:
    """Whether there is no kernel to call: then torch's own layer spares the views that an op needs."""
    return ops.backend_for(op, "auto", x.device) == "reference"


class Linear(nn.Linear):
    """torch's, with relu on top if asked for."""

    op: ClassVar[str] = "affine"
    relu = False

    def forward(self, x: Tensor) -> Tensor:
        if _as_torch(self.op, x):
            y = super().forward(x)
            return y.relu() if self.relu else y
        bias = self.weight.new_zeros(self.out_features) if self.bias is None else self.bias
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        y = ops.affine(rows, self.weight[None, None], bias[None, None], relu=self.relu)
        return y.reshape(*x.shape[:-1], self.out_features)


class LayerNorm(nn.LayerNorm):
    """torch's, over the last axis."""

    op: ClassVar[str] = "layer_norm"

    def forward(self, x: Tensor) -> Tensor:
        if _as_torch(self.op, x):
            return super().forward(x)
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        return ops.layer_norm(rows, self.weight[None, None], self.bias[None, None]).reshape(x.shape)


class Embedding(nn.Embedding):
    """torch's. A small table is multiplied with unit vectors: its gradient is a product then, not a scattered sum."""

    op: ClassVar[str] = "affine"
    SMALL: ClassVar[int] = 128

    def forward(self, tokens: Tensor) -> Tensor:
        count, width = self.weight.shape
        if count > self.SMALL or (_as_torch(self.op, tokens) and not torch.compiler.is_compiling()):
            return super().forward(tokens)
        units = (tokens.reshape(len(tokens), 1, -1, 1) == torch.arange(count, device=tokens.device)).to(self.weight)
        nothing = self.weight.new_zeros(1, 1, width)
        return ops.affine(units, self.weight.T[None, None], nothing).reshape(*tokens.shape, width)
