"""Linear attention and, with a decay g, retention: S' = g S + k v^T, o = q S'."""

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
)
from assay.ops.grouped import group_sum

Tensors = tuple[Tensor, ...]


def starts_like(q: Tensor, v: Tensor, W: Tensor) -> Tensor:
    """Room for the state before every chunk."""
    return W.new_empty(*q.shape[:2], triton.cdiv(q.shape[2], chunk(q, v)), q.shape[3], v.shape[3])


def forward(made: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, W: Tensor) -> None:
    o, final, starts = made
    told = settings(q, v)
    rows, per_group = q.shape[0] * q.shape[1], 1 if decay is None else len(q) // len(decay)
    _states[(rows,)](k, v, decay, W, starts, final, per_group, DECAYS=decay is not None, **told)
    outputs[(rows, starts.shape[2])](q, k, v, decay, starts, o, per_group, DECAYS=decay is not None, **told)


def backward(
    made: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, W: Tensor
) -> Tensors:
    """Of q, k, v, the decay if there is one, and W."""
    do, d_final = grads
    starts = made[2]
    told, decays = settings(q, v), decay is not None
    rows, per_group = q.shape[0] * q.shape[1], 1 if decay is None else len(q) // len(decay)
    dq, dk, dv, dW, ends = (torch.empty_like(x) for x in (q, k, v, W, starts))
    slopes = W.new_empty(*starts.shape[:3] if decays else (1,))
    _state_grads[(rows,)](q, do, decay, d_final, ends, dW, per_group, DECAYS=decays, **told)
    given = q, k, v, decay, do, starts, ends, dq, dk, dv, slopes
    _input_grads[(rows, starts.shape[2])](*given, per_group, DECAYS=decays, **told)
    if decay is None:
        return dq, dk, dv, dW
    return dq, dk, dv, group_sum(slopes.sum(2), len(decay)).to(decay.dtype), dW


@triton.jit
def _power(g, n):
    """g^n for whole n >= 0 and any sign of g."""
    size = tl.where(n == 0, 1.0, tl.exp2(n * tl.log2(tl.abs(g))))
    odd = n - 2.0 * tl.floor(n * 0.5)
    return tl.where(g < 0, 1.0 - 2.0 * odd, 1.0) * size


@triton.jit
def _slope(g, n):
    """The derivative of g^n in g."""
    return tl.where(n > 0, n * _power(g, tl.maximum(n - 1, 0)), 0.0)


@triton.jit
def _decay(decay, H, per_group, REAL: tl.constexpr):
    row = tl.program_id(0)
    return tl.load(decay + row // H // per_group * H + row % H).to(REAL)


@triton.jit
def _states(
    k, v, decay, W, starts, final, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The state before every chunk, and the last."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    k += row * T * K
    v += row * T * V
    starts += row * chunks * K * V
    S = load_turned(W + row * K * V, i, c, K, V)
    for n in range(chunks):
        store_state(starts + n * K * V, i, c, K, V, S)
        t = n * C + s
        k_c, v_c = load_steps(k, t, i, T, K, REAL), load_steps(v, t, c, T, V, REAL)
        if DECAYS:
            g = _decay(decay, H, per_group, REAL)
            count = tl.minimum(T - n * C, C)
            v_c *= _power(g, tl.maximum(count - 1 - s, 0).to(REAL))[:, None]
            S *= _power(g, count.to(REAL))
        S += dot(tl.trans(k_c), v_c, PRECISION)
    store_turned(final + row * K * V, i, c, K, V, S)


@triton.jit
def outputs(
    q, k, v, decay, starts, o, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """o_i = g^(i+1) q_i S + sum_{j<=i} g^(i-j) (q_i . k_j) v_j."""
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    t = n * C + s
    q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
    v_c = load_steps(v + row * T * V, t, c, T, V, REAL)
    S = load_state(starts + (row * tl.cdiv(T, C) + n) * K * V, i, c, K, V)
    scores = tl.where(s[:, None] >= s[None, :], dot(q_c, tl.trans(k_c), PRECISION), 0.0)
    past = dot(q_c, S, PRECISION)
    if DECAYS:
        g = _decay(decay, H, per_group, REAL)
        scores *= _power(g, tl.maximum(s[:, None] - s[None, :], 0).to(REAL))
        past *= _power(g, (s + 1).to(REAL))[:, None]
    store_steps(o + row * T * V, t, c, T, V, past + dot(scores, v_c, PRECISION))


@triton.jit
def _state_grads(
    q, do, decay, d_final, ends, dW, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the state after every chunk, and of the first."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    q += row * T * K
    do += row * T * V
    ends += row * chunks * K * V
    dS = load_turned(d_final + row * K * V, i, c, K, V)
    for back in range(chunks):
        n = chunks - 1 - back
        store_state(ends + n * K * V, i, c, K, V, dS)
        t = n * C + s
        q_c, do_c = load_steps(q, t, i, T, K, REAL), load_steps(do, t, c, T, V, REAL)
        if DECAYS:
            g = _decay(decay, H, per_group, REAL)
            do_c *= _power(g, (s + 1).to(REAL))[:, None]
            dS *= _power(g, tl.minimum(T - n * C, C).to(REAL))
        dS += dot(tl.trans(q_c), do_c, PRECISION)
    store_turned(dW + row * K * V, i, c, K, V, dS)


@triton.jit
def _input_grads(
    q, k, v, decay, do, starts, ends, dq, dk, dv, slopes, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    t = n * C + s
    q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
    v_c, do_c = load_steps(v + row * T * V, t, c, T, V, REAL), load_steps(do + row * T * V, t, c, T, V, REAL)
    at = (row * tl.cdiv(T, C) + n) * K * V
    S, dS = load_state(starts + at, i, c, K, V), load_state(ends + at, i, c, K, V)
    causal = s[:, None] >= s[None, :]
    scores = tl.where(causal, dot(q_c, tl.trans(k_c), PRECISION), 0.0)
    dscores = tl.where(causal, dot(do_c, tl.trans(v_c), PRECISION), 0.0)
    from_past, to_future, read = (
        dot(do_c, tl.trans(S), PRECISION),
        dot(v_c, tl.trans(dS), PRECISION),
        dot(k_c, dS, PRECISION),
    )
    if DECAYS:
        g = _decay(decay, H, per_group, REAL)
        count = tl.minimum(T - n * C, C)
        lag, since = tl.maximum(s[:, None] - s[None, :], 0).to(REAL), (s + 1).to(REAL)
        until = tl.maximum(count - 1 - s, 0).to(REAL)
        slope = tl.sum(scores * dscores * _slope(g, lag)) + tl.sum(q_c * from_past * _slope(g, since)[:, None])
        slope += tl.sum(S * dS) * _slope(g, count.to(REAL)) + tl.sum(read * v_c * _slope(g, until)[:, None])
        tl.store(slopes + row * tl.cdiv(T, C) + n, slope)
        scores *= _power(g, lag)
        dscores *= _power(g, lag)
        from_past *= _power(g, since)[:, None]
        to_future *= _power(g, until)[:, None]
        read *= _power(g, until)[:, None]
    store_steps(dq + row * T * K, t, i, T, K, dot(dscores, k_c, PRECISION) + from_past)
    store_steps(dk + row * T * K, t, i, T, K, dot(tl.trans(dscores), q_c, PRECISION) + to_future)
    store_steps(dv + row * T * V, t, c, T, V, dot(tl.trans(scores), do_c, PRECISION) + read)
