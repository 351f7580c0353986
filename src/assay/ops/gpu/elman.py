"""The plain recurrent network; needs no more than its outputs for the gradient."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, tanh
from assay.ops.gpu.recurrent import launch, load_rows, matmul, stream, tile, transposed
from assay.ops.grouped import before, weight_gradient


def outputs(a: Tensor, R: Tensor, h: Tensor, relu: bool) -> tuple[Tensor, ...]:
    return (torch.empty_like(a),)


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, relu: bool) -> None:
    grid, settings = launch(a, R, h)
    _forward[grid](a, transposed(R, 1, h.dtype), h, torch.empty_like(h), *outputs, RELU=relu, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, relu: bool
) -> tuple[Tensor, ...]:
    (hidden,) = outputs
    da, dh = torch.empty_like(a), torch.empty_like(h)
    grid, settings = launch(a, R, h)
    _backward[grid](R.to(h.dtype), hidden, *grads, torch.empty_like(h), da, dh, RELU=relu, **settings)
    return da, weight_gradient(da, before(h, hidden), len(R)), dh


@triton.jit
def _forward(
    a,
    R,
    first,
    exchange,
    hidden,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STREAM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at = sequence * D + column, sequence * T * D + column
    h = tl.load(first + state, mask=real, other=0.0)
    R += matrix * D * D
    if STREAM == 0:
        kept = load_rows(R, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T, num_stages=2):
        x = load(a + t * D + at, real, h)
        if STREAM == 0:
            x = matmul(h, kept, x, PRECISION)
        else:
            tl.store(exchange + state, h, mask=real)
            tl.debug_barrier()
            x = stream(exchange, R, x, sequence, present, D, D, BLOCK, STREAM, PRECISION)
            tl.debug_barrier()
        h = tl.where(x < 0.0, 0.0, x) if RELU else tanh(x)
        tl.store(hidden + t * D + at, h, mask=real)


@triton.jit
def _backward(
    R,
    hidden,
    dhidden,
    exchange,
    da,
    dfirst,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STREAM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at = sequence * D + column, sequence * T * D + column
    dh = tl.zeros([ROWS, BLOCK], dtype=dfirst.dtype.element_ty)
    R += matrix * D * D
    if STREAM == 0:
        kept = load_rows(R, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        h = load(hidden + t * D + at, real, dh)
        dh += load(dhidden + t * D + at, real, dh)
        dx = tl.where(h > 0.0, dh, 0.0) if RELU else dh * (1.0 - h * h)
        tl.store(da + t * D + at, dx, mask=real)
        dh = tl.zeros_like(dh)
        if STREAM == 0:
            dh = matmul(dx, kept, dh, PRECISION)
        else:
            tl.store(exchange + state, dx, mask=real)
            tl.debug_barrier()
            dh = stream(exchange, R, dh, sequence, present, D, D, BLOCK, STREAM, PRECISION)
            tl.debug_barrier()
    tl.store(dfirst + state, dh, mask=real)
