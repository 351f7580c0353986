"""Linear recurrences whose transition is diagonal plus low rank; the writes of all tokens are one sequence here."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.jit import inline, kernel, launch
from assay.ops.cpu.lanes import (
    add_outer,
    block_count,
    copy,
    gather,
    gather_matrix,
    history,
    matrix_times,
    rows_of_block,
    scatter,
    scatter_matrix,
    segment_length,
    take,
    times_matrix,
)
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> Tensors:
    """o and the final state; then, by block: what the corrections read, and states to start from."""
    (B, H, T, K), M, V = q.shape, k.shape[3], v.shape[-1]
    blocks = block_count(B, 1, H)
    starts = -(-T // segment_length(T, M * K * V, q))
    reads = history(v, blocks, T * a.shape[3], V)
    return v.new_empty(B, H, T, V), torch.empty_like(S), reads, history(v, blocks, starts, K, V)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> None:
    o, final, reads, starts = results
    (M, K), V, L = k.shape[3:], v.shape[-1], w.shape[-1]
    final.copy_(S)
    layout = {"S": K * V, "q_t": K, "k_t": K, "v_t": V, "w_t": L, "a_t": K, "b_t": K, "o_t": V}
    steps = segment_length(q.shape[2], M * K * V, q)
    sequences = q, *(x.flatten(2, 3) for x in (k, v)), w, *(x.flatten(2, 3) for x in (a, b))
    saved = reads.flatten(2), starts.flatten(2)
    launch(_forward, len(starts), layout, *sequences, final, o, *saved, steps, M, a.shape[3] > 0)


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
    _, _, reads, starts = results
    (M, K), V, L = k.shape[3:], v.shape[-1], w.shape[-1]
    gradients = [torch.empty_like(x) for x in (q, k, v, w, a, b)]
    dS = or_zeros(grads[1], S).clone()
    steps = segment_length(q.shape[2], M * K * V, q)
    layout = {"states": (steps * M + 1) * K * V, "dS": K * V}
    layout |= {"keys": steps * M * K, "values": steps * M * V, "partners": steps * M * K, "decays": steps * L}
    layout |= {"q_t": K, "a_t": K, "do_t": V, "dr": V, "dq_t": K, "dk_t": K, "dv_t": V, "dw_t": L, "da_t": K, "db_t": K}
    sequences, flat_grads = (
        (x[0], *(y.flatten(2, 3) for y in x[1:3]), x[3], *(y.flatten(2, 3) for y in x[4:]))
        for x in ((q, k, v, w, a, b), gradients)
    )
    saved = reads.flatten(2), starts.flatten(2)
    corrects = a.shape[3] > 0
    launch(_backward, len(starts), layout, *sequences, grads[0], *saved, *flat_grads, dS, steps, M, corrects)
    return *gradients, dS


@inline
def _advance(S, k, v, w, b, r, into, K, V, L, decays, corrects):
    """into = Diag(w) S + b r^T + k v^T; without a decay or a correction where there is none."""
    for i in range(K):
        k_i, w_i = load(k, i), zero(S) + 1
        if decays:
            w_i = load(w, i if L > 1 else 0)
        if corrects:
            b_i = load(b, i)
            for n in range(i * V, (i + 1) * V):
                c = n - i * V
                store(into, n, w_i * load(S, n) + b_i * load(r, c) + k_i * load(v, c))
        else:
            for n in range(i * V, (i + 1) * V):
                store(into, n, w_i * load(S, n) + k_i * load(v, n - i * V))


@inline
def _advance_back(S, dS, v, w, a, r, dr, dk, dw, da, db, K, V, L, decays, corrects):
    """From the state before and the gradient of the one after: the gradients of k, w, a and b, and in dS of S.

    dr, of what the correction read, is known.
    """
    if decays:
        for i in range(L):
            store(dw, i, zero(S))
    for i in range(K):
        w_i = zero(S) + 1
        if decays:
            w_i = load(w, i if L > 1 else 0)
        by_k = by_w = by_a = by_b = zero(S)
        if corrects:
            a_i = load(a, i)
            for n in range(i * V, (i + 1) * V):
                c = n - i * V
                d, s, dr_c = load(dS, n), load(S, n), load(dr, c)
                by_k, by_w = by_k + d * load(v, c), by_w + d * s
                by_a, by_b = by_a + s * dr_c, by_b + d * load(r, c)
                store(dS, n, w_i * d + a_i * dr_c)
            store(da, i, by_a)
            store(db, i, by_b)
        else:
            for n in range(i * V, (i + 1) * V):
                d = load(dS, n)
                by_k, by_w = by_k + d * load(v, n - i * V), by_w + d * load(S, n)
                store(dS, n, w_i * d)
        store(dk, i, by_k)
        if decays:
            at = i if L > 1 else 0
            store(dw, at, load(dw, at) + by_w)


@kernel
def _forward(start, stop, scratch, q, k, v, w, a, b, S_0, o, reads, starts, steps, M, corrects):
    B, H, T, K = q.shape
    V, L = v.shape[3], w.shape[3]
    S, q_t, k_t, v_t, w_t, a_t, b_t, o_t = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(S_0, first, count, head, S)
        for t in range(T):
            if t % steps == 0:
                copy(S, starts[block, t // steps])
            gather(q, first, count, head, t, q_t)
            gather(w, first, count, head, t, w_t)
            for n in range(t * M, (t + 1) * M):
                gather(k, first, count, head, n, k_t)
                gather(v, first, count, head, n, v_t)
                r = o_t
                if corrects:
                    gather(a, first, count, head, n, a_t)
                    gather(b, first, count, head, n, b_t)
                    r = reads[block, n]
                    times_matrix(a_t, S, r, K, V)
                _advance(S, k_t, v_t, w_t, b_t, r, S, K, V, L, n == t * M, corrects)
            times_matrix(q_t, S, o_t, K, V)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(S, first, count, head, S_0)


@kernel
def _backward(
    start, stop, scratch, q, k, v, w, a, b, do, reads, starts, dq, dk, dv, dw, da, db, dS_0, steps, M, corrects
):
    B, H, T, K = q.shape
    V, L = v.shape[3], w.shape[3]
    states, dS, keys, values, partners, decays, q_t, a_t, do_t, dr, dq_t, dk_t, dv_t, dw_t, da_t, db_t = areas(scratch)
    keys, values = keys.reshape(steps * M, K * LANES), values.reshape(steps * M, V * LANES)
    partners, decays = partners.reshape(steps * M, K * LANES), decays.reshape(steps, L * LANES)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(dS_0, first, count, head, dS)
        for part in range(starts.shape[1] - 1, -1, -1):
            begin, end = part * steps, min(T, (part + 1) * steps)
            copy(starts[block, part], take(states, 0, K * V))
            for t in range(begin, end):
                gather(w, first, count, head, t, decays[t - begin])
                for n in range(t * M, (t + 1) * M):
                    i = n - begin * M
                    gather(k, first, count, head, n, keys[i])
                    gather(v, first, count, head, n, values[i])
                    r = dr
                    if corrects:
                        gather(b, first, count, head, n, partners[i])
                        r = reads[block, n]
                    S, after = take(states, i * K * V, K * V), take(states, (i + 1) * K * V, K * V)
                    now = keys[i], values[i], decays[t - begin], partners[i], r
                    _advance(S, *now, after, K, V, L, n == t * M, corrects)
            for t in range(end - 1, begin - 1, -1):
                gather(q, first, count, head, t, q_t)
                gather(do, first, count, head, t, do_t)
                matrix_times(take(states, (t + 1 - begin) * M * K * V, K * V), do_t, dq_t, K, V)
                add_outer(q_t, do_t, dS, K, V)
                scatter(dq_t, first, count, head, t, dq)
                for n in range((t + 1) * M - 1, t * M - 1, -1):
                    i = n - begin * M
                    times_matrix(keys[i], dS, dv_t, K, V)
                    r = dr
                    if corrects:
                        gather(a, first, count, head, n, a_t)
                        times_matrix(partners[i], dS, dr, K, V)
                        r = reads[block, n]
                    S = take(states, i * K * V, K * V)
                    grads = dk_t, dw_t, da_t, db_t
                    decay = decays[t - begin]
                    _advance_back(S, dS, values[i], decay, a_t, r, dr, *grads, K, V, L, n == t * M, corrects)
                    scatter(dk_t, first, count, head, n, dk)
                    scatter(dv_t, first, count, head, n, dv)
                    if corrects:
                        scatter(da_t, first, count, head, n, da)
                        scatter(db_t, first, count, head, n, db)
                scatter(dw_t, first, count, head, t, dw)
        scatter_matrix(dS, first, count, head, dS_0)
