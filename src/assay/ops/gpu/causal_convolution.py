"""y = silu(w . window + b), one program per row, head, block of moments and block of channels.

The window slides over the past and x, one after the other: moment t sees the entries t to t + N - 1. The past is
[N - 1, dim] here, as x is. The gradient of the sum before the silu passes through memory: an entry is in N windows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import sigmoid, state_type
from assay.ops.grouped import group_sum

Tensors = tuple[Tensor, ...]
SPAN = 128  # moments of a program


def outputs(x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> Tensors:
    return torch.empty_like(x), torch.empty_like(past)


def forward(outputs: Tensors, x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> None:
    y, last = outputs
    time, count = x.shape[2], past.shape[3]
    _launch(_forward, x, w, b, past.mT.contiguous(), y)
    last.copy_(torch.cat([past, x[:, :, max(time - count, 0) :].mT], dim=-1)[..., min(time, count) :])


def backward(outputs: Tensors, grads: Tensors, x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> Tensors:
    (batch, heads, time, size), count = x.shape, past.shape[3]
    first = past.mT.contiguous()
    dtotal, dx, dfirst = x.new_empty(x.shape, dtype=past.dtype), torch.empty_like(x), torch.empty_like(first)
    dweights = past.new_empty(batch, triton.cdiv(time + count, SPAN), heads, count + 2, size)
    _launch(_backward_silu, x, w, b, first, grads[0], dtotal)
    _launch(_backward, x, w, first, dtotal, dx, dfirst, dweights)
    *dw, db = group_sum(dweights.flatten(0, 1), len(w)).unbind(2)
    dpast = dfirst.mT
    if grads[1] is not None:  # the last entries are also the final state
        entries = torch.cat([dpast, dx.mT], dim=-1)
        entries[..., time:] += grads[1]
        dpast, dx = entries[..., :count], entries[..., count:].mT.to(x.dtype)
    return dx, torch.stack(dw, -1).to(w.dtype), db.to(b.dtype), dpast


def _launch(kernel: triton.JITFunction, x: Tensor, w: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = x.shape
    grid = (batch * heads, triton.cdiv(time + w.shape[3] - 1, SPAN), triton.cdiv(size, 64))
    sizes = (batch // len(w), heads, time, size)
    settings = {"N": w.shape[3], "SPAN": SPAN, "MOMENTS": 16, "CHANNELS": 64, "REAL": state_type(x)}
    kernel[grid](x, w, *others, *sizes, **settings, num_warps=4)


@triton.jit
def _entry(x, past, i, d, sequence, T, D, N: tl.constexpr, REAL: tl.constexpr):
    """Entry i of the past and x; zero outside."""
    P: tl.constexpr = N - 1
    before = tl.load(past + (sequence * P + i) * D + d, mask=(i >= 0) & (i < P) & (d < D), other=0.0)
    now = tl.load(x + (sequence * T + i - P) * D + d, mask=(i >= P) & (i < T + P) & (d < D), other=0.0)
    return before.to(REAL) + now.to(REAL)


@triton.jit
def _total(x, w, b, past, t, d, sequence, weight, T, D, N: tl.constexpr, REAL: tl.constexpr):
    """w . window + b at the moments t."""
    total = tl.zeros_like(t + d).to(REAL) + tl.load(b + weight + d, mask=d < D, other=0.0).to(REAL)
    for k in tl.range(N, loop_unroll_factor=4):
        factor = tl.load(w + (weight + d) * N + k, mask=d < D, other=0.0).to(REAL)
        total += factor * _entry(x, past, t + k, d, sequence, T, D, N, REAL)
    return total


@triton.jit(do_not_specialize=("rows", "T"))
def _forward(
    x,
    w,
    b,
    past,
    y,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SPAN: tl.constexpr,
    MOMENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    REAL: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    weight = (sequence // heads // rows * heads + sequence % heads) * D
    d = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    start = tl.program_id(1) * SPAN
    for first in range(start, tl.minimum(start + SPAN, T), MOMENTS):
        t = first + tl.arange(0, MOMENTS)[:, None]
        total = _total(x, w, b, past, t, d, sequence, weight, T, D, N, REAL)
        tl.store(y + (sequence * T + t) * D + d, total * sigmoid(total), mask=(t < T) & (d < D))


@triton.jit(do_not_specialize=("rows", "T"))
def _backward_silu(
    x,
    w,
    b,
    past,
    dy,
    dtotal,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SPAN: tl.constexpr,
    MOMENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    REAL: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    weight = (sequence // heads // rows * heads + sequence % heads) * D
    d = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    start = tl.program_id(1) * SPAN
    for first in range(start, tl.minimum(start + SPAN, T), MOMENTS):
        t = first + tl.arange(0, MOMENTS)[:, None]
        at, present = (sequence * T + t) * D + d, (t < T) & (d < D)
        total = _total(x, w, b, past, t, d, sequence, weight, T, D, N, REAL)
        s = sigmoid(total)
        grad = tl.load(dy + at, mask=present, other=0.0).to(REAL)
        tl.store(dtotal + at, grad * s * (1.0 + total * (1.0 - s)), mask=present)


@triton.jit(do_not_specialize=("rows", "T"))
def _backward(
    x,
    w,
    past,
    dtotal,
    dx,
    dpast,
    dweights,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SPAN: tl.constexpr,
    MOMENTS: tl.constexpr,
    CHANNELS: tl.constexpr,
    REAL: tl.constexpr,
):
    """Entry i is at place k of the window of moment i - k. The bias is the weight of an entry that is always 1."""
    sequence = tl.program_id(0).to(tl.int64)
    weight = (sequence // heads // rows * heads + sequence % heads) * D
    d = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    start = tl.program_id(1) * SPAN
    P: tl.constexpr = N - 1
    end = tl.minimum(start + SPAN, T + P)
    for first in range(start, end, MOMENTS):
        i = first + tl.arange(0, MOMENTS)[:, None]
        dentry = tl.zeros([MOMENTS, CHANNELS], REAL)
        for k in tl.range(N, loop_unroll_factor=4):
            present = (i >= k) & (i < T + k) & (d < D)
            factor = tl.load(w + (weight + d) * N + k, mask=d < D, other=0.0).to(REAL)
            dentry += factor * tl.load(dtotal + (sequence * T + i - k) * D + d, mask=present, other=0.0)
        tl.store(dx + (sequence * T + i - P) * D + d, dentry, mask=(i >= P) & (i < T + P) & (d < D))
        tl.store(dpast + (sequence * P + i) * D + d, dentry, mask=(i < P) & (d < D))
    span = (sequence // heads * tl.num_programs(1) + tl.program_id(1)) * heads + sequence % heads
    for k in range(N + 1):
        dweight = tl.zeros([MOMENTS, CHANNELS], REAL)
        for first in range(start, tl.minimum(end, T), MOMENTS):
            t = first + tl.arange(0, MOMENTS)[:, None]
            grad = tl.load(dtotal + (sequence * T + t) * D + d, mask=(t < T) & (d < D), other=0.0)
            entry = _entry(x, past, t + k, d, sequence, T, D, N, REAL)
            dweight += grad * tl.where(k < N, entry, 1.0)
        tl.store(dweights + (span * (N + 1) + k) * D + d, tl.sum(dweight, 0, keep_dims=True), mask=d < D)
