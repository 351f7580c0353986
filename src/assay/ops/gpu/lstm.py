"""Long short-term memory; saves its gates i, f, g, o and the cell before every step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, sigmoid, tanh
from assay.ops.gpu.recurrent import launch, load_rows, matmul, stream, tile, transposed
from assay.ops.grouped import before, or_zeros, weight_gradient


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    steps, size = a.shape[:3], h.shape[-1]
    hidden, gates, cells = a.new_empty(*steps, size), c.new_empty(*steps, 4 * size), c.new_empty(*steps, size)
    return hidden, torch.empty_like(c), gates, cells


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> None:
    grid, settings = launch(a, R, h)
    _forward[grid](a, transposed(R, 4, h.dtype), h, c, torch.empty_like(h), *outputs, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    hidden, _, gates, cells = outputs
    da, dh, dc = (torch.empty_like(x) for x in (a, h, c))
    exchange = h.new_empty(*h.shape[:2], 4 * h.shape[2])
    grid, settings = launch(a, R, h)
    dh_out, dc_out = grads[0], or_zeros(grads[1], c)
    _backward[grid](R.to(h.dtype), gates, cells, dh_out, dc_out, exchange, da, dh, dc, **settings)
    return da, weight_gradient(da, before(h, hidden), len(R)), dh, dc


@triton.jit
def _forward(
    a,
    R,
    first_h,
    first_c,
    exchange,
    hidden,
    last_c,
    gates,
    cells,
    rows,
    heads,
    T,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STREAM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at, at_gates = sequence * D + column, sequence * T * D + column, sequence * T * 4 * D + column
    h = tl.load(first_h + state, mask=real, other=0.0)
    c = tl.load(first_c + state, mask=real, other=0.0)
    R_i = R + matrix * 4 * D * D
    R_f, R_g, R_o = R_i + D * D, R_i + 2 * D * D, R_i + 3 * D * D
    if STREAM == 0:
        kept_i = load_rows(R_i, 0, D, D, BLOCK, BLOCK)
        kept_f = load_rows(R_f, 0, D, D, BLOCK, BLOCK)
        kept_g = load_rows(R_g, 0, D, D, BLOCK, BLOCK)
        kept_o = load_rows(R_o, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T, num_stages=2):
        i = load(a + t * 4 * D + at_gates, real, h)
        f = load(a + t * 4 * D + D + at_gates, real, h)
        g = load(a + t * 4 * D + 2 * D + at_gates, real, h)
        o = load(a + t * 4 * D + 3 * D + at_gates, real, h)
        if STREAM == 0:
            g = matmul(h, kept_g, g, PRECISION)  # first: in the gates' own order Triton 3.9's compiler aborts
            i = matmul(h, kept_i, i, PRECISION)
            f = matmul(h, kept_f, f, PRECISION)
            o = matmul(h, kept_o, o, PRECISION)
        else:
            tl.store(exchange + state, h, mask=real)
            tl.debug_barrier()
            for start in tl.range(0, D, STREAM, num_stages=3):
                some = start + tl.arange(0, STREAM)[None, :]
                part = tl.load(exchange + sequence * D + some, mask=present & (some < D), other=0.0)
                i = matmul(part, load_rows(R_i, start, D, D, STREAM, BLOCK), i, PRECISION)
                f = matmul(part, load_rows(R_f, start, D, D, STREAM, BLOCK), f, PRECISION)
                g = matmul(part, load_rows(R_g, start, D, D, STREAM, BLOCK), g, PRECISION)
                o = matmul(part, load_rows(R_o, start, D, D, STREAM, BLOCK), o, PRECISION)
            tl.debug_barrier()
        g, i, f, o = tanh(g), sigmoid(i), sigmoid(f), sigmoid(o)
        tl.store(gates + t * 4 * D + at_gates, i, mask=real)
        tl.store(gates + t * 4 * D + D + at_gates, f, mask=real)
        tl.store(gates + t * 4 * D + 2 * D + at_gates, g, mask=real)
        tl.store(gates + t * 4 * D + 3 * D + at_gates, o, mask=real)
        tl.store(cells + t * D + at, c, mask=real)
        c = f * c + i * g
        h = o * tanh(c)
        tl.store(hidden + t * D + at, h, mask=real)
    tl.store(last_c + state, c, mask=real)


@triton.jit
def _backward(
    R,
    gates,
    cells,
    dhidden,
    dlast_c,
    exchange,
    da,
    dfirst_h,
    dfirst_c,
    rows,
    heads,
    T,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STREAM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at, at_gates = sequence * D + column, sequence * T * D + column, sequence * T * 4 * D + column
    dc = tl.load(dlast_c + state, mask=real, other=0.0)
    dh = tl.zeros_like(dc)
    R += matrix * 4 * D * D
    if STREAM == 0:
        kept_i = load_rows(R, 0, D, D, BLOCK, BLOCK)
        kept_f = load_rows(R + D * D, 0, D, D, BLOCK, BLOCK)
        kept_g = load_rows(R + 2 * D * D, 0, D, D, BLOCK, BLOCK)
        kept_o = load_rows(R + 3 * D * D, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        i = tl.load(gates + t * 4 * D + at_gates, mask=real, other=0.0)
        f = tl.load(gates + t * 4 * D + D + at_gates, mask=real, other=0.0)
        g = tl.load(gates + t * 4 * D + 2 * D + at_gates, mask=real, other=0.0)
        o = tl.load(gates + t * 4 * D + 3 * D + at_gates, mask=real, other=0.0)
        before = tl.load(cells + t * D + at, mask=real, other=0.0)
        dh += load(dhidden + t * D + at, real, dh)
        squashed = tanh(f * before + i * g)
        dc += dh * o * (1.0 - squashed * squashed)
        di = dc * g * i * (1.0 - i)
        df = dc * before * f * (1.0 - f)
        dg = dc * i * (1.0 - g * g)
        do = dh * squashed * o * (1.0 - o)
        dc *= f
        tl.store(da + t * 4 * D + at_gates, di, mask=real)
        tl.store(da + t * 4 * D + D + at_gates, df, mask=real)
        tl.store(da + t * 4 * D + 2 * D + at_gates, dg, mask=real)
        tl.store(da + t * 4 * D + 3 * D + at_gates, do, mask=real)
        dh = tl.zeros_like(dc)
        if STREAM == 0:
            dh = matmul(di, kept_i, dh, PRECISION)
            dh = matmul(df, kept_f, dh, PRECISION)
            dh = matmul(dg, kept_g, dh, PRECISION)
            dh = matmul(do, kept_o, dh, PRECISION)
        else:
            to = exchange + sequence * 4 * D + column
            tl.store(to, di, mask=real)
            tl.store(to + D, df, mask=real)
            tl.store(to + 2 * D, dg, mask=real)
            tl.store(to + 3 * D, do, mask=real)
            tl.debug_barrier()
            dh = stream(exchange, R, dh, sequence, present, 4 * D, D, BLOCK, STREAM, PRECISION)
            tl.debug_barrier()
    tl.store(dfirst_h + state, dh, mask=real)
    tl.store(dfirst_c + state, dc, mask=real)
