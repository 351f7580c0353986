"""Linear maps, norms and embeddings of every time step, with operators that need one kernel on a GPU."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from assay import ops


def has_kernel(operator: str, x: Tensor) -> bool:
    """Whether a kernel would run; if not, torch's layers avoid the views that the operator needs."""
    return ops.backend_for(operator, "auto", x.device) != "reference"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool = False) -> Tensor:
    """weight x + bias at every position, by the operator."""
    bias = weight.new_zeros(len(weight)) if bias is None else bias
    rows = x.reshape(len(x), 1, -1, x.shape[-1])
    y = ops.affine(rows, weight[None, None], bias[None, None], relu=relu)
    return y.reshape(*x.shape[:-1], len(weight))


class Linear(nn.Linear):
    """torch's linear layer, with an optional relu."""

    operator: ClassVar[str] = "affine"
    relu = False

    def forward(self, x: Tensor) -> Tensor:
        if has_kernel(self.operator, x):
            return linear(x, self.weight, self.bias, self.relu)
        y = super().forward(x)
        return y.relu() if self.relu else y


class LayerNorm(nn.LayerNorm):
    """torch's layer norm, over the last axis."""

    operator: ClassVar[str] = "layer_norm"

    def forward(self, x: Tensor) -> Tensor:
        if not has_kernel(self.operator, x):
            return super().forward(x)
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        return ops.layer_norm(rows, self.weight[None, None], self.bias[None, None]).reshape(x.shape)

    def of_sum(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The norm of x + y, and x + y."""
        if not has_kernel("add_norm", x):
            total = x + y
            return self(total), total
        first, second = (part.reshape(len(x), 1, -1, x.shape[-1]) for part in (x, y))
        n, total = ops.add_norm(first, second, self.weight[None, None], self.bias[None, None])
        return n.reshape(x.shape), total.reshape(x.shape)


class Embedding(nn.Embedding):
    """torch's embedding. The gradient of a small table is a product with one-hot vectors, without atomic sums."""

    operator: ClassVar[str] = "embedding"
    SMALL: ClassVar[int] = 128

    def forward(self, tokens: Tensor) -> Tensor:
        count, width = self.weight.shape
        if count <= self.SMALL and has_kernel(self.operator, tokens):
            rows = ops.embedding(tokens.reshape(len(tokens), -1), self.weight[None])
            return rows.reshape(*tokens.shape, width)
        if count > self.SMALL or not torch.compiler.is_compiling():
            return super().forward(tokens)
        one_hot = (tokens.reshape(len(tokens), 1, -1, 1) == torch.arange(count, device=tokens.device)).to(self.weight)
        no_bias = self.weight.new_zeros(1, 1, width)
        return ops.affine(one_hot, self.weight.T[None, None], no_bias).reshape(*tokens.shape, width)
