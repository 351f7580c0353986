"""The delta rule by chunks (the WY form): the writes u_i = beta_i (v_i - k_i S - sum_{j<i} (k_i . k_j) u_j) of a chunk
solve (I + L) U = beta (V - K S) with L_ij = beta_i k_i . k_j below the diagonal; then a chunk is linear attention over
the pairs (k_i, u_i)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu import linear
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
)

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    """o and the final state; then the states before every chunk, the writes U, and (I + L)^-1 of every chunk."""
    starts, steps = linear.starts_like(q, v, W), chunk(q, v)
    writes, inverses = W.new_empty(v.shape), W.new_empty(*starts.shape[:3], steps, steps)
    return torch.empty_like(v), torch.empty_like(W), starts, writes, inverses


def forward(made: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> None:
    o, final, starts, writes, inverses = made
    told = settings(q, v)
    rows, chunks = q.shape[0] * q.shape[1], starts.shape[2]
    _inverses[(rows, chunks)](k, beta, inverses, **told)
    _states[(rows,)](k, v, beta, W, inverses, starts, writes, final, **told)
    linear.outputs[(rows, chunks)](q, k, writes, None, starts, o, 1, DECAYS=False, **told)


def backward(made: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    _, _, starts, writes, inverses = made
    do, d_final = grads
    told = settings(q, v)
    rows, chunks = q.shape[0] * q.shape[1], starts.shape[2]
    dq, dk, dv, dbeta, dW, ends, solved = (torch.empty_like(x) for x in (q, k, v, beta, W, starts, writes))
    _state_grads[(rows,)](q, k, beta, do, d_final, inverses, ends, solved, dW, **told)
    given = q, k, v, beta, do, starts, ends, writes, solved, dq, dk, dv, dbeta
    _input_grads[(rows, chunks)](*given, **told)
    return dq, dk, dv, dbeta, dW


@triton.jit
def _inverses(
    k, beta, inverses, H, T, K, V,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """X = (I + L)^-1 by doubling: from the inverses of the diagonal blocks of some size to those of twice that size,
    X - X B X with B what L has between two neighbours. (The series of powers of L would lose all digits.)"""
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, s = tl.arange(0, PK), tl.arange(0, C)
    t = n * C + s
    k_c = load_steps(k + row * T * K, t, i, T, K, REAL)
    beta_c = tl.load(beta + row * T + t, t < T, 0.0).to(REAL)
    lower, upper = s[:, None], s[None, :]
    L = tl.where(lower > upper, beta_c[:, None] * dot(k_c, tl.trans(k_c), PRECISION), 0.0)
    X = tl.where(lower == upper, 1.0, 0.0).to(REAL)
    size = 1
    while size < C:
        neighbours = (lower // size == upper // size + 1) & (lower // (2 * size) == upper // (2 * size))
        X -= dot(dot(X, tl.where(neighbours, L, 0.0), PRECISION), X, PRECISION)
        size *= 2
    at = inverses + (row * tl.cdiv(T, C) + n) * C * C
    tl.store(at + s[:, None] * C + s[None, :], X)


@triton.jit
def _states(
    k, v, beta, W, inverses, starts, writes, final, H, T, K, V,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """U of every chunk, the state before it, and the last."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    k += row * T * K
    v += row * T * V
    beta += row * T
    writes += row * T * V
    starts += row * chunks * K * V
    inverses += row * chunks * C * C
    S = load_turned(W + row * K * V, i, c, K, V)
    for n in range(chunks):
        store_state(starts + n * K * V, i, c, K, V, S)
        t = n * C + s
        k_c, v_c = load_steps(k, t, i, T, K, REAL), load_steps(v, t, c, T, V, REAL)
        beta_c = tl.load(beta + t, t < T, 0.0).to(REAL)
        X = tl.load(inverses + n * C * C + s[:, None] * C + s[None, :])
        U = dot(X, beta_c[:, None] * (v_c - dot(k_c, S, PRECISION)), PRECISION)
        store_steps(writes, t, c, T, V, U)
        S += dot(tl.trans(k_c), U, PRECISION)
    store_turned(final + row * K * V, i, c, K, V, S)


@triton.jit
def _state_grads(
    q, k, beta, do, d_final, inverses, ends, solved, dW, H, T, K, V,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Y = (I + L)^-T dU of every chunk, the gradient of the state after it, and of the first."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    q += row * T * K
    k += row * T * K
    do += row * T * V
    beta += row * T
    solved += row * T * V
    ends += row * chunks * K * V
    inverses += row * chunks * C * C
    dS = load_turned(d_final + row * K * V, i, c, K, V)
    for back in range(chunks):
        n = chunks - 1 - back
        store_state(ends + n * K * V, i, c, K, V, dS)
        t = n * C + s
        q_c, k_c = load_steps(q, t, i, T, K, REAL), load_steps(k, t, i, T, K, REAL)
        do_c = load_steps(do, t, c, T, V, REAL)
        beta_c = tl.load(beta + t, t < T, 0.0).to(REAL)
        turned = tl.where(s[:, None] <= s[None, :], dot(k_c, tl.trans(q_c), PRECISION), 0.0)
        dU = dot(turned, do_c, PRECISION) + dot(k_c, dS, PRECISION)
        X = tl.load(inverses + n * C * C + s[None, :] * C + s[:, None])
        Y = dot(X, dU, PRECISION)
        store_steps(solved, t, c, T, V, Y)
        dS += dot(tl.trans(q_c), do_c, PRECISION) - dot(tl.trans(k_c), beta_c[:, None] * Y, PRECISION)
    store_turned(dW + row * K * V, i, c, K, V, dS)


@triton.jit
def _input_grads(
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
    causal, below = s[:, None] >= s[None, :], s[:, None] > s[None, :]
    dscores = tl.where(causal, dot(do_c, tl.trans(U), PRECISION), 0.0)
    dL = tl.where(below, -dot(Y, tl.trans(U), PRECISION), 0.0)
    near = dot(k_c, tl.trans(k_c), PRECISION)
    error = v_c - dot(k_c, S, PRECISION)
    dv_c = beta_c[:, None] * Y
    store_steps(dv + row * T * V, t, c, T, V, dv_c)
    tl.store(dbeta + row * T + t, tl.sum(Y * error, 1) + tl.sum(dL * near, 1), t < T)
    dL *= beta_c[:, None]
    dq_c = dot(dscores, k_c, PRECISION) + dot(do_c, tl.trans(S), PRECISION)
    store_steps(dq + row * T * K, t, i, T, K, dq_c)
    dk_c = dot(tl.trans(dscores), q_c, PRECISION) + dot(U, tl.trans(dS), PRECISION) - dot(dv_c, tl.trans(S), PRECISION)
    dk_c += dot(dL, k_c, PRECISION) + dot(tl.trans(dL), k_c, PRECISION)
    store_steps(dk + row * T * K, t, i, T, K, dk_c)
