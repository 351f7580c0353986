"""Linear recurrences whose transition is diagonal plus low rank: a program has some columns of a row and head's state.

The columns of S [key, value] do not depend on one another, so large values are divided among programs. Decays may be
tiny, so no step is undone: the backward pass computes the states of a segment again from the one at its start, keeps
them in memory, and walks back. Sums over the columns are added up in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import padded, state_type

Tensors = tuple[Tensor, ...]
SEGMENT = 16  # tokens between two states that the forward pass keeps
ENTRIES = 2048  # of the state, in a program at most: its gradients still fit into the registers of four warps


def outputs(q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> Tensors:
    """o and the final state; then the states at the segments' starts."""
    (B, H, T, K), V = q.shape, v.shape[-1]
    return v.new_empty(B, H, T, V), torch.empty_like(S), S.new_empty(B, H, triton.cdiv(T, SEGMENT), K, V)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> None:
    o, final, starts = results
    grid, options = _settings(q, k, v, w, a)
    _forward[grid](q, k, v, w, a, b, S, o, final, starts, **options)


def backward(
    results: Tensors,
    grads: Tensors,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    a: Tensor,
    b: Tensor,
    S: Tensor,
) -> Tensors:
    do, d_final = grads
    grid, options = _settings(q, k, v, w, a)
    parts = [S.new_empty(grid[1], *x.shape) for x in (q, k, w, a, b)]  # a sum over the columns of each program
    dv, dS = torch.empty_like(v), torch.empty_like(S)
    states = S.new_empty(*q.shape[:2], min(SEGMENT, q.shape[2]) * k.shape[3], *S.shape[2:])
    dq, dk, dw, da, db = parts
    tensors = q, k, v, w, a, b, do, d_final, results[2], states, dq, dk, dv, dw, da, db, dS
    _backward[grid](*tensors, dq[0].numel(), dk[0].numel(), dw[0].numel(), da[0].numel(), **options)
    dq, dk, dw, da, db = (part.sum(0).to(q.dtype) if len(part) > 1 else part[0].to(q.dtype) for part in parts)
    return dq, dk, dv, dw, da, db, dS


