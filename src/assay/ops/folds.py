"""Every op as the fold of its plain step, with the arguments of its rule: what every other backend must equal."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from assay.ops import reference
from assay.ops.reference import fold, per_row

Outputs = tuple[Tensor, ...]


def linear_attention(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> Outputs:
    return fold(reference.linear_attention_step, W, q, k, v)


def retention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> Outputs:
    return fold(partial(reference.retention_step, decay=per_row(decay, len(q))), W, q, k, v)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> Outputs:
    return fold(reference.delta_rule_step, W, q, k, v, beta)


def recurrent_delta(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    R_q: Tensor,
    R_k: Tensor,
    R_v: Tensor,
    r_b: Tensor,
    W: Tensor,
    last: Tensor,
    additive: bool,
) -> Outputs:
    R = torch.cat([R_q, R_k, R_v, r_b[..., None, :]], dim=-2)
    o, (W, _) = fold(partial(reference.recurrent_delta_step, R=R, additive=additive), (W, last), q, k, v, beta)
    return o, W


def srwm(
    x: Tensor,
    W_y: Tensor,
    W_q: Tensor,
    W_k: Tensor,
    w_b: Tensor,
    read_after_write: bool,
    fixed_y: bool,
    fixed_q: bool,
    fixed_k: bool,
    fixed_b: bool,
) -> Outputs:
    whole = per_row(torch.cat([W_y, W_q, W_k, w_b], dim=-1), len(x))
    fixed = fixed_y, fixed_q, fixed_k, fixed_b
    y, whole = fold(partial(reference.srwm_step, read_after_write=read_after_write, fixed=fixed), whole, x)
    d = x.shape[-1]
    return y, *whole.split([d, d, d, 4], dim=-1)


def elman(a: Tensor, R: Tensor, h: Tensor, relu: bool) -> Outputs:
    return fold(partial(reference.elman_step, R=R, relu=relu), h, a)[:1]


def gru(a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> Outputs:
    return fold(partial(reference.gru_step, R=R, b=per_row(b, len(a))), h, a)[:1]


def lstm(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> Outputs:
    outputs, (_, c) = fold(partial(reference.lstm_step, R=R), (h, c), a)
    return outputs, c


def elementwise_lstm(z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> Outputs:
    step = partial(reference.elementwise_lstm_step, w_z=per_row(w_z, len(z)), w_f=per_row(w_f, len(z)))
    return fold(step, c, z, f)[:1]


def diagonal_scan(a: Tensor, b: Tensor, h: Tensor) -> Outputs:
    return fold(reference.diagonal_scan_step, h, a, b)[:1]


def selective_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> Outputs:
    return fold(partial(reference.selective_scan_step, A=per_row(A, len(x))), h, x, dt, B, C)


def affine(x: Tensor, W: Tensor, b: Tensor, relu: bool) -> Outputs:
    return (reference.affine(x, W, b, relu),)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Outputs:
    return (reference.layer_norm(x, w, b),)
