"""Gradients of weights that the rows of a group share, as matrix products over a kernel's outputs: no atomic sums."""

from __future__ import annotations

import torch
from torch import Tensor


def before(first: Tensor, outputs: Tensor) -> Tensor:
    """The state before each step: the first state, then all outputs but the last."""
    return torch.cat([first[:, :, None].to(outputs.dtype), outputs[:, :, :-1]], dim=2)


def weight_gradient(dz: Tensor, x: Tensor, groups: int) -> Tensor:
    """The gradient of R in z = R x: the sum of dz x^T over the rows of a group and time, [groups, heads, out, in].

    Computed row by row and then summed, where that takes less memory than a copy with the rows of a group together.
    """
    T, size = x.shape[2], dz.shape[3] + x.shape[3]
    if dz.shape[3] * x.shape[3] < T * size:
        return group_sum(dz.mT @ x, groups)
    dz, x = (a.reshape(groups, -1, *a.shape[1:]).transpose(1, 2).flatten(2, 3) for a in (dz, x))
    return dz.mT @ x


def or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    """The gradient of a state that may have none."""
    return torch.zeros_like(like) if grad is None else grad


def group_sum(rows: Tensor, groups: int) -> Tensor:
    """Sum over each group's rows."""
    return rows.reshape(groups, -1, *rows.shape[1:]).sum(1)
