"""Retention: linear attention with a decay per head.

The backward pass needs no saved states: one walk through time for dq and the derivative of W by the decay, one back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.jit import inline, kernel, launch
from assay.ops.cpu.lanes import (
    block_count,
    gather,
    gather_matrix,
    matrix_times,
    rows_of_block,
    scatter,
    scatter_matrix,
    write_and_read,
)
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> Tensors:
    """o and the final state."""
    return torch.empty_like(v), torch.empty_like(W)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> None:
    o, final = results
    B, H, _, K = q.shape
    V = v.shape[-1]
    last = W.mT.clone(memory_format=torch.contiguous_format)
    layout = {"W": K * V, "q_t": K, "k_t": K, "v_t": V, "o_t": V}
    launch(_forward, block_count(B, len(decay), H), layout, q, k, v, decay, last, o)
    final.copy_(last.mT)


def backward(results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> Tensors:
    B, H, _, K = q.shape
    V, blocks = v.shape[-1], block_count(B, len(decay), H)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    ddecay = decay.new_empty(blocks)
    dW = or_zeros(grads[1], W).mT.clone(memory_format=torch.contiguous_format)
    layout = {"W": K * V, "W_by_decay": K * V, "dW": K * V}
    layout |= {"q_t": K, "k_t": K, "v_t": V, "do_t": V, "dq_t": K, "dk_t": K, "dv_t": V, "total": 1}
    launch(_backward, blocks, layout, q, k, v, decay, W.mT.contiguous(), grads[0], dq, dk, dv, ddecay, dW)
    return dq, dk, dv, ddecay.view(*decay.shape, -1).sum(-1), dW.mT


@inline
def _scale(W, factor, n):
    for i in range(n):
        store(W, i, factor * load(W, i))


@kernel
def _forward(start, stop, scratch, q, k, v, decay, W_0, o):
    B, H, T, K = q.shape
    G, V = decay.shape[0], v.shape[3]
    W, q_t, k_t, v_t, o_t = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, G, H)
        gather_matrix(W_0, first, count, head, W)
        for t in range(T):
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            _scale(W, decay[group, head], K * V)
            write_and_read(k_t, v_t, W, q_t, o_t, K, V)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(W, first, count, head, W_0)


@kernel
def _backward(start, stop, scratch, q, k, v, decay, W_0, do, dq, dk, dv, ddecay, dW_0):
    B, H, T, K = q.shape
    G, V = decay.shape[0], v.shape[3]
    W, W_by_decay, dW, q_t, k_t, v_t, do_t, dq_t, dk_t, dv_t, total = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, G, H)
        rate = decay[group, head]
        gather_matrix(W_0, first, count, head, W)
        for n in range(K * V):
            store(W_by_decay, n, zero(W))
        store(total, 0, zero(W))
        for t in range(T):
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(do, first, count, head, t, do_t)
            for i in range(K):
                k_i, dq_i, by_decay = load(k_t, i), zero(W), zero(W)
                for n in range(i * V, (i + 1) * V):
                    w, do_n = load(W, n), load(do_t, n - i * V)
                    slope = rate * load(W_by_decay, n) + w
                    w = rate * w + k_i * load(v_t, n - i * V)
                    store(W_by_decay, n, slope)
                    store(W, n, w)
                    dq_i, by_decay = dq_i + w * do_n, by_decay + slope * do_n
                store(dq_t, i, dq_i)
                store(total, 0, load(total, 0) + load(q_t, i) * by_decay)
            scatter(dq_t, first, count, head, t, dq)
        gather_matrix(dW_0, first, count, head, dW)
        for n in range(K * V):
            store(total, 0, load(total, 0) + load(dW, n) * load(W_by_decay, n))
        ddecay[block] = 0
        for lane in range(count):
            ddecay[block] += total[lane]
        for t in range(T - 1, -1, -1):
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(do, first, count, head, t, do_t)
            write_and_read(q_t, do_t, dW, k_t, dv_t, K, V)
            matrix_times(dW, v_t, dk_t, K, V)
            _scale(dW, rate, K * V)
            scatter(dk_t, first, count, head, t, dk)
            scatter(dv_t, first, count, head, t, dv)
        scatter_matrix(dW, first, count, head, dW_0)
