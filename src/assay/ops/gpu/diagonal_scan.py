"""The diagonal scan, one program per row, head and block of channels, with the states of all its channels in registers.

No state is ever stored. The gradient of u is the same scan, backward in time. That of `a` would need every state there,
so it is taken forward in time: with g = dh/da, which follows g' = a g + h, it is the sum of 2 C g dy.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, load, padded
from assay.ops.grouped import group_sum, or_zeros

Tensors = tuple[Tensor, ...]


def outputs(u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> Tensors:
    return torch.empty_like(u), torch.empty_like(h)


def forward(outputs: Tensors, u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> None:
    _launch(_forward, u, a, b, C, D, h, *outputs)


def backward(
    outputs: Tensors, grads: Tensors, u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> Tensors:
    dy, dlast = grads[0], or_zeros(grads[1], h)
    du, dh, da, db, dC = torch.empty_like(u), *(torch.empty_like(h) for _ in range(4))
    dD = h.new_empty(h.shape[:3])
    _launch(_backward_inputs, u, a, b, C, D, dy, dlast, du, db, dh)
    _launch(_backward_weights, u, a, b, C, h, dy, dlast, da, dC, dD)
    da, db, dC, dD = (group_sum(dw, len(w)).to(w.dtype) for dw, w in ((da, a), (db, b), (dC, C), (dD, D)))
    return du, da, db, dC, dD, dh


def _launch(kernel: triton.JITFunction, u: Tensor, a: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = u.shape
    states = padded(a.shape[3])
    block = _block(batch * heads * size, states)
    grid = (batch * heads, triton.cdiv(size, block))
    sizes = (batch // len(a), heads, time, size)
    kernel[grid](u, a, *others, *sizes, N=a.shape[3], BLOCK=block, STATES=states, num_warps=1)


def _block(channels: int, states: int) -> int:
    """How many channels a program takes, on the 32 lanes of a warp: fewer if there are few, or many states of each."""
    lanes = 32 * 8 * MULTIPROCESSORS
    return 8 if 4 * channels < lanes or states > 32 else 16


@triton.jit
def _load_pair(pointers, mask, like):
    """Complex numbers: the real and the imaginary part lie side by side."""
    return load(pointers, mask, like), load(pointers + 1, mask, like)


@triton.jit
def _store_pair(pointers, re, im, mask):
    tl.store(pointers, re, mask=mask)
    tl.store(pointers + 1, im, mask=mask)


@triton.jit
def _product(x, x_im, y, y_im):
    return x * y - x_im * y_im, x * y_im + x_im * y


@triton.jit
def _places(rows, heads, D, N: tl.constexpr, BLOCK: tl.constexpr, STATES: tl.constexpr):
    """A program's sequence, the offset of its weights, its channels and its states [STATES, BLOCK], and which exist."""
    sequence = tl.program_id(0).to(tl.int64)
    d, n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :], tl.arange(0, STATES)[:, None]
    weight = sequence // heads // rows * heads + sequence % heads
    return sequence, weight, d, d * N + n, (d < D) & (n < N)


@triton.jit
def _forward(
    u, a, b, C, D_skip, first, y, last, rows, heads, T, D, N: tl.constexpr, BLOCK: tl.constexpr, STATES: tl.constexpr
):
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    state, at = 2 * (sequence * D * N + at), 2 * (weight * D * N + at)
    h = tl.load(first + state, mask=real, other=0.0)
    h_im = tl.load(first + state + 1, mask=real, other=0.0)
    a_re, a_im = _load_pair(a + at, real, h)
    b_re, b_im = _load_pair(b + at, real, h)
    c_re, c_im = _load_pair(C + at, real, h)
    c_re, c_im = 2.0 * c_re, 2.0 * c_im
    skip = load(D_skip + weight * D + d, d < D, h)
    start = sequence * T * D + d
    value_1, value_2 = load(u + start, d < D, h), load(u + start + tl.minimum(1, T - 1) * D, d < D, h)
    for t in range(T):
        value, value_1 = value_1, value_2
        value_2 = load(u + start + tl.minimum(t + 2, T - 1) * D, d < D, h)
        h, h_im = _product(a_re, a_im, h, h_im)
        h += b_re * value
        h_im += b_im * value
        read = tl.sum(c_re * h - c_im * h_im, 0, keep_dims=True)
        tl.store(y + start + t * D, read + skip * value, mask=d < D)
    _store_pair(last + state, h, h_im, real)