def _settings(q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
    (B, H, T, K), V = q.shape, v.shape[-1]
    rows = padded(K)
    columns = min(padded(V), max(1, ENTRIES // rows))
    sizes = {"T": T, "K": K, "V": V, "M": k.shape[3], "DECAYS": w.shape[-1], "CORRECTS": a.shape[3] > 0}
    warps = max(1, rows * columns // 512)
    blocks = {"PK": rows, "PV": columns, "STEPS": SEGMENT, "REAL": state_type(q), "num_warps": warps}
    return (B * H, triton.cdiv(V, columns)), sizes | blocks


@triton.jit
def _vector(x, at, c, size, REAL: tl.constexpr):
    return tl.load(x + at * size + c, c < size, 0.0).to(REAL)


@triton.jit
def _decay(w, t, i, m, K, DECAYS: tl.constexpr, REAL: tl.constexpr):
    """The decay of every key before the write m of a token: only the first decays."""
    w_t = tl.load(w + t * DECAYS + i % DECAYS, i < K, 0.0).to(REAL)
    return tl.where(m == 0, w_t, 1.0)


@triton.jit
def _advance(
    S, k, v, w, a, b, t, m, i, c, K, V, M, DECAYS: tl.constexpr, CORRECTS: tl.constexpr, REAL: tl.constexpr
):  # fmt: skip
    """The state after the write m of token t."""
    after = _decay(w, t, i, m, K, DECAYS, REAL)[:, None] * S
    n = t * M + m
    if CORRECTS:
        r = tl.sum(_vector(a, n, i, K, REAL)[:, None] * S, 0)
        after += _vector(b, n, i, K, REAL)[:, None] * r[None, :]
    return after + _vector(k, n, i, K, REAL)[:, None] * _vector(v, n, c, V, REAL)[None, :]


@triton.jit
def _forward(
    q, k, v, w, a, b, S_0, o, final, starts, T, K, V, M, DECAYS: tl.constexpr, CORRECTS: tl.constexpr,
    PK: tl.constexpr, PV: tl.constexpr, STEPS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i, c = tl.arange(0, PK), tl.program_id(1) * PV + tl.arange(0, PV)
    mask, at = (i < K)[:, None] & (c < V)[None, :], i[:, None] * V + c[None, :]
    q += row * T * K
    k += row * T * M * K
    v += row * T * M * V
    w += row * T * DECAYS
    o += row * T * V
    if CORRECTS:
        a += row * T * M * K
        b += row * T * M * K
    starts += row * tl.cdiv(T, STEPS) * K * V
    S = tl.load(S_0 + row * K * V + at, mask, 0.0)
    for t in range(T):
        if t % STEPS == 0:
            tl.store(starts + t // STEPS * K * V + at, S, mask)
        for m in range(M):
            S = _advance(S, k, v, w, a, b, t, m, i, c, K, V, M, DECAYS, CORRECTS, REAL)
        tl.store(o + t * V + c, tl.sum(_vector(q, t, i, K, REAL)[:, None] * S, 0), c < V)
    tl.store(final + row * K * V + at, S, mask)


@triton.jit
def _backward(
    q, k, v, w, a, b, do, d_final, starts, states, dq, dk, dv, dw, da, db, dS_0,
    q_size, k_size, w_size, a_size, T, K, V, M, DECAYS: tl.constexpr, CORRECTS: tl.constexpr,
    PK: tl.constexpr, PV: tl.constexpr, STEPS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i, c = tl.arange(0, PK), tl.program_id(1) * PV + tl.arange(0, PV)
    mask, at = (i < K)[:, None] & (c < V)[None, :], i[:, None] * V + c[None, :]
    q += row * T * K
    k += row * T * M * K
    v += row * T * M * V
    w += row * T * DECAYS
    do += row * T * V
    dq += part * q_size + row * T * K
    dk += part * k_size + row * T * M * K
    dv += row * T * M * V
    dw += part * w_size + row * T * DECAYS
    if CORRECTS:
        a += row * T * M * K
        b += row * T * M * K
        da += part * a_size + row * T * M * K
        db += part * a_size + row * T * M * K
    starts += row * tl.cdiv(T, STEPS) * K * V
    states += row * tl.minimum(T, STEPS) * M * K * V
    dS = tl.zeros([PK, PV], REAL)
    if d_final is not None:
        dS += tl.load(d_final + row * K * V + at, mask, 0.0)
    for from_last in range(tl.cdiv(T, STEPS)):
        segment = tl.cdiv(T, STEPS) - 1 - from_last
        begin = segment * STEPS
        count = tl.minimum(T - begin, STEPS)
        S = tl.load(starts + segment * K * V + at, mask, 0.0)
        for step in range(count):
            for m in range(M):
                tl.store(states + (step * M + m) * K * V + at, S, mask)
                S = _advance(S, k, v, w, a, b, begin + step, m, i, c, K, V, M, DECAYS, CORRECTS, REAL)
        tl.debug_barrier()
        for back in range(count):
            t = begin + count - 1 - back
            q_t, do_t = _vector(q, t, i, K, REAL), _vector(do, t, c, V, REAL)
            tl.store(dq + t * K + i, tl.sum(S * do_t[None, :], 1), i < K)
            dS += q_t[:, None] * do_t[None, :]
            for further in range(M):
                m = M - 1 - further
                n = t * M + m
                S = tl.load(states + ((t - begin) * M + m) * K * V + at, mask, 0.0)
                k_n, v_n = _vector(k, n, i, K, REAL), _vector(v, n, c, V, REAL)
                tl.store(dk + n * K + i, tl.sum(dS * v_n[None, :], 1), i < K)
                tl.store(dv + n * V + c, tl.sum(dS * k_n[:, None], 0), c < V)
                if m == 0:
                    by_key = tl.sum(dS * S, 1)
                    if DECAYS == 1:
                        tl.store(dw + t, tl.sum(by_key, 0))
                    else:
                        tl.store(dw + t * DECAYS + i, by_key, i < K)
                before = _decay(w, t, i, m, K, DECAYS, REAL)[:, None] * dS
                if CORRECTS:
                    a_n, b_n = _vector(a, n, i, K, REAL), _vector(b, n, i, K, REAL)
                    r, dr = tl.sum(a_n[:, None] * S, 0), tl.sum(b_n[:, None] * dS, 0)
                    tl.store(da + n * K + i, tl.sum(S * dr[None, :], 1), i < K)
                    tl.store(db + n * K + i, tl.sum(dS * r[None, :], 1), i < K)
                    before += a_n[:, None] * dr[None, :]
                dS = before
        tl.debug_barrier()
    tl.store(dS_0 + row * K * V + at, dS, mask)
