"""The delta rule by chunks (the WY form): the writes u_i = beta_i (v_i - k_i S - sum_{j<i} (k_i . k_j) u_j) of a chunk
solve (I + L) U = beta (V - K S) with L_ij = beta_i k_i . k_j below the diagonal; then a chunk is linear attention over
the pairs (k_i, u_i)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.chunks import (
    chunk,
    dot,
    load_state,
    load_steps,
    load_turned,
    settings,
    store_state,
    store_steps,
    store_turned,
    walks,
)
from assay.ops.gpu.linear_attention_chunks import outputs_of_chunk, outputs_of_chunks, starts_like

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    """o and the final state; then the states before every chunk, the writes U, and (I + L)^-1 of every chunk."""
    starts, steps = starts_like(q, v, W), chunk(q, v)
    writes, inverses = W.new_empty(v.shape), W.new_empty(*starts.shape[:3], steps, steps)
    return torch.empty_like(v), torch.empty_like(W), starts, writes, inverses


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> None:
    o, final, starts, writes, inverses = results
    options, one_launch = settings(q, v), walks(q, v)
    rows, chunks = q.shape[0] * q.shape[1], starts.shape[2]
    if not one_launch:
        _inverses[(rows, chunks)](k, beta, inverses, **options)
    _walk[(rows,)](q, k, v, beta, W, inverses, starts, writes, final, o, ONE_LAUNCH=one_launch, **options)
    if not one_launch:
        outputs_of_chunks[(rows, chunks)](q, k, writes, None, starts, o, 1, DECAYS=False, **options)


def backward(results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    _, _, starts, writes, inverses = results
    do, d_final = grads
    options, one_launch = settings(q, v), walks(q, v)
    rows, chunks = q.shape[0] * q.shape[1], starts.shape[2]
    dq, dk, dv, dbeta, dW = (torch.empty_like(x) for x in (q, k, v, beta, W))
    ends, solved = (None if one_launch else torch.empty_like(x) for x in (starts, writes))
    tensors = q, k, v, beta, do, starts, ends, writes, solved, dq, dk, dv, dbeta
    _walk_back[(rows,)](*tensors, d_final, inverses, dW, ONE_LAUNCH=one_launch, **options)
    if not one_launch:
        _gradients_of_chunks[(rows, chunks)](*tensors, **options)
    return dq, dk, dv, dbeta, dW


@triton.jit
def _inverse(k, beta, s, C: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr):
    """X = (I + L)^-1 by doubling: from the inverses of the diagonal blocks of some size to those of twice that size,
    X - X B X with B what L has between two neighbours. (The series of powers of L would lose all digits.)"""
    lower, upper = s[:, None], s[None, :]
    L = tl.where(lower > upper, beta[:, None] * dot(k, tl.trans(k), PRECISION), 0.0)
    X = tl.where(lower == upper, 1.0, 0.0).to(REAL)
    size = 1
    while size < C:
        neighbours = (lower // size == upper // size + 1) & (lower // (2 * size) == upper // (2 * size))
        X -= dot(dot(X, tl.where(neighbours, L, 0.0), PRECISION), X, PRECISION)
        size *= 2
    return X


@triton.jit
def _inverses(
    k, beta, inverses, H, T, K, V,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    s = tl.arange(0, C)
    t = n * C + s
    k_c = load_steps(k + row * T * K, t, tl.arange(0, PK), T, K, REAL)
    X = _inverse(k_c, tl.load(beta + row * T + t, t < T, 0.0).to(REAL), s, C, REAL, PRECISION)
    tl.store(inverses + (row * tl.cdiv(T, C) + n) * C * C + s[:, None] * C + s[None, :], X)


@triton.jit
def _walk(
    q, k, v, beta, W, inverses, starts, writes, final, o, H, T, K, V, ONE_LAUNCH: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """U of every chunk, the state before it, and the last; if ONE_LAUNCH the inverses and the outputs as well."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    q += row * T * K
    k += row * T * K
    v += row * T * V
    o += row * T * V
    beta += row * T
    writes += row * T * V
    starts += row * chunks * K * V
    inverses += row * chunks * C * C
    square = s[:, None] * C + s[None, :]
    S = load_turned(W + row * K * V, i, c, K, V)
    for n in range(chunks):
        store_state(starts + n * K * V, i, c, K, V, S)
        t = n * C + s
        k_c, v_c = load_steps(k, t, i, T, K, REAL), load_steps(v, t, c, T, V, REAL)
        beta_c = tl.load(beta + t, t < T, 0.0).to(REAL)
        if ONE_LAUNCH:
            X = _inverse(k_c, beta_c, s, C, REAL, PRECISION)
            tl.store(inverses + n * C * C + square, X)
        else:
            X = tl.load(inverses + n * C * C + square)
        U = dot(X, beta_c[:, None] * (v_c - dot(k_c, S, PRECISION)), PRECISION)
        store_steps(writes, t, c, T, V, U)
        if ONE_LAUNCH:
            q_c = load_steps(q, t, i, T, K, REAL)
            store_steps(o, t, c, T, V, outputs_of_chunk(q_c, k_c, U, S, 1.0, s, False, REAL, PRECISION))
        S += dot(tl.trans(k_c), U, PRECISION)
    store_turned(final + row * K * V, i, c, K, V, S)


