"""The recurrences as functions on tensors.

Inputs are [batch, heads, time, dim], weights [groups, heads, ...] with the batch a multiple of the groups; a state left
out is zero. Each returns (outputs, final state). `backend="auto"` takes the parallel form where the rule has one that
pays, and `chosen` says which that is; `"reference"` is the fold of the plain step.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from assay.description import BadInput, suggestion
from assay.ops import chunked, reference
from assay.ops.reference import fold, per_row

Backend = Literal["auto", "reference", "chunked"]
PARALLEL = ("linear_attention", "retention", "delta_rule", "diagonal_scan", "selective_scan")

Sequence = Float[Tensor, "batch heads time dim"]
Gate = Float[Tensor, "batch heads time"]
FastWeight = Float[Tensor, "batch heads value key"]
Vector = Float[Tensor, "batch heads dim"]


def chosen(op: str, backend: Backend, device: torch.device) -> str:
    """The backend that an op runs with on a device.

    On a CPU the scans are folded step by step: doubling moves many times the memory and is slower there.
    """
    if backend not in ("auto", "reference", "chunked"):
        raise BadInput(f"unknown backend {backend!r}{suggestion(str(backend), ('auto', 'reference', 'chunked'))}")
    if backend == "chunked" and op not in PARALLEL:
        raise BadInput(f"{op} has no chunked form; its backends are: auto, reference")
    if backend != "auto":
        return backend
    folded = op not in PARALLEL or (op in ("diagonal_scan", "selective_scan") and device.type == "cpu")
    return "reference" if folded else "chunked"


def _fast_weight(W: Tensor | None, k: Tensor, v: Tensor) -> Tensor:
    return v.new_zeros(*v.shape[:2], v.shape[-1], k.shape[-1]) if W is None else W


def linear_attention(
    q: Sequence, k: Sequence, v: Sequence, W: FastWeight | None = None, *, backend: Backend = "auto"
) -> tuple[Sequence, FastWeight]:
    """W' = W + v k^T, o = W' q."""
    W = _fast_weight(W, k, v)
    if chosen("linear_attention", backend, q.device) == "chunked":
        return chunked.linear_attention(W, q, k, v)
    return fold(reference.linear_attention_step, W, q, k, v)


def retention(
    q: Sequence,
    k: Sequence,
    v: Sequence,
    decay: Float[Tensor, "heads"],
    W: FastWeight | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, FastWeight]:
    """W' = decay W + v k^T, o = W' q."""
    W = _fast_weight(W, k, v)
    if chosen("retention", backend, q.device) == "chunked":
        return chunked.retention(W, q, k, v, decay)
    return fold(partial(reference.retention_step, decay=decay), W, q, k, v)


def delta_rule(
    q: Sequence,
    k: Sequence,
    v: Sequence,
    beta: Gate,
    W: FastWeight | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, FastWeight]:
    """W' = W + beta (v - W k) k^T, o = W' q."""
    W = _fast_weight(W, k, v)
    if chosen("delta_rule", backend, q.device) == "chunked":
        return chunked.delta_rule(W, q, k, v, beta)
    return fold(reference.delta_rule_step, W, q, k, v, beta)


def recurrent_delta(
    q: Sequence,
    k: Sequence,
    v: Sequence,
    beta: Gate,
    R: tuple[Tensor, Tensor, Tensor, Tensor],
    state: tuple[FastWeight, Vector] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[FastWeight, Vector]]:
    """The delta rule with feedback: R = (R_q, R_k, R_v [groups, heads, dim, dim], r_b [groups, heads, dim])."""
    chosen("recurrent_delta", backend, q.device)
    state = (_fast_weight(None, k, v), v.new_zeros(v[:, :, 0].shape)) if state is None else state
    R_q, R_k, R_v, r_b = R
    stacked = torch.cat([R_q, R_k, R_v, r_b[..., None, :]], dim=-2)
    return fold(partial(reference.recurrent_delta_step, R=stacked), state, q, k, v, beta)


def srwm(
    x: Sequence,
    W: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    read_after_write: bool = False,
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The self-referential matrix: W = (W_y, W_q, W_k [groups, heads, dim, dim], w_b [groups, heads, dim, 4])."""
    chosen("srwm", backend, x.device)
    whole = per_row(torch.cat(W, dim=-1), len(x))
    y, whole = fold(partial(reference.srwm_step, read_after_write=read_after_write), whole, x)
    d = x.shape[-1]
    W_y, W_q, W_k, w_b = whole.split([d, d, d, 4], dim=-1)
    return y, (W_y, W_q, W_k, w_b)


