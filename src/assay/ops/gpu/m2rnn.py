"""The M2RNN; a program is one row and head. The backward pass computes the states of a segment again."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded, precision, tanh
from assay.ops.gpu.recurrent import load_matrix, matmul
from assay.ops.grouped import group_sum, or_zeros

Tensors = tuple[Tensor, ...]
SEGMENT = 16  # steps between the states that the forward pass keeps


def outputs(q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor) -> Tensors:
    """o and the final H; then the states that segments start from."""
    starts = H.new_empty(*H.shape[:2], triton.cdiv(v.shape[2], SEGMENT), *H.shape[2:])
    return torch.empty_like(v), torch.empty_like(H), starts


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor) -> None:
    grid, settings = _launch(v, W, H)
    _forward[grid](q, k, v, f, W.to(H.dtype), H, *results, **settings)


def backward(
    results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor
) -> Tensors:
    *_, starts = results
    dq, dk, dv, df, dH = (torch.empty_like(x) for x in (q, k, v, f, H))
    dW = H.new_empty(*v.shape[:2], *W.shape[2:])
    states = H.new_empty(*H.shape[:2], SEGMENT, *H.shape[2:])
    grid, settings = _launch(v, W, H)
    weights = W.to(H.dtype), W.mT.contiguous().to(H.dtype)
    output_grads = grads[0], or_zeros(grads[1], H)
    _backward[grid](q, k, v, f, *weights, starts, states, *output_grads, dq, dk, dv, df, dW, dH, **settings)
    return dq, dk, dv, df, group_sum(dW, len(W)).to(W.dtype), dH


def _launch(v: Tensor, W: Tensor, H: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    batch, heads, K, V = H.shape
    key, value = padded(K, 16), padded(V, 16)
    settings = {
        "rows": batch // len(W),
        "heads": heads,
        "T": v.shape[2],
        "K": K,
        "V": V,
        "BLOCK_K": key,
        "BLOCK_V": value,
        "LENGTH": SEGMENT,
        "PRECISION": precision(v),
        "num_warps": max(1, min(8, key * value // 512)),
    }
    return (batch * heads,), settings


@triton.jit
def _tile(rows, heads, K: tl.constexpr, V: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr):
    """The sequence of a program and its matrix; the places of keys, values and of a state's entries."""
    sequence = tl.program_id(0).to(tl.int64)
    key, value = tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    entry, inside = key[:, None] * V + value[None, :], (key[:, None] < K) & (value[None, :] < V)
    return sequence, sequence // heads // rows * heads + sequence % heads, key, value, entry, inside


@triton.jit
def _moment(k, v, f, at, key, value, K: tl.constexpr, V: tl.constexpr, like):
    """k as a column, v as a row, and f."""
    k_t = load(k + at * K + key, key < K, like)
    v_t = load(v + at * V + value, value < V, like)
    return k_t[:, None], v_t[None, :], tl.load(f + at).to(like.dtype)


@triton.jit
def _forward(
    q,
    k,
    v,
    f,
    W,
    first,
    o,
    last,
    starts,
    rows,
    heads,
    T,
    K: tl.constexpr,
    V: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, matrix, key, value, entry, inside = _tile(rows, heads, K, V, BLOCK_K, BLOCK_V)
    kept = load_matrix(W + matrix * V * V, V, BLOCK_V)
    H = tl.load(first + sequence * K * V + entry, mask=inside, other=0.0)
    starts += sequence * tl.cdiv(T, LENGTH) * K * V + entry
    for t in tl.range(T):
        if t % LENGTH == 0:
            tl.store(starts + t // LENGTH * K * V, H, mask=inside)
        at = sequence * T + t
        k_t, v_t, f_t = _moment(k, v, f, at, key, value, K, V, H)
        q_t = load(q + at * K + key, key < K, H)
        U = tanh(matmul(H, kept, k_t * v_t, PRECISION))
        H = U + f_t * (H - U)
        tl.store(o + at * V + value, tl.sum(q_t[:, None] * H, 0), mask=value < V)
    tl.store(last + sequence * K * V + entry, H, mask=inside)


@triton.jit
def _backward(
    q,
    k,
    v,
    f,
    W,
    W_T,
    starts,
    states,
    do,
    dlast,
    dq,
    dk,
    dv,
    df,
    dW,
    dfirst,
    rows,
    heads,
    T,
    K: tl.constexpr,
    V: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, matrix, key, value, entry, inside = _tile(rows, heads, K, V, BLOCK_K, BLOCK_V)
    kept, turned = load_matrix(W + matrix * V * V, V, BLOCK_V), load_matrix(W_T + matrix * V * V, V, BLOCK_V)
    dH = tl.load(dlast + sequence * K * V + entry, mask=inside, other=0.0)
    dkept = tl.zeros_like(kept)
    starts += sequence * tl.cdiv(T, LENGTH) * K * V + entry
    states += sequence * LENGTH * K * V + entry
    for part in tl.range(tl.cdiv(T, LENGTH) - 1, -1, -1):
        begin = part * LENGTH
        count = tl.minimum(T - begin, LENGTH)
        H = tl.load(starts + part * K * V, mask=inside, other=0.0)
        for i in tl.range(count):
            tl.store(states + i * K * V, H, mask=inside)
            k_t, v_t, f_t = _moment(k, v, f, sequence * T + begin + i, key, value, K, V, H)
            U = tanh(matmul(H, kept, k_t * v_t, PRECISION))
            H = U + f_t * (H - U)
        tl.debug_barrier()  # a thread may read what another one stored
        for i in tl.range(count - 1, -1, -1):
            at = sequence * T + begin + i
            H = tl.load(states + i * K * V, mask=inside, other=0.0)
            k_t, v_t, f_t = _moment(k, v, f, at, key, value, K, V, H)
            q_t = load(q + at * K + key, key < K, H)[:, None]
            do_t = load(do + at * V + value, value < V, H)[None, :]
            U = tanh(matmul(H, kept, k_t * v_t, PRECISION))
            dH += q_t * do_t
            dZ = (1.0 - f_t) * dH * (1.0 - U * U)
            tl.store(dq + at * K + key, tl.sum((U + f_t * (H - U)) * do_t, 1), mask=key < K)
            tl.store(dk + at * K + key, tl.sum(dZ * v_t, 1), mask=key < K)
            tl.store(dv + at * V + value, tl.sum(dZ * k_t, 0), mask=value < V)
            tl.store(df + at, tl.sum(tl.sum(dH * (H - U), 1), 0))
            dkept = matmul(tl.trans(H), dZ, dkept, PRECISION)
            dH = matmul(dZ, turned, f_t * dH, PRECISION)
        tl.debug_barrier()
    tl.store(dfirst + sequence * K * V + entry, dH, mask=inside)
    row, column = tl.arange(0, BLOCK_V)[:, None], tl.arange(0, BLOCK_V)[None, :]
    tl.store(dW + sequence * V * V + row * V + column, dkept, mask=(row < V) & (column < V))
