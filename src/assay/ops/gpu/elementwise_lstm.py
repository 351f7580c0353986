"""The e-LSTM's recurrence, one program per row, head and block of elements; its gradient needs only its outputs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded, sigmoid, tanh
from assay.ops.grouped import group_sum


def outputs(z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    return (torch.empty_like(z),)


def forward(outputs: tuple[Tensor, ...], z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> None:
    _launch(_forward, z, f, w_z, w_f, c, *outputs)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    dz, df, dc = (torch.empty_like(x) for x in (z, f, c))
    by_row = torch.empty_like(c), torch.empty_like(c)
    _launch(_backward, z, f, w_z, w_f, c, *outputs, *grads, dz, df, *by_row, dc)
    dw_z, dw_f = (group_sum(dw, len(w_z)).to(w_z.dtype) for dw in by_row)
    return dz, df, dw_z, dw_f, dc


def _launch(kernel: triton.JITFunction, z: Tensor, f: Tensor, w_z: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = z.shape
    block = min(padded(size), 64)
    grid = (batch * heads, triton.cdiv(size, block))
    kernel[grid](z, f, w_z, *others, batch // len(w_z), heads, time, size, BLOCK=block, num_warps=1)


@triton.jit
def _forward(z_in, f_in, w_z, w_f, first, cells, rows, heads, T, D, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < D
    at, weight = sequence * T * D + column, (sequence // heads // rows * heads + sequence % heads) * D + column
    c = tl.load(first + sequence * D + column, mask=real, other=0.0)
    w_z, w_f = load(w_z + weight, real, c), load(w_f + weight, real, c)
    for t in tl.range(T, num_stages=6):
        z = tanh(load(z_in + t * D + at, real, c) + w_z * c)
        f = sigmoid(load(f_in + t * D + at, real, c) + w_f * c)
        c = f * c + (1.0 - f) * z
        tl.store(cells + t * D + at, c, mask=real)


@triton.jit
def _backward(
    z_in,
    f_in,
    w_z,
    w_f,
    first,
    cells,
    dcells,
    dz_in,
    df_in,
    dw_z_by_row,
    dw_f_by_row,
    dfirst,
    rows,
    heads,
    T,
    D,
    BLOCK: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < D
    state, at = sequence * D + column, sequence * T * D + column
    weight = (sequence // heads // rows * heads + sequence % heads) * D + column
    c = tl.load(first + state, mask=real, other=0.0)
    w_z, w_f = load(w_z + weight, real, c), load(w_f + weight, real, c)
    dc, dw_z, dw_f = tl.zeros_like(c), tl.zeros_like(c), tl.zeros_like(c)
    for t in tl.range(T - 1, -1, -1, num_stages=6):
        before = tl.where(t > 0, load(cells + (t - 1) * D + at, real & (t > 0), c), c)
        z = tanh(load(z_in + t * D + at, real, c) + w_z * before)
        f = sigmoid(load(f_in + t * D + at, real, c) + w_f * before)
        dc += load(dcells + t * D + at, real, c)
        dz = dc * (1.0 - f) * (1.0 - z * z)
        df = dc * (before - z) * f * (1.0 - f)
        tl.store(dz_in + t * D + at, dz, mask=real)
        tl.store(df_in + t * D + at, df, mask=real)
        dw_z += dz * before
        dw_f += df * before
        dc = dc * f + dz * w_z + df * w_f
    tl.store(dw_z_by_row + state, dw_z, mask=real)
    tl.store(dw_f_by_row + state, dw_f, mask=real)
    tl.store(dfirst + state, dc, mask=real)
