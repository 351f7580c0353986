"""The gated recurrent unit; saves r, z, n and u = R_n h + b of every step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, sigmoid, tanh
from assay.ops.gpu.recurrent import launch, load_rows, matmul, stream, tile, transposed
from assay.ops.grouped import before, group_sum, weight_gradient


def outputs(a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    steps, size = a.shape[:3], h.shape[-1]
    return a.new_empty(*steps, size), h.new_empty(*steps, 4 * size)


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> None:
    grid, settings = launch(a, R, h)
    _forward[grid](a, transposed(R, 3, h.dtype), b, h, torch.empty_like(h), *outputs, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, b: Tensor, h: Tensor
) -> tuple[Tensor, ...]:
    hidden, gates = outputs
    da, du, dh = torch.empty_like(a), torch.empty_like(hidden), torch.empty_like(h)
    groups, size = len(R), h.shape[2]
    exchange = h.new_empty(*h.shape[:2], 3 * size)
    grid, settings = launch(a, R, h)
    _backward[grid](R.to(h.dtype), h, hidden, gates, *grads, exchange, da, du, dh, **settings)
    dz = torch.cat([da[..., : 2 * size], du], dim=-1)
    db = group_sum(du.sum(2, dtype=h.dtype), groups).to(b.dtype)
    return da, weight_gradient(dz, before(h, hidden), groups), db, dh


@triton.jit
def _forward(
    a,
    R,
    b,
    first,
    exchange,
    hidden,
    gates,
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
    state, at = sequence * D + column, sequence * T * D + column
    at_a, at_gates = sequence * T * 3 * D + column, sequence * T * 4 * D + column
    h = tl.load(first + state, mask=real, other=0.0)
    bias = tl.broadcast_to(load(b + matrix * D + column, column < D, h), [ROWS, BLOCK])
    R_r = R + matrix * 3 * D * D
    R_z, R_n = R_r + D * D, R_r + 2 * D * D
    if STREAM == 0:
        kept_r = load_rows(R_r, 0, D, D, BLOCK, BLOCK)
        kept_z = load_rows(R_z, 0, D, D, BLOCK, BLOCK)
        kept_n = load_rows(R_n, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T, num_stages=2):
        r = load(a + t * 3 * D + at_a, real, h)
        z = load(a + t * 3 * D + D + at_a, real, h)
        n = load(a + t * 3 * D + 2 * D + at_a, real, h)
        u = bias
        if STREAM == 0:
            r = matmul(h, kept_r, r, PRECISION)
            z = matmul(h, kept_z, z, PRECISION)
            u = matmul(h, kept_n, u, PRECISION)
        else:
            tl.store(exchange + state, h, mask=real)
            tl.debug_barrier()
            for start in tl.range(0, D, STREAM, num_stages=3):
                some = start + tl.arange(0, STREAM)[None, :]
                part = tl.load(exchange + sequence * D + some, mask=present & (some < D), other=0.0)
                r = matmul(part, load_rows(R_r, start, D, D, STREAM, BLOCK), r, PRECISION)
                z = matmul(part, load_rows(R_z, start, D, D, STREAM, BLOCK), z, PRECISION)
                u = matmul(part, load_rows(R_n, start, D, D, STREAM, BLOCK), u, PRECISION)
            tl.debug_barrier()
        r, z = sigmoid(r), sigmoid(z)
        n = tanh(n + r * u)
        h = (1.0 - z) * n + z * h
        tl.store(gates + t * 4 * D + at_gates, r, mask=real)
        tl.store(gates + t * 4 * D + D + at_gates, z, mask=real)
        tl.store(gates + t * 4 * D + 2 * D + at_gates, n, mask=real)
        tl.store(gates + t * 4 * D + 3 * D + at_gates, u, mask=real)
        tl.store(hidden + t * D + at, h, mask=real)


@triton.jit
def _backward(
    R,
    first,
    hidden,
    gates,
    dhidden,
    exchange,
    da,
    dproduct,
    dfirst,
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
    state, at = sequence * D + column, sequence * T * D + column
    at_a, at_gates = sequence * T * 3 * D + column, sequence * T * 4 * D + column
    h = tl.load(first + state, mask=real, other=0.0)
    dh = tl.zeros_like(h)
    R += matrix * 3 * D * D
    if STREAM == 0:
        kept_r = load_rows(R, 0, D, D, BLOCK, BLOCK)
        kept_z = load_rows(R + D * D, 0, D, D, BLOCK, BLOCK)
        kept_n = load_rows(R + 2 * D * D, 0, D, D, BLOCK, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        r = tl.load(gates + t * 4 * D + at_gates, mask=real, other=0.0)
        z = tl.load(gates + t * 4 * D + D + at_gates, mask=real, other=0.0)
        n = tl.load(gates + t * 4 * D + 2 * D + at_gates, mask=real, other=0.0)
        u = tl.load(gates + t * 4 * D + 3 * D + at_gates, mask=real, other=0.0)
        before = tl.where(t > 0, load(hidden + (t - 1) * D + at, real & (t > 0), h), h)
        dh += load(dhidden + t * D + at, real, dh)
        dz = dh * (before - n) * z * (1.0 - z)
        dn = dh * (1.0 - z) * (1.0 - n * n)
        dr = dn * u * r * (1.0 - r)
        du = dn * r
        tl.store(da + t * 3 * D + at_a, dr, mask=real)
        tl.store(da + t * 3 * D + D + at_a, dz, mask=real)
        tl.store(da + t * 3 * D + 2 * D + at_a, dn, mask=real)
        tl.store(dproduct + t * D + at, du, mask=real)
        dh *= z
        if STREAM == 0:
            dh = matmul(dr, kept_r, dh, PRECISION)
            dh = matmul(dz, kept_z, dh, PRECISION)
            dh = matmul(du, kept_n, dh, PRECISION)
        else:
            to = exchange + sequence * 3 * D + column
            tl.store(to, dr, mask=real)
            tl.store(to + D, dz, mask=real)
            tl.store(to + 2 * D, du, mask=real)
            tl.debug_barrier()
            dh = stream(exchange, R, dh, sequence, present, 3 * D, D, BLOCK, STREAM, PRECISION)
            tl.debug_barrier()
    tl.store(dfirst + state, dh, mask=real)
