"""State-space models: the state is multiplied and added to, element by element."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.description import BadInput
from assay.ops import chunked
from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator
from assay.ops.products import apply, outer

__all__ = ["diagonal_scan", "selective_scan"]


# -- the diagonal scan ---------------------------------------------------------------------------------------------


def diagonal_scan_step(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor]:
    """h' = a h + b, element by element, real or complex."""
    return (a * h + b,)


DIAGONAL_SCAN = define(
    Operator(
        "diagonal_scan",
        diagonal_scan_step,
        inputs={"a": "B H T D", "b": "B H T D", "h": "B H D"},
        outputs={"h": "B H T D"},
        kernels={"cpu": 0, "gpu": 0},
        chunked=chunked.diagonal_scan,
        chunked_on_cpu=False,  # doubling moves many times the memory
        complex=True,
        typical={"a": lambda a: a / (1 + a.abs())},  # inside the unit circle
        usual={"H": 1, "D": 64, "N": 16},
    )
)


def diagonal_scan(a: Tensor, b: Tensor, h: Tensor | None = None, *, backend: Backend = "auto") -> tuple[Tensor, Tensor]:
    """h' = a h + b element by element, real or complex; b is [batch, heads, time, *dims] and `a` broadcasts to it."""
    if b.ndim < 3:
        raise BadInput(f"diagonal_scan: b has shape {list(b.shape)}; expected at least 3 axes (batch, heads, time)")
    try:
        a = a.expand_as(b)
    except RuntimeError:
        raise BadInput(
            f"diagonal_scan: a has shape {list(a.shape)}; expected one that broadcasts to b's, {list(b.shape)}"
        ) from None
    dims = b.shape[3:]
    state = b.shape[:2] + dims
    if h is not None and h.shape != state:
        raise BadInput(f"diagonal_scan: h has shape {list(h.shape)}; expected {list(state)} (batch, heads, dims)")
    dtype = torch.promote_types(a.dtype, b.dtype)
    flat_a, flat_b = (x.to(dtype).reshape(*x.shape[:3], math.prod(dims)) for x in (a, b))
    flat_h = None if h is None else h.reshape(*h.shape[:2], math.prod(dims))
    outputs, final = call(DIAGONAL_SCAN, flat_a, flat_b, flat_h, backend=backend)
    return outputs.view(b.shape), final.reshape(state)


# -- the selective scan --------------------------------------------------------------------------------------------


def selective_scan_step(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """h' = exp(dt A) h + dt x B^T, y = h' C (Gu and Dao 2023); x, dt [batch, heads, dim], B, C [..., state]."""
    h = torch.exp(dt[..., None] * A) * h + outer(dt * x, B)
    return apply(h, C), h


SELECTIVE_SCAN = define(
    Operator(
        "selective_scan",
        selective_scan_step,
        inputs={"x": "B H T D", "dt": "B H T D", "A": "G H D N", "B": "B H T N", "C": "B H T N", "h": "B H D N"},
        outputs={"y": "B H T D", "h": "B H D N"},
        kernels={"cpu": 1, "gpu": 1},
        bounded="N",
        chunked=chunked.selective_scan,
        chunked_on_cpu=False,
        typical={"dt": F.softplus, "A": lambda A: -A.exp()},
        usual={"H": 1, "D": 128, "N": 16},
    )
)


def selective_scan(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor | None = None, *, backend: Backend = "auto"
) -> tuple[Tensor, Tensor]:
    """h' = exp(dt A) h + dt x B^T, y = h' C; A is [groups, heads, dim, state], B and C [batch, heads, time, state]."""
    y, h = call(SELECTIVE_SCAN, x, dt, A, B, C, h, backend=backend)
    return y, h
