"""Linear attention. The backward pass needs no saved states: one walk through time for dq, one back for dk and dv."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import (
    block_count,
    gather,
    gather_matrix,
    matrix_times,
    rows_of_block,
    scatter,
    scatter_matrix,
    write_and_read,
    write_and_read_rows,
)
from assay.ops.cpu.scratch import areas
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> Tensors:
    """o and the final state."""
    return torch.empty_like(v), torch.empty_like(W)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> None:
    o, final = results
    B, H, _, K = q.shape
    V = v.shape[-1]
    last = W.mT.clone(memory_format=torch.contiguous_format)
    layout = {"W": K * V, "q_t": K, "k_t": K, "v_t": V, "o_t": V}
    launch(_forward, block_count(B, 1, H), layout, q, k, v, last, o)
    final.copy_(last.mT)


def backward(results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> Tensors:
    B, H, _, K = q.shape
    V = v.shape[-1]
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    dW = or_zeros(grads[1], W).mT.clone(memory_format=torch.contiguous_format)
    layout = {"W": K * V, "q_t": K, "k_t": K, "v_t": V, "do_t": V, "dk_t": K, "dv_t": V}
    launch(_backward, block_count(B, 1, H), layout, q, k, v, W.mT.contiguous(), grads[0], dq, dk, dv, dW)
    return dq, dk, dv, dW.mT


@kernel
def _forward(start, stop, scratch, q, k, v, W_0, o):
    B, H, T, K = q.shape
    V = v.shape[3]
    W, q_t, k_t, v_t, o_t = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(W_0, first, count, head, W)
        for t in range(T):
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            write_and_read(k_t, v_t, W, q_t, o_t, K, V)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(W, first, count, head, W_0)


@kernel
def _backward(start, stop, scratch, q, k, v, W_0, do, dq, dk, dv, dW_0):
    B, H, T, K = q.shape
    V = v.shape[3]
    W, q_t, k_t, v_t, do_t, dk_t, dv_t = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(W_0, first, count, head, W)
        for t in range(T):
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(do, first, count, head, t, do_t)
            write_and_read_rows(k_t, v_t, W, do_t, q_t, K, V)
            scatter(q_t, first, count, head, t, dq)
        dW = W
        gather_matrix(dW_0, first, count, head, dW)
        for t in range(T - 1, -1, -1):
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(do, first, count, head, t, do_t)
            write_and_read(q_t, do_t, dW, k_t, dv_t, K, V)
            matrix_times(dW, v_t, dk_t, K, V)
            scatter(dk_t, first, count, head, t, dk)
            scatter(dv_t, first, count, head, t, dv)
        scatter_matrix(dW, first, count, head, dW_0)
