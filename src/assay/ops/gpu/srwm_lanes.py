"""The self-referential weight matrix with small heads: a sequence has a lane per column (see `lanes`)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import sigmoid, state_type
from assay.ops.gpu.lanes import (
    across,
    add_scaled,
    collect,
    dot,
    grid,
    load_column,
    scale,
    sequences,
    softmax,
    spread,
    store_column,
    zero_column,
)
from assay.ops.gpu.segments import SEGMENT

Tensors = tuple[Tensor, ...]


def forward(results: Tensors, x: Tensor, *W: Tensor, lanes: int, written: int, after: bool) -> None:
    B, H, T, _ = x.shape
    sizes = B * H, H, B // len(W[0]), T
    _forward[grid(x, lanes)](x, *W, *results, *sizes, WRITTEN=written, **_settings(x, lanes, after))


def backward(
    results: Tensors, grads: tuple[Tensor | None, ...], x: Tensor, dx: Tensor, dW: Tensor, lanes: int, after: bool
) -> Tensor:
    """Fill dx and dW; returns the states at the segments' starts as they were undone."""
    B, H, T, _ = x.shape
    undone = torch.empty_like(results[-1])
    _backward[grid(x, lanes)](x, *results[1:], *grads, dx, dW, undone, B * H, T, **_settings(x, lanes, after))
    return undone


def _settings(x: Tensor, lanes: int, after: bool) -> dict[str, Any]:
    sizes = {"D": x.shape[-1], "P": lanes, "STEPS": SEGMENT}
    return sizes | {"AFTER": after, "REAL": state_type(x), "num_warps": 1}


@triton.jit
def _load(pointer, place, mask, D: tl.constexpr, P: tl.constexpr, REAL: tl.constexpr):
    """The columns of the four parts of a [D, 3D + 4] matrix."""
    M: tl.constexpr = 3 * D + 4
    real, narrow = mask & (place < D), mask & (place < 4)
    y = load_column(pointer + place, M, D, real, P, REAL)
    q = load_column(pointer + D + place, M, D, real, P, REAL)
    k = load_column(pointer + 2 * D + place, M, D, real, P, REAL)
    return y, q, k, load_column(pointer + 3 * D + place, M, D, narrow, P, REAL)


@triton.jit
def _store(pointer, y, q, k, b, place, mask, D: tl.constexpr, P: tl.constexpr):
    M: tl.constexpr = 3 * D + 4
    real, narrow = mask & (place < D), mask & (place < 4)
    store_column(pointer + place, M, D, y, real, P)
    store_column(pointer + D + place, M, D, q, real, P)
    store_column(pointer + 2 * D + place, M, D, k, real, P)
    store_column(pointer + 3 * D + place, M, D, b, narrow, P)


