"""The recurrent delta rule: R = [R_q; R_k; R_v; r_b] is stacked here, with Z = 2 K + V + 1 rows."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.fast_weight import delta_step, delta_step_back, states_of_segment
from assay.ops.cpu.functions import sigmoid, tanh
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
    softmax,
    softmax_back,
    take,
    weigh,
)
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.grouped import before, or_zeros, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *weights_and_state: Tensor, additive: bool = False
) -> Tensors:
    """o and the final W; then, by block: q, k and beta after their softmax and sigmoid, the errors v - k W (or v), and
    states to start from."""
    B, H, T, K = q.shape
    V, blocks = v.shape[-1], block_count(B, len(weights_and_state[0]), H)
    starts = -(-T // segment_length(T, K * V, q))
    saved = (history(v, blocks, T, size) for size in (K, K, 1, V))
    return torch.empty_like(v), torch.empty_like(weights_and_state[4]), *saved, history(v, blocks, starts, K, V)


def forward(
    results: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *weights_and_state: Tensor, additive: bool
) -> None:
    *R, W, last = weights_and_state
    o, final, *saved = results
    K, V = q.shape[-1], v.shape[-1]
    layout = {"W": K * V, "z_t": 2 * K + V + 1, "u": V, "o_t": V, "h": V}
    z, state = torch.cat([q, k, v, beta[..., None]], -1), W.mT.clone(memory_format=torch.contiguous_format)
    steps = segment_length(q.shape[2], K * V, q)
    by_step = (x.flatten(2) for x in saved)
    launch(_forward, len(saved[0]), layout, z, _stacked(*R), state, last[:, :, None], o, *by_step, steps, additive)
    final.copy_(state.mT)


def backward(
    results: Tensors,
    grads: Tensors,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    *weights_and_state: Tensor,
    additive: bool,
) -> Tensors:
    *R, W, last = weights_and_state
    o, _, *saved = results
    K, V, G = q.shape[-1], v.shape[-1], len(R[0])
    dz, dlast = v.new_empty(*v.shape[:3], 2 * K + V + 1), torch.empty_like(last)
    dW = or_zeros(grads[1], W).mT.clone(memory_format=torch.contiguous_format)
    steps = segment_length(q.shape[2], K * V, q)
    layout = {"states": steps * K * V, "dW": K * V, "dq": K, "dk": K, "W_u": K, "dbeta": 1}
    layout |= {"do_t": V, "u": V, "dh": V, "h": V, "dz_t": 2 * K + V + 1}
    previous = before(last, o)
    by_step = (x.flatten(2) for x in saved)
    input_grads = dz, dW, dlast[:, :, None]
    R_T = _stacked(*R).mT.contiguous()
    launch(_backward, len(saved[0]), layout, R_T, previous, grads[0], *by_step, *input_grads, steps, additive)
    dR = weight_gradient(dz, previous.tanh(), G)
    dq, dk, dv, dbeta = dz.split([K, K, V, 1], -1)
    dR_q, dR_k, dR_v, dr_b = dR.split([K, K, V, 1], -2)
    return dq, dk, dv, dbeta[..., 0], dR_q, dR_k, dR_v, dr_b[:, :, 0], dW.mT, dlast


def _stacked(R_q: Tensor, R_k: Tensor, R_v: Tensor, r_b: Tensor) -> Tensor:
    return torch.cat([R_q, R_k, R_v, r_b[..., None, :]], -2)


@kernel
def _forward(start, stop, scratch, z, R, W_0, last, o, q, k, beta, e, starts, steps, additive):
    B, H, T, Z = z.shape
    G, K, V = R.shape[0], W_0.shape[2], W_0.shape[3]
    W, z_t, u, o_t, h = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, G, H)
        gather_matrix(W_0, first, count, head, W)
        gather(last, first, count, head, 0, o_t)
        for t in range(T):
            if t % steps == 0:
                copy(W, starts[block, t // steps])
            for c in range(V):
                store(h, c, tanh(load(o_t, c)))
            gather(z, first, count, head, t, z_t)
            weigh(R[group, head], h, z_t)
            softmax(z_t, q[block, t], K)
            softmax(take(z_t, K, K), k[block, t], K)
            store(beta[block, t], 0, sigmoid(load(z_t, Z - 1)))
            v_t = take(z_t, 2 * K, V)
            delta_step(W, q[block, t], k[block, t], v_t, beta[block, t], e[block, t], u, o_t, K, V, additive)
            scatter(o_t, first, count, head, t, o)
        scatter_matrix(W, first, count, head, W_0)


@kernel
def _backward(start, stop, scratch, R_T, previous, do, q, k, beta, e, starts, dz, dW_0, dlast, steps, additive):
    B, H, T, V = do.shape
    G, K, Z = R_T.shape[0], dW_0.shape[2], R_T.shape[3]
    states, dW, dq, dk, W_u, dbeta, do_t, u, dh, h, dz_t = areas(scratch)
    dv = take(dz_t, 2 * K, V)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, G, H)
        gather_matrix(dW_0, first, count, head, dW)
        for c in range(V):
            store(dh, c, zero(dh))
        for part in range(starts.shape[1] - 1, -1, -1):
            begin, end = part * steps, min(T, (part + 1) * steps)
            writes = k[block, begin:end], beta[block, begin:end], e[block, begin:end]
            states_of_segment(starts[block, part], *writes, states, u, K, V)
            for t in range(end - 1, begin - 1, -1):
                W = take(states, (t - begin) * K * V, K * V)
                gather(do, first, count, head, t, do_t)
                for c in range(V):  # the next step reads this output
                    store(do_t, c, load(do_t, c) + load(dh, c))
                    store(dh, c, zero(dh))
                moment = q[block, t], k[block, t], beta[block, t], e[block, t], do_t
                delta_step_back(W, dW, *moment, dq, dk, dv, dbeta, u, W_u, K, V, additive)
                softmax_back(q[block, t], dq, dz_t, K)
                softmax_back(k[block, t], dk, take(dz_t, K, K), K)
                b = load(beta[block, t], 0)
                store(dz_t, Z - 1, load(dbeta, 0) * b * (1 - b))
                weigh(R_T[group, head], dz_t, dh)
                gather(previous, first, count, head, t, h)
                for c in range(V):
                    h_c = tanh(load(h, c))
                    store(dh, c, load(dh, c) * (1 - h_c * h_c))
                scatter(dz_t, first, count, head, t, dz)
        scatter(dh, first, count, head, 0, dlast)
        scatter_matrix(dW, first, count, head, dW_0)
