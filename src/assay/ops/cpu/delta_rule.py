"""The delta rule."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.fast_weight import delta_step, delta_step_back, states_of_segment
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import (
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
)
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    """o and the final state; then, by block: the errors v - k W, and states to start from."""
    B, H, T, K = q.shape
    V, blocks = v.shape[-1], block_count(B, 1, H)
    starts = -(-T // segment_length(T, K * V, q))
    return torch.empty_like(v), torch.empty_like(W), history(v, blocks, T, V), history(v, blocks, starts, K, V)


def forward(results: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> None:
    o, final, e, starts = results
    K, V = q.shape[-1], v.shape[-1]
    last = W.mT.clone(memory_format=torch.contiguous_format)
    layout = {"W": K * V, "q_t": K, "k_t": K, "v_t": V, "u": V, "o_t": V, "beta_t": 1}
    steps = segment_length(q.shape[2], K * V, q)
    launch(_forward, len(e), layout, q, k, v, beta[..., None], last, o, e.flatten(2), starts.flatten(2), steps)
    final.copy_(last.mT)


def backward(results: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    _, _, e, starts = results
    K, V = q.shape[-1], v.shape[-1]
    dq, dk, dv, dbeta = (torch.empty_like(x) for x in (q, k, v, beta))
    dW = or_zeros(grads[1], W).mT.clone(memory_format=torch.contiguous_format)
    steps = segment_length(q.shape[2], K * V, q)
    layout = {"states": steps * K * V, "dW": K * V, "keys": steps * K, "betas": steps}
    layout |= {"q_t": K, "dq_t": K, "dk_t": K, "W_u": K, "do_t": V, "dv_t": V, "u": V, "dbeta_t": 1}
    saved, input_grads = (e.flatten(2), starts.flatten(2)), (dq, dk, dv, dbeta[..., None])
    launch(_backward, len(e), layout, q, k, beta[..., None], grads[0], *saved, *input_grads, dW, steps)
    return dq, dk, dv, dbeta, dW.mT


@kernel
def _forward(start, stop, scratch, q, k, v, beta, W_0, o, e, starts, steps):
    B, H, T, K = q.shape
    V = v.shape[3]
    W, q_t, k_t, v_t, u, o_t, beta_t = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(W_0, first, count, head, W)
        for t in range(T):
            if t % steps == 0:
                copy(W, starts[block, t // steps])
            gather(q, first, count, head, t, q_t)
            gather(k, first, count, head, t, k_t)
            gather(v, first, count, head, t, v_t)
            gather(beta, first, count, head, t, beta_t)
            delta_step(W, q_t, k_t, v_t, beta_t, e[block, t], u, o_t, K, V, False)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(W, first, count, head, W_0)


@kernel
def _backward(start, stop, scratch, q, k, beta, do, e, starts, dq, dk, dv, dbeta, dW_0, steps):
    B, H, T, K = q.shape
    V = do.shape[3]
    states, dW, keys, betas, q_t, dq_t, dk_t, W_u, do_t, dv_t, u, dbeta_t = areas(scratch)
    keys, betas = keys.reshape(steps, K * LANES), betas.reshape(steps, LANES)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(dW_0, first, count, head, dW)
        for part in range(starts.shape[1] - 1, -1, -1):
            begin, end = part * steps, min(T, (part + 1) * steps)
            for t in range(begin, end):
                gather(k, first, count, head, t, keys[t - begin])
                gather(beta, first, count, head, t, betas[t - begin])
            errors = e[block, begin:end]
            states_of_segment(starts[block, part], keys, betas, errors, states, u, K, V)
            for t in range(end - 1, begin - 1, -1):
                i = t - begin
                gather(q, first, count, head, t, q_t)
                gather(do, first, count, head, t, do_t)
                W = take(states, i * K * V, K * V)
                grads = dq_t, dk_t, dv_t, dbeta_t
                delta_step_back(W, dW, q_t, keys[i], betas[i], errors[i], do_t, *grads, u, W_u, K, V, False)
                scatter(dq_t, first, count, head, t, dq)
                scatter(dk_t, first, count, head, t, dk)
                scatter(dv_t, first, count, head, t, dv)
                scatter(dbeta_t, first, count, head, t, dbeta)
        scatter_matrix(dW, first, count, head, dW_0)