def elman(
    a: Sequence,
    R: Float[Tensor, "groups heads dim dim"],
    h: Vector | None = None,
    *,
    relu: bool = False,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """h' = tanh(a + R h), or relu."""
    chosen("elman", backend, a.device)
    h = a.new_zeros(a[:, :, 0].shape) if h is None else h
    return fold(partial(reference.elman_step, R=R, relu=relu), h, a)


def gru(
    a: Float[Tensor, "batch heads time three_dim"],
    R: Float[Tensor, "groups heads three_dim dim"],
    b: Float[Tensor, "groups heads dim"],
    h: Vector | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """A gated recurrent unit; `a` and R hold the gates r, z, n one after the other."""
    chosen("gru", backend, a.device)
    h = a.new_zeros(*a.shape[:2], R.shape[-1]) if h is None else h
    return fold(partial(reference.gru_step, R=R, b=per_row(b, len(a))), h, a)


def lstm(
    a: Float[Tensor, "batch heads time four_dim"],
    R: Float[Tensor, "groups heads four_dim dim"],
    state: tuple[Vector, Vector] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, tuple[Vector, Vector]]:
    """Long short-term memory; `a` and R hold the gates i, f, g, o one after the other; the state is (h, c)."""
    chosen("lstm", backend, a.device)
    zero = a.new_zeros(*a.shape[:2], R.shape[-1])
    return fold(partial(reference.lstm_step, R=R), (zero, zero) if state is None else state, a)


def elementwise_lstm(
    z: Sequence,
    f: Sequence,
    w_z: Float[Tensor, "groups heads dim"],
    w_f: Float[Tensor, "groups heads dim"],
    c: Vector | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Vector]:
    """The recurrence of the e-LSTM: its outputs are the cells c."""
    chosen("elementwise_lstm", backend, z.device)
    c = z.new_zeros(z[:, :, 0].shape) if c is None else c
    step = partial(reference.elementwise_lstm_step, w_z=per_row(w_z, len(z)), w_f=per_row(w_f, len(z)))
    return fold(step, c, z, f)


def diagonal_scan(
    a: Shaped[Tensor, "batch heads time *dims"],
    b: Shaped[Tensor, "batch heads time *dims"],
    h: Shaped[Tensor, "batch heads *dims"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]:
    """h' = a h + b element by element, real or complex; `a` may be broadcast."""
    h = b.new_zeros(b[:, :, 0].shape) if h is None else h
    if chosen("diagonal_scan", backend, b.device) == "chunked":
        return chunked.diagonal_scan(h, a, b)
    return fold(reference.diagonal_scan_step, h, a.expand_as(b), b)


def selective_scan(
    x: Sequence,
    dt: Sequence,
    A: Float[Tensor, "groups heads dim state"],
    B: Float[Tensor, "batch heads time state"],
    C: Float[Tensor, "batch heads time state"],
    h: Float[Tensor, "batch heads dim state"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Sequence, Tensor]:
    """h' = exp(dt A) h + dt x B^T, y = h' C."""
    h = x.new_zeros(*x.shape[:2], x.shape[-1], A.shape[-1]) if h is None else h
    A = per_row(A, len(x))
    if chosen("selective_scan", backend, x.device) == "chunked":
        return chunked.selective_scan(h, x, dt, B, C, A)
    return fold(partial(reference.selective_scan_step, A=A), h, x, dt, B, C)
