"""h' = a h + b, one program per row, head and block of elements; its gradient needs only its outputs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded


def outputs(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return (torch.empty_like(b),)


def forward(outputs: tuple[Tensor, ...], a: Tensor, b: Tensor, h: Tensor) -> None:
    _launch(_forward, a, b, h, *outputs)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, b: Tensor, h: Tensor
) -> tuple[Tensor, ...]:
    input_grads = tuple(torch.empty_like(x) for x in (a, b, h))
    _launch(_backward, a, h, *outputs, *grads, *input_grads)
    return input_grads


def _launch(kernel: triton.JITFunction, a: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = a.shape
    block = min(padded(size), 64)
    grid = (batch * heads, triton.cdiv(size, block))
    parts = [torch.view_as_real(x) if x.is_complex() else x for x in (a, *others)]
    kernel[grid](*parts, time, size, COMPLEX=a.is_complex(), BLOCK=block, num_warps=1)


@triton.jit
def _forward(a, b, first, hidden, T, D, COMPLEX: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real, width = column < D, D
    if COMPLEX:  # every element is two numbers
        column, width = 2 * column, 2 * D
        h_im = tl.load(first + sequence * width + column + 1, mask=real, other=0.0)
    at = sequence * T * width + column
    h = tl.load(first + sequence * width + column, mask=real, other=0.0)
    for t in tl.range(T, num_stages=8):
        here = t * width + at
        x, y = load(a + here, real, h), load(b + here, real, h)
        if COMPLEX:
            x_im, y_im = load(a + here + 1, real, h), load(b + here + 1, real, h)
            h, h_im = x * h - x_im * h_im + y, x * h_im + x_im * h + y_im
            tl.store(hidden + here + 1, h_im, mask=real)
        else:
            h = x * h + y
        tl.store(hidden + here, h, mask=real)


@triton.jit
def _backward(a, first, hidden, dhidden, da, db, dfirst, T, D, COMPLEX: tl.constexpr, BLOCK: tl.constexpr):
    """dh_{t-1} = conj(a) dh and da = dh conj(h_{t-1}), as PyTorch defines a complex gradient."""
    sequence = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real, width = column < D, D
    if COMPLEX:
        column, width = 2 * column, 2 * D
        h_im = tl.load(first + sequence * width + column + 1, mask=real, other=0.0)
        dh_im = tl.zeros_like(h_im)
    state, at = sequence * width + column, sequence * T * width + column
    h = tl.load(first + state, mask=real, other=0.0)
    dh = tl.zeros_like(h)
    for t in tl.range(T - 1, -1, -1, num_stages=8):
        here, earlier = t * width + at, (t - 1) * width + at
        x = load(a + here, real, h)
        before = tl.where(t > 0, load(hidden + earlier, real & (t > 0), h), h)
        dh += load(dhidden + here, real, h)
        tl.store(db + here, dh, mask=real)
        if COMPLEX:
            x_im = load(a + here + 1, real, h)
            before_im = tl.where(t > 0, load(hidden + earlier + 1, real & (t > 0), h), h_im)
            dh_im += load(dhidden + here + 1, real, h)
            tl.store(db + here + 1, dh_im, mask=real)
            tl.store(da + here, dh * before + dh_im * before_im, mask=real)
            tl.store(da + here + 1, dh_im * before - dh * before_im, mask=real)
            dh, dh_im = x * dh + x_im * dh_im, x * dh_im - x_im * dh
        else:
            tl.store(da + here, dh * before, mask=real)
            dh = x * dh
    tl.store(dfirst + state, dh, mask=real)
    if COMPLEX:
        tl.store(dfirst + state + 1, dh_im, mask=real)
