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
STEPS = 8  # that are loaded at once


def outputs(u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> Tensors:
    return torch.empty_like(u), torch.empty_like(h)


def forward(outputs: Tensors, u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> None:
    y, last = outputs
    final = torch.empty_like(first := _turned(h))
    _launch(_forward, u, *map(_turned, (a, b, C)), D, first, y, final)
    last.copy_(final.transpose(2, 4))


def backward(
    outputs: Tensors, grads: Tensors, u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> Tensors:
    dy, dlast, first = grads[0], _turned(or_zeros(grads[1], h)), _turned(h)
    du, dh, da, db, dC = torch.empty_like(u), *(torch.empty_like(first) for _ in range(4))
    dD, weights = h.new_empty(h.shape[:3]), [_turned(w) for w in (a, b, C)]
    _launch(_backward_inputs, u, *weights, D, dy, dlast, du, db, dh)
    _launch(_backward_weights, u, *weights, first, dy, dlast, da, dC, dD)
    dweights = (group_sum(dw, len(a)).transpose(2, 4).to(a.dtype) for dw in (da, db, dC))
    return du, *dweights, group_sum(dD, len(D)).to(D.dtype), dh.transpose(2, 4)


def _turned(x: Tensor) -> Tensor:
    """From [..., dim, state, 2] to [..., 2, state, dim]: then neighbours in memory are neighbours on the lanes."""
    return x.transpose(2, 4).contiguous()


def _launch(kernel: triton.JITFunction, u: Tensor, a: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = u.shape
    count = a.shape[3]
    states = padded(count)
    block = _block(batch * heads * size, states)
    grid = (batch * heads, triton.cdiv(size, block))
    sizes = (batch // len(a), heads, time, size)
    kernel[grid](u, a, *others, *sizes, N=count, BLOCK=block, STATES=states, STEPS=STEPS, num_warps=1)


def _block(channels: int, states: int) -> int:
    """How many channels a program takes, on the 32 lanes of a warp: fewer if there are few, or many states of each."""
    lanes = 32 * 8 * MULTIPROCESSORS
    return 8 if 4 * channels < lanes or states > 32 else 16


@triton.jit
def _load_pair(pointers, size, mask, like):
    """Complex numbers: all real parts, then all imaginary ones."""
    return load(pointers, mask, like), load(pointers + size, mask, like)


@triton.jit
def _store_pair(pointers, size, re, im, mask):
    tl.store(pointers, re, mask=mask)
    tl.store(pointers + size, im, mask=mask)


@triton.jit
def _product(x, x_im, y, y_im):
    return x * y - x_im * y_im, x * y_im + x_im * y


@triton.jit
def _places(rows, heads, D, N: tl.constexpr, BLOCK: tl.constexpr, STATES: tl.constexpr):
    """A program's sequence, the offset of its weights, its channels and its states [STATES, BLOCK], and which exist."""
    sequence = tl.program_id(0).to(tl.int64)
    d, n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :], tl.arange(0, STATES)[:, None]
    weight = sequence // heads // rows * heads + sequence % heads
    return sequence, weight, d, n * D + d, (d < D) & (n < N)


@triton.jit
def _load_steps(pointers, D, mask, like, STEPS: tl.constexpr):
    """The values of some time steps, which are on their way together."""
    values = ()
    for i in tl.static_range(STEPS):
        values = values + (load(pointers + i * D, mask, like),)
    return values


@triton.jit
def _next_state(a, a_im, h, h_im, b, b_im, u):
    return b * u - a_im * h_im + a * h, b_im * u + a_im * h + a * h_im


@triton.jit(do_not_specialize=("rows", "T"))
def _forward(
    u,
    a,
    b,
    C,
    D_skip,
    first,
    y,
    last,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    STATES: tl.constexpr,
    STEPS: tl.constexpr,
):
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    size, real_d = N * D, d < D
    state, at = 2 * sequence * size + at, 2 * weight * size + at
    h = tl.load(first + state, mask=real, other=0.0)
    h_im = tl.load(first + state + size, mask=real, other=0.0)
    a, a_im = _load_pair(a + at, size, real, h)
    b, b_im = _load_pair(b + at, size, real, h)
    c, c_im = _load_pair(C + at, size, real, h)
    c, c_im = 2.0 * c, 2.0 * c_im
    skip = load(D_skip + weight * D + d, real_d, h)
    u += sequence * T * D + d
    y += sequence * T * D + d
    whole = T // STEPS * STEPS
    for t in range(0, whole, STEPS):
        values = _load_steps(u + t * D, D, real_d, h, STEPS)
        for i in tl.static_range(STEPS):
            h, h_im = _next_state(a, a_im, h, h_im, b, b_im, values[i])
            read = tl.sum(c * h - c_im * h_im, 0, keep_dims=True)
            tl.store(y + (t + i) * D, read + skip * values[i], mask=real_d)
    for t in range(whole, T):
        value = load(u + t * D, real_d, h)
        h, h_im = _next_state(a, a_im, h, h_im, b, b_im, value)
        read = tl.sum(c * h - c_im * h_im, 0, keep_dims=True)
        tl.store(y + t * D, read + skip * value, mask=real_d)
    _store_pair(last + state, size, h, h_im, real)


@triton.jit(do_not_specialize=("rows", "T"))
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
    STEPS: tl.constexpr,
):
    """With the conjugate e of the gradient of h: e += 2 C dy, du = Re(b e) + D dy, db = sum of e u; e = a e before."""
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    size, real_d = N * D, d < D
    state, at = 2 * sequence * size + at, 2 * weight * size + at
    e = tl.load(dlast + state, mask=real, other=0.0)
    e_im = -tl.load(dlast + state + size, mask=real, other=0.0)
    a, a_im = _load_pair(a + at, size, real, e)
    b, b_im = _load_pair(b + at, size, real, e)
    c, c_im = _load_pair(C + at, size, real, e)
    c, c_im = 2.0 * c, 2.0 * c_im
    skip = load(D_skip + weight * D + d, real_d, e)
    sum_b, sum_b_im = tl.zeros_like(e), tl.zeros_like(e)
    u += sequence * T * D + d
    dy += sequence * T * D + d
    du += sequence * T * D + d
    whole = T // STEPS * STEPS
    for t in range(T - 1, whole - 1, -1):
        grad, value = load(dy + t * D, real_d, e), load(u + t * D, real_d, e)
        e, e_im = e + c * grad, e_im + c_im * grad
        tl.store(du + t * D, tl.sum(b * e - b_im * e_im, 0, keep_dims=True) + skip * grad, mask=real_d)
        sum_b, sum_b_im = sum_b + e * value, sum_b_im + e_im * value
        e, e_im = _product(a, a_im, e, e_im)
    for t in range(whole - STEPS, -1, -STEPS):
        grads = _load_steps(dy + t * D, D, real_d, e, STEPS)
        values = _load_steps(u + t * D, D, real_d, e, STEPS)
        for i in tl.static_range(STEPS - 1, -1, -1):
            e, e_im = e + c * grads[i], e_im + c_im * grads[i]
            read = tl.sum(b * e - b_im * e_im, 0, keep_dims=True)
            tl.store(du + (t + i) * D, read + skip * grads[i], mask=real_d)
            sum_b, sum_b_im = sum_b + e * values[i], sum_b_im + e_im * values[i]
            e, e_im = _product(a, a_im, e, e_im)
    _store_pair(db + state, size, sum_b, -sum_b_im, real)
    _store_pair(dfirst + state, size, e, -e_im, real)


@triton.jit(do_not_specialize=("rows", "T"))
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
    STEPS: tl.constexpr,
):
    sequence, weight, d, at, real = _places(rows, heads, D, N, BLOCK, STATES)
    size, real_d = N * D, d < D
    state, at = 2 * sequence * size + at, 2 * weight * size + at
    h = tl.load(first + state, mask=real, other=0.0)
    h_im = tl.load(first + state + size, mask=real, other=0.0)
    a, a_im = _load_pair(a + at, size, real, h)
    b, b_im = _load_pair(b + at, size, real, h)
    g, g_im = tl.zeros_like(h), tl.zeros_like(h)
    sum_g, sum_g_im, sum_h, sum_h_im = g, g, g, g
    dskip = tl.sum(g, 0, keep_dims=True)
    u += sequence * T * D + d
    dy += sequence * T * D + d
    whole = T // STEPS * STEPS
    for t in range(0, whole, STEPS):
        values = _load_steps(u + t * D, D, real_d, h, STEPS)
        grads = _load_steps(dy + t * D, D, real_d, h, STEPS)
        for i in tl.static_range(STEPS):
            g, g_im = h - a_im * g_im + a * g, h_im + a_im * g + a * g_im
            h, h_im = _next_state(a, a_im, h, h_im, b, b_im, values[i])
            sum_g, sum_g_im = sum_g + g * grads[i], sum_g_im + g_im * grads[i]
            sum_h, sum_h_im = sum_h + h * grads[i], sum_h_im + h_im * grads[i]
            dskip += grads[i] * values[i]
    for t in range(whole, T):
        value, grad = load(u + t * D, real_d, h), load(dy + t * D, real_d, h)
        g, g_im = h - a_im * g_im + a * g, h_im + a_im * g + a * g_im
        h, h_im = _next_state(a, a_im, h, h_im, b, b_im, value)
        sum_g, sum_g_im = sum_g + g * grad, sum_g_im + g_im * grad
        sum_h, sum_h_im = sum_h + h * grad, sum_h_im + h_im * grad
        dskip += grad * value
    c, c_im = _load_pair(C + at, size, real, h)
    through, through_im = _product(2.0 * c, 2.0 * c_im, sum_g, sum_g_im)
    e = tl.load(dlast + state, mask=real, other=0.0)
    e_im = -tl.load(dlast + state + size, mask=real, other=0.0)
    at_end, at_end_im = _product(e, e_im, g, g_im)
    _store_pair(da + state, size, through + at_end, -through_im - at_end_im, real)
    _store_pair(dC + state, size, 2.0 * sum_h, -2.0 * sum_h_im, real)
    tl.store(dD + sequence * D + d, dskip, mask=real_d)