@triton.jit
def _forward(
    x, W_y, W_q, W_k, w_b, y, last_y, last_q, last_k, last_b, record, starts,
    count, H, per_group, T,
    WRITTEN: tl.constexpr, D: tl.constexpr, P: tl.constexpr, STEPS: tl.constexpr, AFTER: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    sequence, alive, place, first = sequences(count, P)
    weight = sequence // H // per_group * H + sequence % H
    M: tl.constexpr = 3 * D + 4
    R: tl.constexpr = 5 * D + 8
    real, narrow = alive & (place < D), alive & (place < 4)
    A_y = load_column(W_y + weight * D * D + place, D, D, place < D, P, REAL)
    A_q = load_column(W_q + weight * D * D + place, D, D, place < D, P, REAL)
    A_k = load_column(W_k + weight * D * D + place, D, D, place < D, P, REAL)
    A_b = load_column(w_b + weight * D * 4 + place, 4, D, place < 4, P, REAL)
    x += sequence * T * D + place
    y += sequence * T * D + place
    record += sequence * T * R + place
    starts += sequence * tl.cdiv(T, STEPS) * D * M
    x_next = tl.load(x, real, 0.0)
    for t in range(T):
        if t % STEPS == 0:
            _store(starts + t // STEPS * D * M, A_y, A_q, A_k, A_b, place, alive, D, P)
        x_t = spread(x_next.to(REAL), first, P)
        x_next = tl.load(x + tl.minimum(t + 1, T - 1) * D, real, 0.0)
        if not AFTER:
            tl.store(y + t * D, dot(x_t, A_y, P), real)
        q, k = softmax(dot(x_t, A_q, P), place < D, P), softmax(dot(x_t, A_k, P), place < D, P)
        beta = sigmoid(dot(x_t, A_b, P))
        if WRITTEN != 15:
            beta = tl.where((WRITTEN >> place) & 1 != 0, beta, 0.0)
        p, k_i = spread(q - k, first, P), spread(k, first, P)
        m_y, m_q, m_k, m_b = dot(p, A_y, P), dot(p, A_q, P), dot(p, A_k, P), dot(p, A_b, P)
        A_y = add_scaled(A_y, k_i, tl.gather(beta, first, 0) * m_y, P)
        A_q = add_scaled(A_q, k_i, tl.gather(beta, first + 1, 0) * m_q, P)
        A_k = add_scaled(A_k, k_i, tl.gather(beta, first + 2, 0) * m_k, P)
        A_b = add_scaled(A_b, k_i, tl.gather(beta, first + 3, 0) * m_b, P)
        if AFTER:
            tl.store(y + t * D, dot(x_t, A_y, P), real)
        now = record + t * R
        tl.store(now, q, real)
        tl.store(now + D, k, real)
        tl.store(now + 2 * D, beta, narrow)
        now += 2 * D + 4
        tl.store(now, m_y, real)
        tl.store(now + D, m_q, real)
        tl.store(now + 2 * D, m_k, real)
        tl.store(now + 3 * D, m_b, narrow)
    at = sequence * D * D + place
    store_column(last_y + at, D, D, A_y, real, P)
    store_column(last_q + at, D, D, A_q, real, P)
    store_column(last_k + at, D, D, A_k, real, P)
    store_column(last_b + sequence * D * 4 + place, 4, D, A_b, narrow, P)


@triton.jit
def _products(y, q, k, b, u_y, u_q, u_k, u_b, place, P: tl.constexpr):
    """The four parts times four vectors, one entry of each vector in a lane: the sum over all columns."""
    sums = add_scaled(add_scaled(scale(y, u_y, P), q, u_q, P), k, u_k, P)
    return collect(add_scaled(sums, b, u_b, P), place, P)


@triton.jit
def _backward(
    x, last_y, last_q, last_k, last_b, record, starts, dy, d_last_y, d_last_q, d_last_k, d_last_b,
    dx, dW, undone, count, T,
    D: tl.constexpr, P: tl.constexpr, STEPS: tl.constexpr, AFTER: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    sequence, alive, place, first = sequences(count, P)
    M: tl.constexpr = 3 * D + 4
    R: tl.constexpr = 5 * D + 8
    real, narrow = alive & (place < D), alive & (place < 4)
    at, at_narrow = sequence * D * D + place, sequence * D * 4 + place
    A_y, A_q = load_column(last_y + at, D, D, real, P, REAL), load_column(last_q + at, D, D, real, P, REAL)
    A_k = load_column(last_k + at, D, D, real, P, REAL)
    A_b = load_column(last_b + at_narrow, 4, D, narrow, P, REAL)
    nothing = zero_column(A_y[0], P)
    D_y = load_column(d_last_y + at, D, D, real, P, REAL) if d_last_y is not None else nothing
    D_q = load_column(d_last_q + at, D, D, real, P, REAL) if d_last_q is not None else nothing
    D_k = load_column(d_last_k + at, D, D, real, P, REAL) if d_last_k is not None else nothing
    D_b = load_column(d_last_b + at_narrow, 4, D, narrow, P, REAL) if d_last_b is not None else nothing
    x += sequence * T * D + place
    dx += sequence * T * D + place
    dy += sequence * T * D + place
    record += sequence * T * R
    dW += sequence * D * M
    starts += sequence * tl.cdiv(T, STEPS) * D * M
    undone += sequence * tl.cdiv(T, STEPS) * D * M
    for behind in range(tl.cdiv(T, STEPS)):
        begin = (tl.cdiv(T, STEPS) - 1 - behind) * STEPS
        for back in range(tl.minimum(T - begin, STEPS)):
            t = tl.minimum(T, begin + STEPS) - 1 - back
            now = record + t * R
            q, k = tl.load(now + place, real, 0.0), tl.load(now + D + place, real, 0.0)
            k_i = spread(k, first, P)
            b, m = now + 2 * D, now + 2 * D + 4 + place
            m_y, m_q = tl.load(m, real, 0.0), tl.load(m + D, real, 0.0)
            m_k, m_b = tl.load(m + 2 * D, real, 0.0), tl.load(m + 3 * D, narrow, 0.0)
            b_y, b_q = tl.load(b, alive, 0.0), tl.load(b + 1, alive, 0.0)
            b_k, b_b = tl.load(b + 2, alive, 0.0), tl.load(b + 3, alive, 0.0)
            u_y, u_q, u_k, u_b = b_y * m_y, b_q * m_q, b_k * m_k, b_b * m_b
            A_y, A_q = add_scaled(A_y, k_i, -u_y, P), add_scaled(A_q, k_i, -u_q, P)
            A_k, A_b = add_scaled(A_k, k_i, -u_k, P), add_scaled(A_b, k_i, -u_b, P)
            x_t = spread(tl.load(x + t * D, real, 0.0).to(REAL), first, P)
            dy_t = tl.load(dy + t * D, real, 0.0).to(REAL)
            if AFTER:  # y = x W_y + (x . k) u_y
                D_y = add_scaled(D_y, x_t, dy_t, P)
            # W' = W + k^T u, u = beta * (q - k) W
            du_y, du_q, du_k, du_b = dot(k_i, D_y, P), dot(k_i, D_q, P), dot(k_i, D_k, P), dot(k_i, D_b, P)
            dk = _products(D_y, D_q, D_k, D_b, u_y, u_q, u_k, u_b, place, P)
            dm_y, dm_q, dm_k, dm_b = b_y * du_y, b_q * du_q, b_k * du_k, b_b * du_b
            dp = _products(A_y, A_q, A_k, A_b, dm_y, dm_q, dm_k, dm_b, place, P)
            p = spread(q - k, first, P)
            D_y, D_q = add_scaled(D_y, p, dm_y, P), add_scaled(D_q, p, dm_q, P)
            D_k, D_b = add_scaled(D_k, p, dm_k, P), add_scaled(D_b, p, dm_b, P)
            dk -= dp
            dz_q, dz_k = q * (dp - across(q * dp, P)), k * (dk - across(k * dk, P))
            db_y, db_q = across(m_y * du_y, P), across(m_q * du_q, P)
            db_k, db_b = across(m_k * du_k, P), across(m_b * du_b, P)
            dbeta = tl.where(place == 0, db_y, tl.where(place == 1, db_q, tl.where(place == 2, db_k, db_b)))
            beta = tl.load(b + place, narrow, 0.0)
            dz_b = dbeta * beta * (1.0 - beta)
            dx_t = _products(A_y, A_q, A_k, A_b, dy_t, dz_q, dz_k, dz_b, place, P)
            if AFTER:
                dx_t += k * across(u_y * dy_t, P)
            else:
                D_y = add_scaled(D_y, x_t, dy_t, P)
            D_q, D_k = add_scaled(D_q, x_t, dz_q, P), add_scaled(D_k, x_t, dz_k, P)
            D_b = add_scaled(D_b, x_t, dz_b, P)
            tl.store(dx + t * D, dx_t, real)
        at_start = begin // STEPS * D * M
        _store(undone + at_start, A_y, A_q, A_k, A_b, place, alive, D, P)
        A_y, A_q, A_k, A_b = _load(starts + at_start, place, alive, D, P, REAL)
    _store(dW, D_y, D_q, D_k, D_b, place, alive, D, P)
