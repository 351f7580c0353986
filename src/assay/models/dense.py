"""Linear maps and norms, applied to every moment alike, as the ops that do them in one kernel on a GPU."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from assay import ops


class Linear(nn.Linear):
    """torch's, with relu on top if asked for."""

    op: ClassVar[str] = "affine"
    relu = False

    def forward(self, x: Tensor) -> Tensor:
        bias = self.weight.new_zeros(self.out_features) if self.bias is None else self.bias
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        y = ops.affine(rows, self.weight[None, None], bias[None, None], relu=self.relu)
        return y.view(*x.shape[:-1], self.out_features)


class LayerNorm(nn.LayerNorm):
    """torch's, over the last axis."""

    op: ClassVar[str] = "layer_norm"

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(x), 1, -1, x.shape[-1])
        return ops.layer_norm(rows, self.weight[None, None], self.bias[None, None]).view(x.shape)
