"""Retention: linear attention with a decay per head."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.gpu import linear
from assay.ops.gpu.linear import backward, forward

__all__ = ["backward", "forward", "outputs"]


def outputs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    """o and the final state; then the states before every chunk."""
    return torch.empty_like(v), torch.empty_like(W), linear.starts_like(q, v, W)
