"""The self-referential weight matrix: a program is one row and head, with W_y, W_q, W_k and w_b in registers.

Small heads take a kernel with a lane per column (`srwm_lanes`), which undoes every step in its backward pass. Sequences
whose states drifted beyond the tolerance on that way are then computed again here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.fast_weights import written_parts
from assay.ops.gpu import srwm_lanes
from assay.ops.gpu.common import padded, sigmoid, softmax, state_type
from assay.ops.gpu.lanes import lanes_of
from assay.ops.gpu.segments import SEGMENT, excess, segments, tolerance
from assay.ops.grouped import group_sum
from assay.ops.operator import state_dtype

Tensors = tuple[Tensor, ...]


def outputs(x: Tensor, W_y: Tensor, W_q: Tensor, W_k: Tensor, w_b: Tensor, **flags: bool | str) -> Tensors:
    """y and the final matrices; then of every step [softmax(q), softmax(k), beta, (q - k) W], and the states at the
    segments' starts."""
    B, H, T, D = x.shape
    shapes = ((D, D), (D, D), (D, D), (D, 4), (T, 5 * D + 8), (segments(T), D, 3 * D + 4))
    dtype = state_dtype(x.dtype)
    return torch.empty_like(x), *[x.new_empty((B, H, *shape), dtype=dtype) for shape in shapes]


def forward(results: Tensors, x: Tensor, *W: Tensor, read_after_write: bool, fixed: str) -> None:
    B, H, T, D = x.shape
    bits = sum(1 << bit for bit, is_written in enumerate(written_parts(fixed)) if is_written)
    if lanes := lanes_of(results[1], D, 4):
        srwm_lanes.forward(results, x, *W, lanes=lanes, written=bits, after=read_after_write)
        return
    sizes = H, B // len(W[0]), T, D
    _forward[(B * H,)](x, *W, *results, *sizes, WRITTEN=bits, AFTER=read_after_write, **_settings(x))


def backward(results: Tensors, grads: Tensors, x: Tensor, *W: Tensor, read_after_write: bool, fixed: str) -> Tensors:
    """A part that is fixed has a saved beta of 0, so that its gradients come out right without `fixed`."""
    B, H, T, D = x.shape
    dx, dW = torch.empty_like(x), results[1].new_empty(B, H, D, 3 * D + 4)
    lanes = lanes_of(dW, D, 4)
    undone = srwm_lanes.backward(results, grads, x, dx, dW, lanes, read_after_write) if lanes else None
    tensors = x, *results[1:], *grads, dx, dW, torch.empty_like(dW), undone
    _backward[(B * H,)](*tensors, T, D, tolerance(x), AFTER=read_after_write, **_settings(x))
    parts = dW.split([D, D, D, 4], -1)
    return dx, *(group_sum(part, len(W[0])).to(weight.dtype) for part, weight in zip(parts, W, strict=True))


def _settings(x: Tensor) -> dict[str, Any]:
    size = padded(x.shape[-1])
    warps = {64: 4, 128: 8}.get(size, 1)
    return {"P": size, "STEPS": SEGMENT, "REAL": state_type(x), "num_warps": warps}


@triton.jit
def _nth(x, n, j):
    """Entry n of a small vector with indices j."""
    return tl.sum(tl.where(j == n, x, 0.0), 0)


@triton.jit
def _load_state(pointer, i, c, j, D, REAL: tl.constexpr):
    """The four parts of a [D, 3D + 4] matrix."""
    M = 3 * D + 4
    square, narrow = (i < D)[:, None] & (c < D)[None, :], (i < D)[:, None] & (j < 4)[None, :]
    at = pointer + i[:, None] * M
    y = tl.load(at + c[None, :], square, 0.0).to(REAL)
    q = tl.load(at + D + c[None, :], square, 0.0).to(REAL)
    k = tl.load(at + 2 * D + c[None, :], square, 0.0).to(REAL)
    b = tl.load(at + 3 * D + j[None, :], narrow, 0.0).to(REAL)
    return y, q, k, b


