"""Operators without a state, which do the same at every moment: a linear map and a norm, with weights per group."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator

__all__ = ["affine", "layer_norm"]

EPS = 1e-5  # the default of torch.nn.LayerNorm
_USUAL = {"H": 1, "D": 64, "O": 64}


# -- the linear map ------------------------------------------------------------------------------------------------


def affine_step(x: Tensor, W: Tensor, b: Tensor, relu: bool = False) -> tuple[Tensor]:
    """y = W x + b, or max(0, y): W [groups, heads, out, dim], b [groups, heads, out], x [batch, heads, time, dim]."""
    groups, heads, out, _ = W.shape
    if groups == heads == 1:
        y = F.linear(x, W[0, 0], b[0, 0])
    else:
        by_group = x.unflatten(0, (groups, -1)).transpose(1, 2)  # [groups, heads, rows, time, dim]
        y = by_group.flatten(2, 3) @ W.mT + b[:, :, None]
        y = y.unflatten(2, by_group.shape[2:4]).transpose(1, 2).reshape(*x.shape[:3], out)
    return (y.relu() if relu else y,)


AFFINE = define(
    Operator(
        "affine",
        affine_step,
        inputs={"x": "B H T D", "W": "G H O D", "b": "G H O"},
        outputs={"y": "B H T O"},
        kernels={"gpu": 0},
        flags={"relu": False},
        fusible=True,
        variants={"relu": {"relu": True}},
        usual=_USUAL,
    )
)


def affine(x: Tensor, W: Tensor, b: Tensor, *, relu: bool = False, backend: Backend = "auto") -> Tensor:
    """y = W x + b at every moment, or max(0, y); W is [groups, heads, out, dim], b [groups, heads, out]."""
    (y,) = call(AFFINE, x, W, b, relu=relu, backend=backend)
    return y


# -- the norm ------------------------------------------------------------------------------------------------------


def layer_norm_step(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor]:
    """y = w (x - mean) / sqrt(variance + EPS) + b, over the last axis: w, b [groups, heads, dim]."""
    groups, heads, dim = w.shape
    if groups == heads == 1:
        return (F.layer_norm(x, (dim,), w[0, 0], b[0, 0], EPS),)
    by_group: Tensor = F.layer_norm(x, (dim,), eps=EPS).unflatten(0, (groups, -1))
    return ((by_group * w[:, None, :, None] + b[:, None, :, None]).flatten(0, 1),)


LAYER_NORM = define(
    Operator(
        "layer_norm",
        layer_norm_step,
        inputs={"x": "B H T D", "w": "G H D", "b": "G H D"},
        outputs={"y": "B H T D"},
        kernels={"gpu": 1},
        fusible=True,
        usual=_USUAL,
    )
)


def layer_norm(x: Tensor, w: Tensor, b: Tensor, *, backend: Backend = "auto") -> Tensor:
    """y = w (x - mean) / sqrt(variance + 1e-5) + b at every moment, as torch.nn.LayerNorm has it."""
    (y,) = call(LAYER_NORM, x, w, b, backend=backend)
    return y
