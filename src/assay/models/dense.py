"""Linear maps, norms and embeddings of every time step, with operators that need one kernel on a GPU."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from assay import ops


def _as_torch(operator: str, x: Tensor) -> bool:
    """Whether the operator has no kernel here: then torch's layer avoids the views that the operator needs."""
    return ops.backend_for(operator, "auto", x.device) == "reference"


class Linear(nn.Linear):
    """torch's linear layer, with an optional relu."""

    operator: ClassVar[str] = "affine"
    relu = False

    def forward(self, x: Tensor) -> Tensor:
        if _as_torch(self.operator, x):
            y = super().forward(x)
            return y.relu() if self.relu else y
        bias = self.weight.new_zeros(self.out_features) if self.bias is None else self.bias
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        y = ops.affine(rows, self.weight[None, None], bias[None, None], relu=self.relu)
        return y.reshape(*x.shape[:-1], self.out_features)


class LayerNorm(nn.LayerNorm):
    """torch's layer norm, over the last axis."""

    operator: ClassVar[str] = "layer_norm"

    def forward(self, x: Tensor) -> Tensor:
        if _as_torch(self.operator, x):
            return super().forward(x)
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        return ops.layer_norm(rows, self.weight[None, None], self.bias[None, None]).reshape(x.shape)


class Embedding(nn.Embedding):
    """torch's embedding. A small table is multiplied by one-hot vectors: then its gradient is a matrix product."""

    operator: ClassVar[str] = "affine"
    SMALL: ClassVar[int] = 128

    def forward(self, tokens: Tensor) -> Tensor:
        count, width = self.weight.shape
        if count > self.SMALL or (_as_torch(self.operator, tokens) and not torch.compiler.is_compiling()):
            return super().forward(tokens)
        one_hot = (tokens.reshape(len(tokens), 1, -1, 1) == torch.arange(count, device=tokens.device)).to(self.weight)
        no_bias = self.weight.new_zeros(1, 1, width)
        return ops.affine(one_hot, self.weight.T[None, None], no_bias).reshape(*tokens.shape, width)
