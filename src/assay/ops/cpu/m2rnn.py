"""The M2RNN: U = tanh(H W + k v^T). The backward pass computes H and U of a segment again."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import tanh
from assay.ops.cpu.jit import inline, kernel, launch
from assay.ops.cpu.lanes import (
    add_outer,
    block_count,
    copy,
    gather,
    gather_matrix,
    history,
    rows_of_block,
    scatter,
    scatter_matrix,
    segment_length,
    take,
    weigh,
)
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor) -> Tensors:
    """o and the final H; then, by block, the states that segments start from."""
    K, V, T = k.shape[-1], v.shape[-1], v.shape[2]
    blocks, starts = block_count(len(v), len(W), v.shape[1]), -(-T // segment_length(T, 2 * K * V, v))
    return torch.empty_like(v), torch.empty_like(H), history(v, blocks, starts, K * V)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor) -> None:
    o, last, starts = results
    K, V = k.shape[-1], v.shape[-1]
    layout = {"state": K * V, "U": K * V, "q_t": K, "k_t": K, "v_t": V, "f_t": 1, "o_t": V}
    steps = segment_length(v.shape[2], 2 * K * V, v)
    last.copy_(H)
    W_T = W.mT.contiguous()
    launch(_forward, len(starts), layout, q, k, v, f[..., None], W_T, o, last, starts.flatten(2), steps)


def backward(
    results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, f: Tensor, W: Tensor, H: Tensor
) -> Tensors:
    *_, starts = results
    K, V = k.shape[-1], v.shape[-1]
    steps = segment_length(v.shape[2], 2 * K * V, v)
    dq, dk, dv, df = (torch.empty_like(x) for x in (q, k, v, f))
    dH, dW = or_zeros(grads[1], H).clone(), history(W, len(starts), V * V)
    layout = {"states": (steps + 1) * K * V, "Us": steps * K * V, "dstate": K * V, "dz": V, "dW_b": V * V}
    layout |= {"q_t": K, "k_t": K, "v_t": V, "f_t": 1, "do_t": V, "dq_t": K, "dk_t": K, "dv_t": V, "df_t": 1}
    weights, input_grads = (W.mT.contiguous(), W), (dq, dk, dv, df[..., None], dH)
    sequences = q, k, v, f[..., None]
    launch(
        _backward,
        len(starts),
        layout,
        *sequences,
        *weights,
        starts.flatten(2),
        grads[0],
        *input_grads,
        dW.flatten(1),
        steps,
    )
    by_block = dW.sum(-1).reshape(*W.shape[:2], -1, V, V)
    return dq, dk, dv, df, by_block.sum(2), dH


@inline
def _update(H, k, v, f, W_T, U, after, K, V):
    """U = tanh(H W + k v^T), after = f H + (1 - f) U."""
    keep = load(f, 0)
    for r in range(K):
        k_r, old, new = load(k, r), take(H, r * V, V), take(U, r * V, V)
        for j in range(V):
            store(new, j, k_r * load(v, j))
        weigh(W_T, old, new)
        for j in range(V):
            u = tanh(load(new, j))
            store(new, j, u)
            store(after, r * V + j, u + keep * (load(old, j) - u))


@kernel
def _forward(start, stop, scratch, q, k, v, f, W_T, o, final, starts, steps):
    B, H, T, V = v.shape
    K = k.shape[3]
    state, U, q_t, k_t, v_t, f_t, o_t = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, W_T.shape[0], H)
        gather_matrix(final, first, count, head, state)
        for t in range(T):
            if t % steps == 0:
                copy(state, starts[block, t // steps])
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(f, first, count, head, t, f_t)
            _update(state, k_t, v_t, f_t, W_T[group, head], U, state, K, V)
            for j in range(V):
                total = zero(o_t)
                for r in range(K):
                    total = total + load(q_t, r) * load(state, r * V + j)
                store(o_t, j, total)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(state, first, count, head, final)


@kernel
def _backward(start, stop, scratch, q, k, v, f, W_T, W, starts, do, dq, dk, dv, df, d_first, dW, steps):
    B, H, T, V = v.shape
    K = k.shape[3]
    states, Us, dstate, dz, dW_b, q_t, k_t, v_t, f_t, do_t, dq_t, dk_t, dv_t, df_t = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, W.shape[0], H)
        gather_matrix(d_first, first, count, head, dstate)
        for i in range(V * V):
            store(dW_b, i, zero(dW_b))
        for part in range(starts.shape[1] - 1, -1, -1):
            begin, end = part * steps, min(T, (part + 1) * steps)
            copy(starts[block, part], take(states, 0, K * V))
            for t in range(begin, end):
                gather(k, first, count, head, t, k_t)
                gather(v, first, count, head, t, v_t)
                gather(f, first, count, head, t, f_t)
                at = (t - begin) * K * V
                U, after = take(Us, at, K * V), take(states, at + K * V, K * V)
                _update(take(states, at, K * V), k_t, v_t, f_t, W_T[group, head], U, after, K, V)
            for t in range(end - 1, begin - 1, -1):
                gather(q, first, count, head, t, q_t)
                gather(k, first, count, head, t, k_t)
                gather(v, first, count, head, t, v_t)
                gather(f, first, count, head, t, f_t)
                gather(do, first, count, head, t, do_t)
                keep, d_keep = load(f_t, 0), zero(df_t)
                for j in range(V):
                    store(dv_t, j, zero(dv_t))
                for r in range(K):
                    row = ((t - begin) * K + r) * V
                    old, U, new = take(states, row, V), take(Us, row, V), take(states, row + K * V, V)
                    d_row, q_r, k_r = take(dstate, r * V, V), load(q_t, r), load(k_t, r)
                    dq_r = dk_r = zero(dq_t)
                    for j in range(V):
                        do_j, u = load(do_t, j), load(U, j)
                        dq_r = dq_r + do_j * load(new, j)
                        d_j = load(d_row, j) + q_r * do_j
                        d_keep = d_keep + d_j * (load(old, j) - u)
                        dz_j = (1 - keep) * d_j * (1 - u * u)
                        dk_r = dk_r + dz_j * load(v_t, j)
                        store(dv_t, j, load(dv_t, j) + k_r * dz_j)
                        store(dz, j, dz_j)
                        store(d_row, j, keep * d_j)
                    store(dq_t, r, dq_r)
                    store(dk_t, r, dk_r)
                    weigh(W[group, head], dz, d_row)
                    add_outer(old, dz, dW_b, V, V)
                store(df_t, 0, d_keep)
                scatter(dq_t, first, count, head, t, dq)
                scatter(dk_t, first, count, head, t, dk)
                scatter(dv_t, first, count, head, t, dv)
                scatter(df_t, first, count, head, t, df)
        scatter_matrix(dstate, first, count, head, d_first)
        copy(dW_b, dW[block])
