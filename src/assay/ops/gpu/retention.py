"""Retention: linear attention with a decay per head."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.gpu.linear_attention_chunks import backward, forward, starts_like

__all__ = ["backward", "forward", "outputs"]


def outputs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    """o and the final state; then the states before every chunk."""
    return torch.empty_like(v), torch.empty_like(W), starts_like(q, v, W)
