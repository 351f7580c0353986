"""The delta rule."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.fast_weight import delta_step, delta_step_back, states_of_segment
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import (
    blocks_of,
    copy,
    gather,
    gather_matrix,
    history,
    place,
    scatter,
    scatter_matrix,
    segment,
    take,
)
from assay.ops.cpu.vector import LANES
from assay.ops.grouped import or_zeros

Tensors = tuple[Tensor, ...]


def outputs(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    """o and the final state; then, by block: the errors v - k W, and states to start from."""
    B, H, T, K = q.shape
    V, blocks = v.shape[-1], blocks_of(B, 1, H)
    starts = -(-T // segment(T, K * V, q))
    return torch.empty_like(v), torch.empty_like(W), history(v, blocks, T, V), history(v, blocks, starts, K, V)


def forward(made: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> None:
    o, final, e, starts = made
    K, V = q.shape[-1], v.shape[-1]
    last = W.mT.clone(memory_format=torch.contiguous_format)
    scratch = (K * V + 2 * K + 3 * V + 1) * LANES
    steps = segment(q.shape[2], K * V, q)
    launch(_forward, len(e), scratch, q, k, v, beta[..., None], last, o, e.flatten(2), starts.flatten(2), steps)
    final.copy_(last.mT)


def backward(made: Tensors, grads: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Tensors:
    _, _, e, starts = made
    K, V = q.shape[-1], v.shape[-1]
    dq, dk, dv, dbeta = (torch.empty_like(x) for x in (q, k, v, beta))
    dW = or_zeros(grads[1], W).mT.clone(memory_format=torch.contiguous_format)
    steps = segment(q.shape[2], K * V, q)
    scratch = ((steps + 1) * K * V + steps * (K + 1) + 4 * K + 3 * V + 1) * LANES
    saved, given = (e.flatten(2), starts.flatten(2)), (dq, dk, dv, dbeta[..., None])
    launch(_backward, len(e), scratch, q, k, beta[..., None], grads[0], *saved, *given, dW, steps)
    return dq, dk, dv, dbeta, dW.mT


@kernel
def _forward(start, stop, scratch, q, k, v, beta, W_0, o, e, starts, steps):
    B, H, T, K = q.shape
    V = v.shape[3]
    W, q_t, k_t = take(scratch, 0, K * V), take(scratch, K * V, K), take(scratch, K * V + K, K)
    rest = K * V + 2 * K
    v_t, u, o_t = take(scratch, rest, V), take(scratch, rest + V, V), take(scratch, rest + 2 * V, V)
    beta_t = take(scratch, rest + 3 * V, 1)
    for block in range(start, stop):
        _, head, first, count = place(block, B, 1, H)
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
    states, dW, rest = take(scratch, 0, steps * K * V), take(scratch, steps * K * V, K * V), (steps + 1) * K * V
    keys = take(scratch, rest, steps * K).reshape(steps, K * LANES)
    betas, rest = take(scratch, rest + steps * K, steps).reshape(steps, LANES), rest + steps * (K + 1)
    q_t, dq_t, dk_t = take(scratch, rest, K), take(scratch, rest + K, K), take(scratch, rest + 2 * K, K)
    room, rest = take(scratch, rest + 3 * K, K), rest + 4 * K
    do_t, dv_t, u = take(scratch, rest, V), take(scratch, rest + V, V), take(scratch, rest + 2 * V, V)
    dbeta_t = take(scratch, rest + 3 * V, 1)
    for block in range(start, stop):
        _, head, first, count = place(block, B, 1, H)
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
                given = dq_t, dk_t, dv_t, dbeta_t
                delta_step_back(W, dW, q_t, keys[i], betas[i], errors[i], do_t, *given, u, room, K, V, False)
                scatter(dq_t, first, count, head, t, dq)
                scatter(dk_t, first, count, head, t, dk)
                scatter(dv_t, first, count, head, t, dv)
                scatter(dbeta_t, first, count, head, t, dbeta)
        scatter_matrix(dW, first, count, head, dW_0)