@triton.jit
def _store_state(pointer, i, c, j, D, y, q, k, b):
    M = 3 * D + 4
    square, narrow = (i < D)[:, None] & (c < D)[None, :], (i < D)[:, None] & (j < 4)[None, :]
    at = pointer + i[:, None] * M
    tl.store(at + c[None, :], y, square)
    tl.store(at + D + c[None, :], q, square)
    tl.store(at + 2 * D + c[None, :], k, square)
    tl.store(at + 3 * D + j[None, :], b, narrow)


@triton.jit
def _load_row(pointer, c, j, D):
    """The four parts of a row of 3D + 4 entries."""
    y, q = tl.load(pointer + c, c < D, 0.0), tl.load(pointer + D + c, c < D, 0.0)
    return y, q, tl.load(pointer + 2 * D + c, c < D, 0.0), tl.load(pointer + 3 * D + j, j < 4, 0.0)


@triton.jit
def _excess(undone, true, written, tolerated):
    return excess(undone, true, tl.max(tl.abs(written), 0), tl.abs(written), tolerated)


@triton.jit
def _drift(
    A_y, A_q, A_k, A_b, starts, record, segment, i, c, j, D, tolerated, STEPS: tl.constexpr, REAL: tl.constexpr
):  # fmt: skip
    """How far the undone state at a segment's start is off beyond the tolerance."""
    T_y, T_q, T_k, T_b = _load_state(starts + segment * D * (3 * D + 4), i, c, j, D, REAL)
    m_y, m_q, m_k, m_b = _load_row(record + segment * STEPS * (5 * D + 8) + 2 * D + 4, c, j, D)
    beyond = tl.maximum(_excess(A_y, T_y, m_y, tolerated), _excess(A_q, T_q, m_q, tolerated))
    beyond = tl.maximum(beyond, _excess(A_k, T_k, m_k, tolerated))
    return tl.maximum(beyond, _excess(A_b, T_b, m_b, tolerated))


@triton.jit
def _rates(pointer):
    return tl.load(pointer), tl.load(pointer + 1), tl.load(pointer + 2), tl.load(pointer + 3)


