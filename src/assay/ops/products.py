"""Products of weights and states with vectors, for every row and head at once: what the steps are written with."""

from __future__ import annotations

import torch
from torch import Tensor


def per_row(weight: Tensor, batch: int) -> Tensor:
    """The weight of a group for each of its rows: row i belongs to group i // (batch / groups)."""
    return weight.repeat_interleave(batch // weight.shape[0], dim=0)


def weigh(R: Tensor, x: Tensor) -> Tensor:
    """R x, with the weight of each row's group: R [groups, heads, out, dim], x [batch, heads, dim]."""
    by_group = x.reshape(R.shape[0], -1, *x.shape[1:]).transpose(1, 2)
    return (by_group @ R.mT).transpose(1, 2).reshape(*x.shape[:2], -1)


def apply(W: Tensor, x: Tensor) -> Tensor:
    """W x for every row and head."""
    return (W @ x[..., None])[..., 0]


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a b^T for every row and head."""
    return a[..., :, None] * b[..., None, :]


def as_complex(x: Tensor) -> Tensor:
    """Complex numbers whose real and imaginary parts are the last axis."""
    return torch.view_as_complex(x.contiguous())
