"""The recurrent delta rule with small heads: a lane has one row of every matrix (see `lanes`)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import sigmoid, state_type, tanh
from assay.ops.gpu.lanes import (
    across,
    add_scaled,
    collect,
    dot,
    grid,
    load_column,
    scale,
    sequences,
    softmax,
    spread,
    store_column,
    zero_column,
)
from assay.ops.gpu.segments import SEGMENT

Tensors = tuple[Tensor, ...]


def forward(results: Tensors, inputs: Tensors, lanes: int, additive: bool) -> None:
    q, R_q = inputs[0], inputs[4]
    B, H, T, _ = q.shape
    sizes = B * H, H, B // len(R_q), T
    _forward[grid(q, lanes)](*inputs, *results, *sizes, ADDITIVE=additive, **_settings(inputs, lanes))


def backward(
    results: Tensors, grads: tuple[Tensor | None, ...], inputs: Tensors, gradients: Tensors, lanes: int, additive: bool
) -> Tensor:
    """Fill the gradients; returns the states at the segments' starts as they were undone."""
    q, *R, last = inputs[0], *inputs[4:8], inputs[9]
    B, H, T, _ = q.shape
    undone = torch.empty_like(results[3])
    tensors = *R, last, *results, *grads, *gradients, undone
    sizes = B * H, H, B // len(R[0]), T
    _backward[grid(q, lanes)](*tensors, *sizes, ADDITIVE=additive, **_settings(inputs, lanes))
    return undone


def _settings(inputs: Tensors, lanes: int) -> dict[str, Any]:
    q, v = inputs[0], inputs[2]
    sizes = {"K": q.shape[-1], "V": v.shape[-1], "P": lanes, "STEPS": SEGMENT}
    return sizes | {"REAL": state_type(v), "num_warps": 1}


@triton.jit
def _load_weights(
    R_q, R_k, R_v, r_b, weight, place, K: tl.constexpr, V: tl.constexpr, P: tl.constexpr, REAL: tl.constexpr
):
    """A row of each matrix, and an entry of r_b."""
    at = weight * K * V + place * V
    A_q = load_column(R_q + at, 1, V, place < K, P, REAL)
    A_k = load_column(R_k + at, 1, V, place < K, P, REAL)
    A_v = load_column(R_v + weight * V * V + place * V, 1, V, place < V, P, REAL)
    return A_q, A_k, A_v, tl.load(r_b + weight * V + place, place < V, 0.0).to(REAL)