@triton.jit
def _gradients_of_chunk(q, k, v, beta, do, S, dS, U, Y, s, PRECISION: tl.constexpr):
    """Of q, k, v and beta, with Y = (I + L)^-T dU."""
    causal, below = s[:, None] >= s[None, :], s[:, None] > s[None, :]
    dscores = tl.where(causal, dot(do, tl.trans(U), PRECISION), 0.0)
    dL = tl.where(below, -dot(Y, tl.trans(U), PRECISION), 0.0)
    error = v - dot(k, S, PRECISION)
    dbeta = tl.sum(Y * error, 1) + tl.sum(dL * dot(k, tl.trans(k), PRECISION), 1)
    dv = beta[:, None] * Y
    dL *= beta[:, None]
    dq = dot(dscores, k, PRECISION) + dot(do, tl.trans(S), PRECISION)
    dk = dot(tl.trans(dscores), q, PRECISION) + dot(U, tl.trans(dS), PRECISION) - dot(dv, tl.trans(S), PRECISION)
    dk += dot(dL, k, PRECISION) + dot(tl.trans(dL), k, PRECISION)
    return dq, dk, dv, dbeta


@triton.jit
def _walk_back(
    q, k, v, beta, do, starts, ends, writes, solved, dq, dk, dv, dbeta, d_final, inverses, dW,
    H, T, K, V, ONE_LAUNCH: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Y of every chunk, the gradient of the state after it, and of the first; if ONE_LAUNCH also of the inputs."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    dS = tl.zeros([PK, PV], REAL)
    if d_final is not None:
        dS += load_turned(d_final + row * K * V, i, c, K, V)
    for back in range(chunks):
        n = chunks - 1 - back
        t = n * C + s
        at = (row * chunks + n) * K * V
        q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
        do_c = load_steps(do + row * T * V, t, c, T, V, REAL)
        beta_c = tl.load(beta + row * T + t, t < T, 0.0).to(REAL)
        turned = tl.where(s[:, None] <= s[None, :], dot(k_c, tl.trans(q_c), PRECISION), 0.0)
        dU = dot(turned, do_c, PRECISION) + dot(k_c, dS, PRECISION)
        X = tl.load(inverses + (row * chunks + n) * C * C + s[None, :] * C + s[:, None])
        Y = dot(X, dU, PRECISION)
        if ONE_LAUNCH:
            v_c, U = load_steps(v + row * T * V, t, c, T, V, REAL), load_steps(writes + row * T * V, t, c, T, V, REAL)
            S = load_state(starts + at, i, c, K, V)
            dq_c, dk_c, dv_c, dbeta_c = _gradients_of_chunk(q_c, k_c, v_c, beta_c, do_c, S, dS, U, Y, s, PRECISION)
            store_steps(dq + row * T * K, t, i, T, K, dq_c)
            store_steps(dk + row * T * K, t, i, T, K, dk_c)
            store_steps(dv + row * T * V, t, c, T, V, dv_c)
            tl.store(dbeta + row * T + t, dbeta_c, t < T)
        else:
            store_state(ends + at, i, c, K, V, dS)
            store_steps(solved + row * T * V, t, c, T, V, Y)
        dS += dot(tl.trans(q_c), do_c, PRECISION) - dot(tl.trans(k_c), beta_c[:, None] * Y, PRECISION)
    store_turned(dW + row * K * V, i, c, K, V, dS)


@triton.jit
def _gradients_of_chunks(
    q, k, v, beta, do, starts, ends, writes, solved, dq, dk, dv, dbeta, H, T, K, V,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    t = n * C + s
    q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
    v_c, do_c = load_steps(v + row * T * V, t, c, T, V, REAL), load_steps(do + row * T * V, t, c, T, V, REAL)
    U, Y = load_steps(writes + row * T * V, t, c, T, V, REAL), load_steps(solved + row * T * V, t, c, T, V, REAL)
    beta_c = tl.load(beta + row * T + t, t < T, 0.0).to(REAL)
    at = (row * tl.cdiv(T, C) + n) * K * V
    S, dS = load_state(starts + at, i, c, K, V), load_state(ends + at, i, c, K, V)
    dq_c, dk_c, dv_c, dbeta_c = _gradients_of_chunk(q_c, k_c, v_c, beta_c, do_c, S, dS, U, Y, s, PRECISION)
    store_steps(dq + row * T * K, t, i, T, K, dq_c)
    store_steps(dk + row * T * K, t, i, T, K, dk_c)
    store_steps(dv + row * T * V, t, c, T, V, dv_c)
    tl.store(dbeta + row * T + t, dbeta_c, t < T)