@triton.jit
def _backward_inputs(
    u,
    a,
    b,
    C,
    D_skip,
    dy,
    dlast,
    du,
    db,
    dfirst,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    STATES: tl.constexpr,
):
    """With the conjugate e of the gradient of h: e += 2 C dy, du = Re(b e) + D dy, db = sum of e u; e = a e before."""
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    state, at = 2 * (sequence * D * N + at), 2 * (weight * D * N + at)
    e = tl.load(dlast + state, mask=real, other=0.0)
    e_im = -tl.load(dlast + state + 1, mask=real, other=0.0)
    a_re, a_im = _load_pair(a + at, real, e)
    b_re, b_im = _load_pair(b + at, real, e)
    c_re, c_im = _load_pair(C + at, real, e)
    c_re, c_im = 2.0 * c_re, 2.0 * c_im
    skip = load(D_skip + weight * D + d, d < D, e)
    db_re, db_im = tl.zeros_like(e), tl.zeros_like(e)
    start = sequence * T * D + d
    value_1, grad_1 = load(u + start + (T - 1) * D, d < D, e), load(dy + start + (T - 1) * D, d < D, e)
    for t in range(T - 1, -1, -1):
        value, grad, ahead = value_1, grad_1, start + tl.maximum(t - 1, 0) * D
        value_1, grad_1 = load(u + ahead, d < D, e), load(dy + ahead, d < D, e)
        e += c_re * grad
        e_im += c_im * grad
        tl.store(du + start + t * D, tl.sum(b_re * e - b_im * e_im, 0, keep_dims=True) + skip * grad, mask=d < D)
        db_re += e * value
        db_im += e_im * value
        e, e_im = _product(a_re, a_im, e, e_im)
    _store_pair(db + state, db_re, -db_im, real)
    _store_pair(dfirst + state, e, -e_im, real)


@triton.jit
def _backward_weights(
    u,
    a,
    b,
    C,
    first,
    dy,
    dlast,
    da,
    dC,
    dD,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    STATES: tl.constexpr,
):
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    state, at = 2 * (sequence * D * N + at), 2 * (weight * D * N + at)
    h = tl.load(first + state, mask=real, other=0.0)
    h_im = tl.load(first + state + 1, mask=real, other=0.0)
    a_re, a_im = _load_pair(a + at, real, h)
    b_re, b_im = _load_pair(b + at, real, h)
    g, g_im = tl.zeros_like(h), tl.zeros_like(h)
    sum_g, sum_g_im, sum_h, sum_h_im = g, g, g, g
    dskip = tl.sum(g, 0, keep_dims=True)
    start = sequence * T * D + d
    value_1, grad_1 = load(u + start, d < D, h), load(dy + start, d < D, h)
    for t in range(T):
        value, grad, ahead = value_1, grad_1, start + tl.minimum(t + 1, T - 1) * D
        value_1, grad_1 = load(u + ahead, d < D, h), load(dy + ahead, d < D, h)
        g, g_im = h - a_im * g_im + a_re * g, h_im + a_im * g + a_re * g_im
        h, h_im = _product(a_re, a_im, h, h_im)
        h += b_re * value
        h_im += b_im * value
        sum_g += g * grad
        sum_g_im += g_im * grad
        sum_h += h * grad
        sum_h_im += h_im * grad
        dskip += grad * value
    c_re, c_im = _load_pair(C + at, real, h)
    through, through_im = _product(2.0 * c_re, 2.0 * c_im, sum_g, sum_g_im)
    e, e_im = tl.load(dlast + state, mask=real, other=0.0), -tl.load(dlast + state + 1, mask=real, other=0.0)
    at_end, at_end_im = _product(e, e_im, g, g_im)
    _store_pair(da + state, through + at_end, -through_im - at_end_im, real)
    _store_pair(dC + state, 2.0 * sum_h, -2.0 * sum_h_im, real)
    tl.store(dD + sequence * D + d, dskip, mask=d < D)
