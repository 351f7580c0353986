"""The permuted scan; a program is one row and head, with its state in registers."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded
from assay.ops.grouped import before

Tensors = tuple[Tensor, ...]


def outputs(P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    return (torch.empty_like(b),)


def forward(results: Tensors, P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> None:
    grid, settings = _launch(P)
    _forward[grid](P, a, b, h, *results, **settings)


def backward(results: Tensors, grads: Tensors, P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    dP, da, db, dh = (torch.empty_like(x) for x in (P, a, b, h))
    grid, settings = _launch(P)
    _backward[grid](P, a, before(h, results[0]), grads[0], dP, da, db, dh, **settings)
    return dP, da, db, dh


def _launch(P: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    batch, heads, time, size, _ = P.shape
    block = padded(size)
    return (batch * heads,), {"T": time, "N": size, "BLOCK": block, "num_warps": max(1, min(8, block * block // 512))}


@triton.jit
def _load_complex(pointer, real, like):
    return load(pointer, real, like), load(pointer + 1, real, like)


@triton.jit
def _forward(P, a, b, first, hidden, T, N: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    real, entry = n < N, 2 * n
    matrix, inside = n[:, None] * N + n[None, :], (n[:, None] < N) & (n[None, :] < N)
    x = tl.load(first + sequence * 2 * N + entry, mask=real, other=0.0)
    y = tl.load(first + sequence * 2 * N + entry + 1, mask=real, other=0.0)
    for t in tl.range(T, num_stages=2):
        moment = sequence * T + t
        at = moment * 2 * N + entry
        P_t = load(P + moment * N * N + matrix, inside, x)
        a_x, a_y = _load_complex(a + at, real, x)
        b_x, b_y = _load_complex(b + at, real, x)
        u, w = a_x * x - a_y * y, a_x * y + a_y * x
        x = tl.sum(P_t * u[None, :], 1) + b_x
        y = tl.sum(P_t * w[None, :], 1) + b_y
        tl.store(hidden + at, x, mask=real)
        tl.store(hidden + at + 1, y, mask=real)


@triton.jit
def _backward(P, a, previous, dhidden, dP, da, db, dfirst, T, N: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    real, entry = n < N, 2 * n
    matrix, inside = n[:, None] * N + n[None, :], (n[:, None] < N) & (n[None, :] < N)
    dx = tl.zeros([BLOCK], dtype=dfirst.dtype.element_ty)
    dy = tl.zeros_like(dx)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        moment = sequence * T + t
        at = moment * 2 * N + entry
        P_t = load(P + moment * N * N + matrix, inside, dx)
        a_x, a_y = _load_complex(a + at, real, dx)
        x, y = _load_complex(previous + at, real, dx)
        d_x, d_y = _load_complex(dhidden + at, real, dx)
        dx, dy = dx + d_x, dy + d_y
        u, w = a_x * x - a_y * y, a_x * y + a_y * x
        tl.store(db + at, dx, mask=real)
        tl.store(db + at + 1, dy, mask=real)
        tl.store(dP + moment * N * N + matrix, dx[:, None] * u[None, :] + dy[:, None] * w[None, :], mask=inside)
        du, dw = tl.sum(P_t * dx[:, None], 0), tl.sum(P_t * dy[:, None], 0)
        tl.store(da + at, du * x + dw * y, mask=real)
        tl.store(da + at + 1, dw * x - du * y, mask=real)
        dx, dy = du * a_x + dw * a_y, dw * a_x - du * a_y
    tl.store(dfirst + sequence * 2 * N + entry, dx, mask=real)
    tl.store(dfirst + sequence * 2 * N + entry + 1, dy, mask=real)
