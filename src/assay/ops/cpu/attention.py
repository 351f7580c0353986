"""Causal softmax attention by PyTorch's own kernel for CPUs, which keeps no matrix of all pairs in memory.

PyTorch's function for it has no vmap rule for its gradient: as a kernel, it gets the members folded into the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def outputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """o, and the logarithm of every query's sum of exponentials."""
    return torch.empty_like(q), q.new_empty(q.shape[:3])


def forward(outputs: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> None:
    results = _forward(q, k, v, 0.0, **_mask(q, k))
    for output, result in zip(outputs, results, strict=True):
        output.copy_(result)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    return tuple(_backward(grads[0], q, k, v, *outputs, 0.0, **_mask(q, k)))


def _mask(q: Tensor, k: Tensor) -> dict[str, Any]:
    """The arguments that hide the future; PyTorch's own causal mask has the first query at the first key."""
    time, source = q.shape[2], k.shape[2]
    if time == source:
        return {"is_causal": True}
    positions = torch.arange(source)
    hidden = positions > positions[source - time :, None]
    return {"is_causal": False, "attn_mask": q.new_zeros(hidden.shape).masked_fill(hidden, -torch.inf)}
