"""The recurrent delta rule: a program is one row and head, with W [value, key] and the transposed R in registers.

Small heads take a kernel with a lane per row of a matrix (`recurrent_delta_lanes`), which undoes every step in its
backward pass. Sequences whose states drifted beyond the tolerance on that way are then computed again here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu import recurrent_delta_lanes
from assay.ops.gpu.common import padded, sigmoid, softmax, state_type, tanh
from assay.ops.gpu.lanes import lanes_of
from assay.ops.gpu.segments import SEGMENT, excess, segments, tolerance
from assay.ops.grouped import group_sum

Tensors = tuple[Tensor, ...]


def outputs(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *weights_and_state: Tensor, additive: bool = False
) -> Tensors:
    """o and the final W; then of every step [q, k, beta, v - W k or v] after softmax and sigmoid, and the states at the
    segments' starts."""
    (B, H, T, K), V, W = q.shape, v.shape[-1], weights_and_state[4]
    record, starts = W.new_empty(B, H, T, _together(K, V)), W.new_empty(B, H, segments(T), V, K)
    return torch.empty_like(v), torch.empty_like(W), record, starts


def forward(
    results: Tensors, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *weights_and_state: Tensor, additive: bool
) -> None:
    (B, H, T, K), V = q.shape, v.shape[-1]
    if lanes := lanes_of(results[1], K, V):
        recurrent_delta_lanes.forward(results, (q, k, v, beta, *weights_and_state), lanes, additive)
        return
    sizes = H, B // len(weights_and_state[0]), T, K, V
    _forward[(B * H,)](q, k, v, beta, *weights_and_state, *results, *sizes, ADDITIVE=additive, **_settings(q, v))


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
    (B, H, T, K), V = q.shape, v.shape[-1]
    input_grads = [torch.empty_like(x) for x in (q, k, v, beta)]
    dW, dlast, dR = torch.empty_like(W), torch.empty_like(last), W.new_empty(B, H * _together(K, V) * V)
    scratch = W.new_empty(B, H, 3 * K + V + 2, V)
    gradients, undone = (*input_grads, dR, dW, dlast), None
    if lanes := lanes_of(W, K, V):
        inputs = q, k, v, beta, *weights_and_state
        undone = recurrent_delta_lanes.backward(results, grads, inputs, gradients, lanes, additive)
    tensors = *R, last, *results, *grads, *gradients, scratch, undone
    sizes = H, B // len(R[0]), T, K, V
    _backward[(B * H,)](*tensors, *sizes, tolerance(v), ADDITIVE=additive, **_settings(q, v))
    parts = group_sum(dR, len(R[0])).to(v.dtype).split([weight[0].numel() for weight in R], 1)
    return *input_grads, *(part.view(weight.shape) for part, weight in zip(parts, R, strict=True)), dW, dlast


def _together(K: int, V: int) -> int:
    """The size of q, k, v and beta together."""
    return 2 * K + V + 1


def _settings(q: Tensor, v: Tensor) -> dict[str, Any]:
    K, V = padded(q.shape[-1]), padded(v.shape[-1])
    warps = {64: 4, 128: 8}.get(max(K, V), 1)
    return {"PK": K, "PV": V, "STEPS": SEGMENT, "REAL": state_type(v), "num_warps": warps}


@triton.jit
def _load_weights(R_q, R_k, R_v, r_b, i, n, c, K, V, REAL: tl.constexpr):
    """R_q and R_k transposed to [value, key]; R_v as it is."""
    flat = i[:, None] + c[None, :] * V
    tall = (i < V)[:, None] & (c < K)[None, :]
    wide = (i < V)[:, None] & (n < V)[None, :]
    A_q, A_k = tl.load(R_q + flat, tall, 0.0).to(REAL), tl.load(R_k + flat, tall, 0.0).to(REAL)
    A_v = tl.load(R_v + i[:, None] * V + n[None, :], wide, 0.0).to(REAL)
    return A_q, A_k, A_v, tl.load(r_b + i, i < V, 0.0).to(REAL)


@triton.jit
def _drift(W, starts, record, segment, at, mask, i, K, V, tolerated, STEPS: tl.constexpr):
    """How far the undone state at a segment's start is off beyond the tolerance."""
    true = tl.load(starts + segment * V * K + at, mask, 0.0)
    first_write = record + segment * STEPS * (2 * K + V + 1) + 2 * K + 1
    written = tl.max(tl.abs(tl.load(first_write + i, i < V, 0.0)), 0)
    return excess(W, true, written, written, tolerated)