@triton.jit
def _forward(
    x, W_y, W_q, W_k, w_b, y, last_y, last_q, last_k, last_b, record, starts,
    H, per_group, T, D,
    WRITTEN: tl.constexpr, P: tl.constexpr, STEPS: tl.constexpr, AFTER: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    weight = program // H // per_group * H + program % H
    i, c, j = tl.arange(0, P), tl.arange(0, P), tl.arange(0, 4)
    square, narrow = (i < D)[:, None] & (c < D)[None, :], (i < D)[:, None] & (j < 4)[None, :]
    at, at_narrow = i[:, None] * D + c[None, :], i[:, None] * 4 + j[None, :]
    M = 3 * D + 4
    A_y = tl.load(W_y + weight * D * D + at, square, 0.0).to(REAL)
    A_q = tl.load(W_q + weight * D * D + at, square, 0.0).to(REAL)
    A_k = tl.load(W_k + weight * D * D + at, square, 0.0).to(REAL)
    A_b = tl.load(w_b + weight * D * 4 + at_narrow, narrow, 0.0).to(REAL)
    x += program * T * D
    y += program * T * D
    record += program * T * (5 * D + 8)
    starts += program * tl.cdiv(T, STEPS) * D * M
    x_next = tl.load(x + i, i < D, 0.0)
    for t in range(T):
        if t % STEPS == 0:
            _store_state(starts + t // STEPS * D * M, i, c, j, D, A_y, A_q, A_k, A_b)
        x_t = x_next.to(REAL)[:, None]
        x_next = tl.load(x + tl.minimum(t + 1, T - 1) * D + i, i < D, 0.0)
        if not AFTER:
            tl.store(y + t * D + c, tl.sum(x_t * A_y, 0), c < D)
        q = softmax(tl.sum(x_t * A_q, 0), c < D)
        k = softmax(tl.sum(x_t * A_k, 0), c < D)
        beta = sigmoid(tl.sum(x_t * A_b, 0))
        if WRITTEN != 15:
            beta = tl.where((WRITTEN >> j) & 1 != 0, beta, 0.0)
        p = (q - k)[:, None]
        m_y, m_q, m_k, m_b = tl.sum(p * A_y, 0), tl.sum(p * A_q, 0), tl.sum(p * A_k, 0), tl.sum(p * A_b, 0)
        k_i = k[:, None]
        A_y += k_i * (_nth(beta, 0, j) * m_y)[None, :]
        A_q += k_i * (_nth(beta, 1, j) * m_q)[None, :]
        A_k += k_i * (_nth(beta, 2, j) * m_k)[None, :]
        A_b += k_i * (_nth(beta, 3, j) * m_b)[None, :]
        if AFTER:
            tl.store(y + t * D + c, tl.sum(x_t * A_y, 0), c < D)
        now = record + t * (5 * D + 8)
        tl.store(now + c, q, c < D)
        tl.store(now + D + c, k, c < D)
        tl.store(now + 2 * D + j, beta)
        now += 2 * D + 4
        tl.store(now + c, m_y, c < D)
        tl.store(now + D + c, m_q, c < D)
        tl.store(now + 2 * D + c, m_k, c < D)
        tl.store(now + 3 * D + j, m_b)
    tl.store(last_y + program * D * D + at, A_y, square)
    tl.store(last_q + program * D * D + at, A_q, square)
    tl.store(last_k + program * D * D + at, A_k, square)
    tl.store(last_b + program * D * 4 + at_narrow, A_b, narrow)


@triton.jit
def _backward(
    x, last_y, last_q, last_k, last_b, record, starts, dy, d_last_y, d_last_q, d_last_k, d_last_b,
    dx, dW, scratch, undone, T, D, tolerated,
    P: tl.constexpr, STEPS: tl.constexpr, AFTER: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    i, c, j = tl.arange(0, P), tl.arange(0, P), tl.arange(0, 4)
    square, narrow = (i < D)[:, None] & (c < D)[None, :], (i < D)[:, None] & (j < 4)[None, :]
    at = program * D * D + i[:, None] * D + c[None, :]
    at_narrow = program * D * 4 + i[:, None] * 4 + j[None, :]
    M = 3 * D + 4
    record += program * T * (5 * D + 8)
    starts += program * tl.cdiv(T, STEPS) * D * M
    if undone is not None:
        undone += program * tl.cdiv(T, STEPS) * D * M
        drifted = tl.zeros([], REAL)
        for segment in range(tl.cdiv(T, STEPS)):
            A_y, A_q, A_k, A_b = _load_state(undone + segment * D * M, i, c, j, D, REAL)
            beyond = _drift(A_y, A_q, A_k, A_b, starts, record, segment, i, c, j, D, tolerated, STEPS, REAL)
            drifted = tl.maximum(drifted, beyond)
        if drifted <= 0:
            return
    A_y, A_q = tl.load(last_y + at, square, 0.0), tl.load(last_q + at, square, 0.0)
    A_k, A_b = tl.load(last_k + at, square, 0.0), tl.load(last_b + at_narrow, narrow, 0.0)
    D_y, D_q = tl.zeros([P, P], REAL), tl.zeros([P, P], REAL)
    D_k, D_b = tl.zeros([P, P], REAL), tl.zeros([P, 4], REAL)
    if d_last_y is not None:
        D_y += tl.load(d_last_y + at, square, 0.0)
    if d_last_q is not None:
        D_q += tl.load(d_last_q + at, square, 0.0)
    if d_last_k is not None:
        D_k += tl.load(d_last_k + at, square, 0.0)
    if d_last_b is not None:
        D_b += tl.load(d_last_b + at_narrow, narrow, 0.0)
    x += program * T * D
    dx += program * T * D
    dy += program * T * D
    dW += program * D * M
    scratch += program * D * M

    segment = tl.cdiv(T, STEPS) - 1
    again = 0
    while segment >= 0:
        begin = segment * STEPS
        start = starts + segment * D * M
        count = tl.minimum(T - begin, STEPS)
        if again != 0:
            D_y, D_q, D_k, D_b = _load_state(scratch, i, c, j, D, REAL)
        else:
            _store_state(scratch, i, c, j, D, D_y, D_q, D_k, D_b)
            tl.debug_barrier()
        for back in range(count):
            t = begin + count - 1 - back
            now = record + t * (5 * D + 8)
            q, k = tl.load(now + i, i < D, 0.0), tl.load(now + D + i, i < D, 0.0)
            k_i = k[:, None]
            m_y, m_q, m_k, m_b = _load_row(now + 2 * D + 4, c, j, D)
            b_y, b_q, b_k, b_b = _rates(now + 2 * D)
            u_y, u_q, u_k, u_b = (b_y * m_y)[None, :], (b_q * m_q)[None, :], (b_k * m_k)[None, :], (b_b * m_b)[None, :]
            if again != 0:
                A_y, A_q, A_k, A_b = _load_state(start, i, c, j, D, REAL)
                for s in range(begin, t):
                    then = record + s * (5 * D + 8)
                    k_s = tl.load(then + D + i, i < D, 0.0)[:, None]
                    n_y, n_q, n_k, n_b = _load_row(then + 2 * D + 4, c, j, D)
                    r_y, r_q, r_k, r_b = _rates(then + 2 * D)
                    A_y += k_s * (r_y * n_y)[None, :]
                    A_q += k_s * (r_q * n_q)[None, :]
                    A_k += k_s * (r_k * n_k)[None, :]
                    A_b += k_s * (r_b * n_b)[None, :]
            else:
                A_y -= k_i * u_y
                A_q -= k_i * u_q
                A_k -= k_i * u_k
                A_b -= k_i * u_b
            x_t = tl.load(x + t * D + i, i < D, 0.0).to(REAL)[:, None]
            dy_t = tl.load(dy + t * D + c, c < D, 0.0).to(REAL)[None, :]
            if AFTER:  # y = x W_y + (x . k) u_y
                D_y += x_t * dy_t
            # W' = W + k^T u, u = beta * (q - k) W
            du_y, du_q = tl.sum(k_i * D_y, 0), tl.sum(k_i * D_q, 0)
            du_k, du_b = tl.sum(k_i * D_k, 0), tl.sum(k_i * D_b, 0)
            dk = tl.sum(D_y * u_y, 1) + tl.sum(D_q * u_q, 1) + tl.sum(D_k * u_k, 1) + tl.sum(D_b * u_b, 1)
            dm_y, dm_q = (b_y * du_y)[None, :], (b_q * du_q)[None, :]
            dm_k, dm_b = (b_k * du_k)[None, :], (b_b * du_b)[None, :]
            dp = tl.sum(A_y * dm_y, 1) + tl.sum(A_q * dm_q, 1) + tl.sum(A_k * dm_k, 1) + tl.sum(A_b * dm_b, 1)
            p = (q - k)[:, None]
            D_y += p * dm_y
            D_q += p * dm_q
            D_k += p * dm_k
            D_b += p * dm_b
            dk -= dp
            dz_q = (q * (dp - tl.sum(q * dp, 0)))[None, :]
            dz_k = (k * (dk - tl.sum(k * dk, 0)))[None, :]
            db_y, db_q = tl.sum(m_y * du_y, 0), tl.sum(m_q * du_q, 0)
            db_k, db_b = tl.sum(m_k * du_k, 0), tl.sum(m_b * du_b, 0)
            dbeta = tl.where(j == 0, db_y, tl.where(j == 1, db_q, tl.where(j == 2, db_k, db_b)))
            beta = tl.load(now + 2 * D + j)
            dz_b = (dbeta * beta * (1.0 - beta))[None, :]
            dx_t = tl.sum(A_y * dy_t, 1) + tl.sum(A_q * dz_q, 1) + tl.sum(A_k * dz_k, 1) + tl.sum(A_b * dz_b, 1)
            if AFTER:
                dx_t += k * tl.sum(u_y * dy_t)
            else:
                D_y += x_t * dy_t
            D_q += x_t * dz_q
            D_k += x_t * dz_k
            D_b += x_t * dz_b
            tl.store(dx + t * D + i, dx_t, i < D)
        beyond = _drift(A_y, A_q, A_k, A_b, starts, record, segment, i, c, j, D, tolerated, STEPS, REAL)
        A_y, A_q, A_k, A_b = _load_state(start, i, c, j, D, REAL)
        again = tl.where((again == 0) & (beyond > 0), 1, 0)
        segment -= 1 - again
    _store_state(dW, i, c, j, D, D_y, D_q, D_k, D_b)
