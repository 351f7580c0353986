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
    walks,
)
from assay.ops.grouped import group_sum

Tensors = tuple[Tensor, ...]


def starts_like(q: Tensor, v: Tensor, W: Tensor) -> Tensor:
    """Uninitialised memory for the state before every chunk."""
    return W.new_empty(*q.shape[:2], -(-q.shape[2] // chunk(q, v)), q.shape[3], v.shape[3])


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, W: Tensor) -> None:
    o, final, starts = results
    rows, options = q.shape[0] * q.shape[1], _options(q, v, decay)
    one_launch = walks(q, v)
    _walk[(rows,)](q, k, v, decay, W, starts, final, o, ONE_LAUNCH=one_launch, **options)
    if not one_launch:
        outputs_of_chunks[(rows, starts.shape[2])](q, k, v, decay, starts, o, **options)


def backward(
    results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor | None, W: Tensor
) -> Tensors:
    """The gradients of q, k, v, the decay if there is one, and W."""
    do, d_final = grads
    starts = results[2]
    rows, options = q.shape[0] * q.shape[1], _options(q, v, decay)
    one_launch = walks(q, v)
    dq, dk, dv, dW = (torch.empty_like(x) for x in (q, k, v, W))
    ends = None if one_launch else torch.empty_like(starts)
    slopes = None if decay is None else W.new_empty(starts.shape[:3])
    tensors = q, k, v, decay, do, starts, ends, dq, dk, dv, slopes
    _walk_back[(rows,)](*tensors, d_final, dW, ONE_LAUNCH=one_launch, **options)
    if not one_launch:
        _gradients_of_chunks[(rows, starts.shape[2])](*tensors, **options)
    if decay is None or slopes is None:
        return dq, dk, dv, dW
    return dq, dk, dv, group_sum(slopes.sum(2), len(decay)).to(decay.dtype), dW


def _options(q: Tensor, v: Tensor, decay: Tensor | None) -> dict[str, object]:
    per_group = 1 if decay is None else len(q) // len(decay)
    return settings(q, v) | {"per_group": per_group, "DECAYS": decay is not None}


@triton.jit
def _power(g, n):
    """g^n for an integer n >= 0 and any sign of g."""
    size = tl.where(n == 0, 1.0, tl.exp2(n * tl.log2(tl.abs(g))))
    odd = n - 2.0 * tl.floor(n * 0.5)
    return tl.where(g < 0, 1.0 - 2.0 * odd, 1.0) * size


@triton.jit
def _slope(g, n):
    """The derivative of g^n in g."""
    return tl.where(n > 0, n * _power(g, tl.maximum(n - 1, 0)), 0.0)


@triton.jit
def _decay(decay, H, per_group, DECAYS: tl.constexpr, REAL: tl.constexpr):
    if DECAYS:
        row = tl.program_id(0)
        g = tl.load(decay + row // H // per_group * H + row % H).to(REAL)
    else:
        g = tl.full([], 1.0, REAL)
    return g


@triton.jit
def outputs_of_chunk(q, k, v, S, g, s, DECAYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr):
    """o_i = g^(i+1) q_i S + sum_{j<=i} g^(i-j) (q_i . k_j) v_j, with s counting the steps of the chunk."""
    scores = tl.where(s[:, None] >= s[None, :], dot(q, tl.trans(k), PRECISION), 0.0)
    past = dot(q, S, PRECISION)
    if DECAYS:
        scores *= _power(g, tl.maximum(s[:, None] - s[None, :], 0).to(REAL))
        past *= _power(g, (s + 1).to(REAL))[:, None]
    return past + dot(scores, v, PRECISION)


@triton.jit
def _gradients_of_chunk(
    q, k, v, do, S, dS, g, s, count, slopes, DECAYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """The gradients of q, k and v; that of the decay goes to memory."""
    causal = s[:, None] >= s[None, :]
    scores = tl.where(causal, dot(q, tl.trans(k), PRECISION), 0.0)
    dscores = tl.where(causal, dot(do, tl.trans(v), PRECISION), 0.0)
    from_past, to_future = dot(do, tl.trans(S), PRECISION), dot(v, tl.trans(dS), PRECISION)
    read = dot(k, dS, PRECISION)
    if DECAYS:
        lag, since = tl.maximum(s[:, None] - s[None, :], 0).to(REAL), (s + 1).to(REAL)
        until = tl.maximum(count - 1 - s, 0).to(REAL)
        slope = tl.sum(scores * dscores * _slope(g, lag)) + tl.sum(q * from_past * _slope(g, since)[:, None])
        slope += tl.sum(S * dS) * _slope(g, count.to(REAL)) + tl.sum(read * v * _slope(g, until)[:, None])
        tl.store(slopes, slope)
        scores *= _power(g, lag)
        dscores *= _power(g, lag)
        from_past *= _power(g, since)[:, None]
        to_future *= _power(g, until)[:, None]
        read *= _power(g, until)[:, None]
    dq = dot(dscores, k, PRECISION) + from_past
    dk = dot(tl.trans(dscores), q, PRECISION) + to_future
    return dq, dk, dot(tl.trans(scores), do, PRECISION) + read


@triton.jit
def _walk(
    q, k, v, decay, W, starts, final, o, per_group, H, T, K, V, DECAYS: tl.constexpr, ONE_LAUNCH: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The state before every chunk, and the last; if ONE_LAUNCH the outputs as well."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    q += row * T * K
    k += row * T * K
    v += row * T * V
    o += row * T * V
    starts += row * chunks * K * V
    g = _decay(decay, H, per_group, DECAYS, REAL)
    S = load_turned(W + row * K * V, i, c, K, V)
    for n in range(chunks):
        store_state(starts + n * K * V, i, c, K, V, S)
        t = n * C + s
        k_c, v_c = load_steps(k, t, i, T, K, REAL), load_steps(v, t, c, T, V, REAL)
        if ONE_LAUNCH:
            q_c = load_steps(q, t, i, T, K, REAL)
            store_steps(o, t, c, T, V, outputs_of_chunk(q_c, k_c, v_c, S, g, s, DECAYS, REAL, PRECISION))
        if DECAYS:
            count = tl.minimum(T - n * C, C)
            v_c *= _power(g, tl.maximum(count - 1 - s, 0).to(REAL))[:, None]
            S *= _power(g, count.to(REAL))
        S += dot(tl.trans(k_c), v_c, PRECISION)
    store_turned(final + row * K * V, i, c, K, V, S)


@triton.jit
def outputs_of_chunks(
    q, k, v, decay, starts, o, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    t = n * C + s
    q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
    v_c = load_steps(v + row * T * V, t, c, T, V, REAL)
    S = load_state(starts + (row * tl.cdiv(T, C) + n) * K * V, i, c, K, V)
    g = _decay(decay, H, per_group, DECAYS, REAL)
    o_c = outputs_of_chunk(q_c, k_c, v_c, S, g, s, DECAYS, REAL, PRECISION)
    store_steps(o + row * T * V, t, c, T, V, o_c)


@triton.jit
def _walk_back(
    q, k, v, decay, do, starts, ends, dq, dk, dv, slopes, d_final, dW,
    per_group, H, T, K, V, DECAYS: tl.constexpr, ONE_LAUNCH: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the state after every chunk, and of the first; if ONE_LAUNCH those of the inputs as well."""
    row = tl.program_id(0).to(tl.int64)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    g = _decay(decay, H, per_group, DECAYS, REAL)
    dS = tl.zeros([PK, PV], REAL)
    if d_final is not None:
        dS += load_turned(d_final + row * K * V, i, c, K, V)
    for back in range(chunks):
        n = chunks - 1 - back
        t, count = n * C + s, tl.minimum(T - n * C, C)
        at = (row * chunks + n) * K * V
        q_c, do_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(do + row * T * V, t, c, T, V, REAL)
        if ONE_LAUNCH:
            k_c, v_c = load_steps(k + row * T * K, t, i, T, K, REAL), load_steps(v + row * T * V, t, c, T, V, REAL)
            S = load_state(starts + at, i, c, K, V)
            slopes_n = slopes + row * chunks + n if DECAYS else slopes
            dq_c, dk_c, dv_c = _gradients_of_chunk(
                q_c, k_c, v_c, do_c, S, dS, g, s, count, slopes_n, DECAYS, REAL, PRECISION
            )
            store_steps(dq + row * T * K, t, i, T, K, dq_c)
            store_steps(dk + row * T * K, t, i, T, K, dk_c)
            store_steps(dv + row * T * V, t, c, T, V, dv_c)
        else:
            store_state(ends + at, i, c, K, V, dS)
        if DECAYS:
            do_c *= _power(g, (s + 1).to(REAL))[:, None]
            dS *= _power(g, count.to(REAL))
        dS += dot(tl.trans(q_c), do_c, PRECISION)
    store_turned(dW + row * K * V, i, c, K, V, dS)


@triton.jit
def _gradients_of_chunks(
    q, k, v, decay, do, starts, ends, dq, dk, dv, slopes, per_group, H, T, K, V, DECAYS: tl.constexpr,
    C: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i, c, s = tl.arange(0, PK), tl.arange(0, PV), tl.arange(0, C)
    chunks = tl.cdiv(T, C)
    t, count = n * C + s, tl.minimum(T - n * C, C)
    q_c, k_c = load_steps(q + row * T * K, t, i, T, K, REAL), load_steps(k + row * T * K, t, i, T, K, REAL)
    v_c, do_c = load_steps(v + row * T * V, t, c, T, V, REAL), load_steps(do + row * T * V, t, c, T, V, REAL)
    at = (row * chunks + n) * K * V
    S, dS = load_state(starts + at, i, c, K, V), load_state(ends + at, i, c, K, V)
    g = _decay(decay, H, per_group, DECAYS, REAL)
    if DECAYS:
        slopes += row * chunks + n
    dq_c, dk_c, dv_c = _gradients_of_chunk(q_c, k_c, v_c, do_c, S, dS, g, s, count, slopes, DECAYS, REAL, PRECISION)
    store_steps(dq + row * T * K, t, i, T, K, dq_c)
    store_steps(dk + row * T * K, t, i, T, K, dk_c)
    store_steps(dv + row * T * V, t, c, T, V, dv_c)