@triton.jit
def _forward(
    q, k, v, beta, R_q, R_k, R_v, r_b, W_0, last, o, final, record, starts,
    H, per_group, T, K, V,
    ADDITIVE: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, STEPS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    weight = program // H // per_group * H + program % H
    i, n, c = tl.arange(0, PV), tl.arange(0, PV), tl.arange(0, PK)
    mask = (i < V)[:, None] & (c < K)[None, :]
    at = i[:, None] * K + c[None, :]
    A_q, A_k, A_v, a_b = _load_weights(
        R_q + weight * K * V, R_k + weight * K * V, R_v + weight * V * V, r_b + weight * V, i, n, c, K, V, REAL
    )
    W = tl.load(W_0 + program * V * K + at, mask, 0.0)
    h = tanh(tl.load(last + program * V + i, i < V, 0.0))
    q += program * T * K
    k += program * T * K
    v += program * T * V
    beta += program * T
    o += program * T * V
    record += program * T * (2 * K + V + 1)
    starts += program * tl.cdiv(T, STEPS) * V * K
    q_next, k_next = tl.load(q + c, c < K, 0.0), tl.load(k + c, c < K, 0.0)
    v_next, b_next = tl.load(v + n, n < V, 0.0), tl.load(beta)
    for t in range(T):
        if t % STEPS == 0:
            tl.store(starts + t // STEPS * V * K + at, W, mask)
        h_i = h[:, None]
        q_t = softmax(q_next.to(REAL) + tl.sum(h_i * A_q, 0), c < K)
        k_t = softmax(k_next.to(REAL) + tl.sum(h_i * A_k, 0), c < K)
        v_t = v_next.to(REAL) + tl.sum(A_v * h[None, :], 1)
        b_t = sigmoid(b_next.to(REAL) + tl.sum(a_b * h, 0))
        ahead = tl.minimum(t + 1, T - 1)
        q_next, k_next = tl.load(q + ahead * K + c, c < K, 0.0), tl.load(k + ahead * K + c, c < K, 0.0)
        v_next, b_next = tl.load(v + ahead * V + n, n < V, 0.0), tl.load(beta + ahead)
        e = v_t if ADDITIVE else v_t - tl.sum(W * k_t[None, :], 1)
        W += (b_t * e)[:, None] * k_t[None, :]
        o_t = tl.sum(W * q_t[None, :], 1)
        h = tanh(o_t)
        tl.store(o + t * V + i, o_t, i < V)
        now = record + t * (2 * K + V + 1)
        tl.store(now + c, q_t, c < K)
        tl.store(now + K + c, k_t, c < K)
        tl.store(now + 2 * K, b_t)
        tl.store(now + 2 * K + 1 + i, e, i < V)
    tl.store(final + program * V * K + at, W, mask)


@triton.jit
def _backward(
    R_q, R_k, R_v, r_b, last, o, final, record, starts, do, d_final,
    dq, dk, dv, dbeta, dR, dW, dlast, scratch, undone,
    H, per_group, T, K, V, tolerated,
    ADDITIVE: tl.constexpr, PK: tl.constexpr, PV: tl.constexpr, STEPS: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    weight = program // H // per_group * H + program % H
    i, n, c = tl.arange(0, PV), tl.arange(0, PV), tl.arange(0, PK)
    mask, wide = (i < V)[:, None] & (c < K)[None, :], (i < V)[:, None] & (n < V)[None, :]
    at = i[:, None] * K + c[None, :]
    flat, square = i[:, None] + c[None, :] * V, i[:, None] * V + n[None, :]
    record += program * T * (2 * K + V + 1)
    starts += program * tl.cdiv(T, STEPS) * V * K
    if undone is not None:
        undone += program * tl.cdiv(T, STEPS) * V * K
        drifted = tl.zeros([], REAL)
        for segment in range(tl.cdiv(T, STEPS)):
            W = tl.load(undone + segment * V * K + at, mask, 0.0)
            beyond = _drift(W, starts, record, segment, at, mask, i, K, V, tolerated, STEPS)
            drifted = tl.maximum(drifted, beyond)
        if drifted <= 0:
            return
    A_q, A_k, A_v, a_b = _load_weights(
        R_q + weight * K * V, R_k + weight * K * V, R_v + weight * V * V, r_b + weight * V, i, n, c, K, V, REAL
    )
    W = tl.load(final + program * V * K + at, mask, 0.0)
    D = tl.zeros([PV, PK], REAL)
    if d_final is not None:
        D += tl.load(d_final + program * V * K + at, mask, 0.0)
    last += program * V
    o += program * T * V
    do += program * T * V
    dq += program * T * K
    dk += program * T * K
    dv += program * T * V
    dbeta += program * T
    scratch += program * (3 * K + V + 2) * V
    G_q, G_k = tl.zeros([PV, PK], REAL), tl.zeros([PV, PK], REAL)
    G_v, g_b = tl.zeros([PV, PV], REAL), tl.zeros([PV], REAL)
    feedback = tl.zeros([PV], REAL)  # the gradient of o_t through the step after it

    segment = tl.cdiv(T, STEPS) - 1
    again = 0
    while segment >= 0:
        begin = segment * STEPS
        start = starts + segment * V * K
        count = tl.minimum(T - begin, STEPS)
        if again != 0:
            D = tl.load(scratch + at, mask, 0.0)
            G_q, G_k = tl.load(scratch + K * V + flat, mask, 0.0), tl.load(scratch + 2 * K * V + flat, mask, 0.0)
            G_v = tl.load(scratch + 3 * K * V + square, wide, 0.0)
            g_b = tl.load(scratch + (3 * K + V) * V + i, i < V, 0.0)
            feedback = tl.load(scratch + (3 * K + V + 1) * V + i, i < V, 0.0)
        else:
            tl.store(scratch + at, D, mask)
            tl.store(scratch + K * V + flat, G_q, mask)
            tl.store(scratch + 2 * K * V + flat, G_k, mask)
            tl.store(scratch + 3 * K * V + square, G_v, wide)
            tl.store(scratch + (3 * K + V) * V + i, g_b, i < V)
            tl.store(scratch + (3 * K + V + 1) * V + i, feedback, i < V)
            tl.debug_barrier()
        for back in range(count):
            t = begin + count - 1 - back
            now = record + t * (2 * K + V + 1)
            q_t, k_t = tl.load(now + c, c < K, 0.0), tl.load(now + K + c, c < K, 0.0)
            b_t, e = tl.load(now + 2 * K), tl.load(now + 2 * K + 1 + i, i < V, 0.0)
            do_t = tl.load(do + t * V + i, i < V, 0.0).to(REAL) + feedback
            previous = tl.load(o + tl.maximum(t - 1, 0) * V + i, i < V, 0.0).to(REAL)
            h = tanh(tl.where(t > 0, previous, tl.load(last + i, i < V, 0.0)))
            u = (b_t * e)[:, None]
            if again != 0:
                W = tl.load(start + at, mask, 0.0)
                for s in range(begin, t):
                    then = record + s * (2 * K + V + 1)
                    u_s = tl.load(then + 2 * K) * tl.load(then + 2 * K + 1 + i, i < V, 0.0)
                    W += u_s[:, None] * tl.load(then + K + c, c < K, 0.0)[None, :]
            else:
                W -= u * k_t[None, :]
            # o = W' q, W' = W + u k^T, u = beta e, e = v - W k, or v
            do_i = do_t[:, None]
            dq_t = tl.sum(W * do_i, 0) + k_t * tl.sum(b_t * e * do_t, 0)
            D += do_i * q_t[None, :]
            du = tl.sum(D * k_t[None, :], 1)
            dk_t = tl.sum(D * u, 0)
            dv_t = b_t * du
            if not ADDITIVE:
                dk_t -= tl.sum(W * dv_t[:, None], 0)
                D -= dv_t[:, None] * k_t[None, :]
            dq_t = q_t * (dq_t - tl.sum(q_t * dq_t, 0))
            dk_t = k_t * (dk_t - tl.sum(k_t * dk_t, 0))
            db_t = tl.sum(e * du, 0) * b_t * (1.0 - b_t)
            h_i = h[:, None]
            G_q += h_i * dq_t[None, :]
            G_k += h_i * dk_t[None, :]
            G_v += dv_t[:, None] * h[None, :]
            g_b += h * db_t
            across = tl.sum(A_v * dv_t[:, None], 0)
            dh = tl.sum(A_q * dq_t[None, :], 1) + tl.sum(A_k * dk_t[None, :], 1) + a_b * db_t
            feedback = (dh + across) * (1.0 - h * h)
            tl.store(dq + t * K + c, dq_t, c < K)
            tl.store(dk + t * K + c, dk_t, c < K)
            tl.store(dv + t * V + i, dv_t, i < V)
            tl.store(dbeta + t, db_t)
        beyond = _drift(W, starts, record, segment, at, mask, i, K, V, tolerated, STEPS)
        W = tl.load(start + at, mask, 0.0)
        again = tl.where((again == 0) & (beyond > 0), 1, 0)
        segment -= 1 - again
    tl.store(dW + program * V * K + at, D, mask)
    tl.store(dlast + program * V + i, feedback, i < V)
    dR += program // H * H * (2 * K + V + 1) * V  # one weight after the other, each with all heads
    head = program % H
    tl.store(dR + head * K * V + flat, G_q, mask)
    tl.store(dR + (H + head) * K * V + flat, G_k, mask)
    tl.store(dR + (2 * H * K + head * V) * V + square, G_v, wide)
    tl.store(dR + (H * (2 * K + V) + head) * V + i, g_b, i < V)