@triton.jit
def _forward(
    q, k, v, beta, R_q, R_k, R_v, r_b, W_0, last, o, final, record, starts,
    count, H, per_group, T,
    ADDITIVE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, P: tl.constexpr, STEPS: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    sequence, alive, place, first = sequences(count, P)
    weight = sequence // H // per_group * H + sequence % H
    R: tl.constexpr = 2 * K + V + 1
    of_key, of_value = alive & (place < K), alive & (place < V)
    A_q, A_k, A_v, a_b = _load_weights(R_q, R_k, R_v, r_b, weight, place, K, V, P, REAL)
    W = load_column(W_0 + sequence * V * K + place * K, 1, K, of_value, P, REAL)
    h = tanh(tl.load(last + sequence * V + place, of_value, 0.0).to(REAL))
    q += sequence * T * K + place
    k += sequence * T * K + place
    v += sequence * T * V + place
    beta += sequence * T
    o += sequence * T * V + place
    record += sequence * T * R + place
    starts += sequence * tl.cdiv(T, STEPS) * V * K + place * K
    q_next, k_next = tl.load(q, of_key, 0.0), tl.load(k, of_key, 0.0)
    v_next, b_next = tl.load(v, of_value, 0.0), tl.load(beta, alive, 0.0)
    for t in range(T):
        if t % STEPS == 0:
            store_column(starts + t // STEPS * V * K, 1, K, W, of_value, P)
        h_i = spread(h, first, P)
        q_t = softmax(q_next.to(REAL) + dot(h_i, A_q, P), place < K, P)
        k_t = softmax(k_next.to(REAL) + dot(h_i, A_k, P), place < K, P)
        v_t = v_next.to(REAL) + dot(h_i, A_v, P)
        b_t = sigmoid(b_next.to(REAL) + across(a_b * h, P))
        ahead = tl.minimum(t + 1, T - 1)
        q_next, k_next = tl.load(q + ahead * K, of_key, 0.0), tl.load(k + ahead * K, of_key, 0.0)
        v_next, b_next = tl.load(v + ahead * V, of_value, 0.0), tl.load(beta + ahead, alive, 0.0)
        k_c, q_c = spread(k_t, first, P), spread(q_t, first, P)
        e = v_t if ADDITIVE else v_t - dot(W, k_c, P)
        W = add_scaled(W, k_c, b_t * e, P)
        o_t = dot(W, q_c, P)
        h = tanh(o_t)
        tl.store(o + t * V, o_t, of_value)
        now = record + t * R
        tl.store(now, q_t, of_key)
        tl.store(now + K, k_t, of_key)
        tl.store(now + 2 * K, b_t, alive & (place == 0))
        tl.store(now + 2 * K + 1, e, of_value)
    store_column(final + sequence * V * K + place * K, 1, K, W, of_value, P)


@triton.jit
def _backward(
    R_q, R_k, R_v, r_b, last, o, final, record, starts, do, d_final,
    dq, dk, dv, dbeta, dR, dW, dlast, undone,
    count, H, per_group, T,
    ADDITIVE: tl.constexpr, K: tl.constexpr, V: tl.constexpr, P: tl.constexpr, STEPS: tl.constexpr,
    REAL: tl.constexpr,
):  # fmt: skip
    sequence, alive, place, first = sequences(count, P)
    weight = sequence // H // per_group * H + sequence % H
    R: tl.constexpr = 2 * K + V + 1
    of_key, of_value = alive & (place < K), alive & (place < V)
    at = sequence * V * K + place * K
    A_q, A_k, A_v, a_b = _load_weights(R_q, R_k, R_v, r_b, weight, place, K, V, P, REAL)
    W = load_column(final + at, 1, K, of_value, P, REAL)
    nothing = zero_column(a_b, P)
    D = load_column(d_final + at, 1, K, of_value, P, REAL) if d_final is not None else nothing
    G_q, G_k, G_v, g_b = nothing, nothing, nothing, tl.zeros_like(a_b)
    feedback = tl.zeros_like(a_b)  # the gradient of o_t through the step after it
    h_0 = tl.load(last + sequence * V + place, of_value, 0.0).to(REAL)
    o += sequence * T * V + place
    do += sequence * T * V + place
    record += sequence * T * R
    starts += sequence * tl.cdiv(T, STEPS) * V * K + place * K
    undone += sequence * tl.cdiv(T, STEPS) * V * K + place * K
    dq += sequence * T * K + place
    dk += sequence * T * K + place
    dv += sequence * T * V + place
    dbeta += sequence * T
    for behind in range(tl.cdiv(T, STEPS)):
        begin = (tl.cdiv(T, STEPS) - 1 - behind) * STEPS
        for back in range(tl.minimum(T - begin, STEPS)):
            t = tl.minimum(T, begin + STEPS) - 1 - back
            now = record + t * R
            q_t, k_t = tl.load(now + place, of_key, 0.0), tl.load(now + K + place, of_key, 0.0)
            q_c, k_c = spread(q_t, first, P), spread(k_t, first, P)
            b_t, e = tl.load(now + 2 * K, alive, 0.0), tl.load(now + 2 * K + 1 + place, of_value, 0.0)
            do_t = tl.load(do + t * V, of_value, 0.0).to(REAL) + feedback
            previous = tl.load(o + tl.maximum(t - 1, 0) * V, of_value, 0.0).to(REAL)
            h = tanh(tl.where(t > 0, previous, h_0))
            h_i = spread(h, first, P)
            u = b_t * e
            W = add_scaled(W, k_c, -u, P)
            # o = W' q, W' = W + u k^T, u = beta e, e = v - W k, or v
            dq_t = collect(scale(W, do_t, P), place, P) + k_t * across(u * do_t, P)
            D = add_scaled(D, q_c, do_t, P)
            du = dot(D, k_c, P)
            dv_t = b_t * du
            if ADDITIVE:
                dk_t = collect(scale(D, u, P), place, P)
            else:
                dk_t = collect(add_scaled(scale(D, u, P), W, -dv_t, P), place, P)
                D = add_scaled(D, k_c, -dv_t, P)
            dq_t = q_t * (dq_t - across(q_t * dq_t, P))
            dk_t = k_t * (dk_t - across(k_t * dk_t, P))
            db_t = across(e * du, P) * b_t * (1.0 - b_t)
            G_q, G_k = add_scaled(G_q, h_i, dq_t, P), add_scaled(G_k, h_i, dk_t, P)
            G_v, g_b = add_scaled(G_v, h_i, dv_t, P), g_b + h * db_t
            through = add_scaled(add_scaled(scale(A_q, dq_t, P), A_k, dk_t, P), A_v, dv_t, P)
            dh = collect(through, place, P) + a_b * db_t
            feedback = dh * (1.0 - h * h)
            tl.store(dq + t * K, dq_t, of_key)
            tl.store(dk + t * K, dk_t, of_key)
            tl.store(dv + t * V, dv_t, of_value)
            tl.store(dbeta + t, db_t, alive & (place == 0))
        store_column(undone + begin // STEPS * V * K, 1, K, W, of_value, P)
        W = load_column(starts + begin // STEPS * V * K, 1, K, of_value, P, REAL)
    store_column(dW + at, 1, K, D, of_value, P)
    tl.store(dlast + sequence * V + place, feedback, of_value)
    dR += sequence // H * H * R * V  # one weight after the other, each with all heads
    head = sequence % H
    store_column(dR + (head * K + place) * V, 1, V, G_q, of_key, P)
    store_column(dR + ((H + head) * K + place) * V, 1, V, G_k, of_key, P)
    store_column(dR + (2 * H * K + head * V + place) * V, 1, V, G_v, of_value, P)
    tl.store(dR + (H * (2 * K + V) + head) * V + place, g_b, of_value)
