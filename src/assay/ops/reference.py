"""Every recurrence as one plain step, on one page; and what is done at every moment alone.

Shapes: inputs [batch, heads, time, dim], one step of them [batch, heads, dim]; weights [groups, heads, ...], where the
batch is a multiple of the groups and row i belongs to group i // (batch / groups). A fast weight W is [batch, heads,
value, key]. Each step takes the state first, then the inputs of one moment, and returns (output, new state).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

State = TypeVar("State")
EPS = 1e-5  # as torch.nn.LayerNorm has it


def fold(step: Callable[..., tuple[Tensor, Any]], state: State, *inputs: Tensor) -> tuple[Tensor, State]:
    """Run a step along the time axis (the third) of its inputs."""
    outputs = []
    for moment in zip(*(x.unbind(2) for x in inputs), strict=True):
        output, state = step(state, *moment)
        outputs.append(output)
    return torch.stack(outputs, dim=2), state


def per_row(weight: Tensor, batch: int) -> Tensor:
    """A group's weight for each of its rows."""
    return weight.repeat_interleave(batch // weight.shape[0], dim=0)


def weigh(R: Tensor, x: Tensor) -> Tensor:
    """R x with each row's group's weight: R [groups, heads, out, dim], x [batch, heads, dim]."""
    by_group = x.reshape(R.shape[0], -1, *x.shape[1:]).transpose(1, 2)
    return (by_group @ R.mT).transpose(1, 2).reshape(*x.shape[:2], -1)


def apply(W: Tensor, x: Tensor) -> Tensor:
    """W x for every row and head."""
    return (W @ x[..., None])[..., 0]


def outer(a: Tensor, b: Tensor) -> Tensor:
    """a b^T for every row and head."""
    return a[..., :, None] * b[..., None, :]


# -- fast weight programmers (Irie et al. 2023) --------------------------------------------------------------------


def linear_attention_step(W: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """W' = W + v k^T, o = W' q."""
    W = W + outer(v, k)
    return apply(W, q), W


def retention_step(W: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """W' = decay W + v k^T, o = W' q, with a decay [batch, heads] (Sun et al. 2023)."""
    W = decay[..., None, None] * W + outer(v, k)
    return apply(W, q), W


def delta_rule_step(W: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """W' = W + beta (v - W k) k^T, o = W' q."""
    W = W + outer(beta[..., None] * (v - apply(W, k)), k)
    return apply(W, q), W


def recurrent_delta_step(
    state: tuple[Tensor, Tensor], q: Tensor, k: Tensor, v: Tensor, beta: Tensor, R: Tensor, additive: bool = False
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The delta rule whose q, k, v and beta also see h = tanh(o), the head's last output.

    q' = softmax(q + R_q h), k' = softmax(k + R_k h), v' = v + R_v h, beta' = sigmoid(beta + r_b . h), where R holds
    R_q, R_k, R_v and r_b one above the other. Additive, nothing is taken away: W' = W + beta' v' k'^T.
    """
    W, o = state
    from_q, from_k, from_v, from_b = weigh(R, o.tanh()).split([q.shape[-1], k.shape[-1], v.shape[-1], 1], dim=-1)
    q, k, v = (q + from_q).softmax(-1), (k + from_k).softmax(-1), v + from_v
    beta = (beta + from_b[..., 0]).sigmoid()
    o, W = linear_attention_step(W, q, k, beta[..., None] * v) if additive else delta_rule_step(W, q, k, v, beta)
    return o, (W, o)


def srwm_step(
    W: Tensor, x: Tensor, read_after_write: bool = False, fixed: tuple[bool, bool, bool, bool] = (False,) * 4
) -> tuple[Tensor, Tensor]:
    """A weight matrix that modifies itself: W = [W_y | W_q | W_k | w_b], d rows and 3 d + 4 columns, row vectors.

    y, q, k, beta = x W_y, softmax(x W_q), softmax(x W_k), sigmoid(x w_b), and each part i with its own beta_i:
    W_i' = W_i + beta_i k^T (q W_i - k W_i). The output y is read before the write unless said otherwise.
    Parts that are `fixed` are not written to: their beta_i is 0.
    """
    d = x.shape[-1]
    y, q, k, beta = apply(W.mT, x).split([d, d, d, 4], dim=-1)
    q, k, beta = q.softmax(-1), k.softmax(-1), beta.sigmoid()
    if any(fixed):
        beta = torch.stack([rate * (not still) for rate, still in zip(beta.unbind(-1), fixed, strict=True)], dim=-1)
    rates = torch.cat([beta[..., :3].repeat_interleave(d, dim=-1), beta[..., 3:].expand(*beta.shape[:-1], 4)], dim=-1)
    W = W + outer(k, rates * apply(W.mT, q - k))
    return apply(W[..., :d].mT, x) if read_after_write else y, W


# -- recurrent networks --------------------------------------------------------------------------------------------


def elman_step(h: Tensor, a: Tensor, R: Tensor, relu: bool = False) -> tuple[Tensor, Tensor]:
    """h' = tanh(a + R h), or relu; a holds the input's share of the sum."""
    h = a + weigh(R, h)
    h = h.relu() if relu else h.tanh()
    return h, h


def gru_step(h: Tensor, a: Tensor, R: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """r, z = sigmoid(a + R h), n = tanh(a_n + r (R_n h + b)), h' = (1 - z) n + z h; gates stacked as r, z, n."""
    a_r, a_z, a_n = a.chunk(3, -1)
    h_r, h_z, h_n = weigh(R, h).chunk(3, -1)
    r, z = (a_r + h_r).sigmoid(), (a_z + h_z).sigmoid()
    n = (a_n + r * (h_n + b)).tanh()
    h = (1 - z) * n + z * h
    return h, h


def lstm_step(state: tuple[Tensor, Tensor], a: Tensor, R: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """c' = f c + i g, h' = o tanh(c'); i, f, o = sigmoid(a + R h) and g = tanh(a + R h), stacked as i, f, g, o."""
    h, c = state
    i, f, g, o = (a + weigh(R, h)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h, (h, c)


def elementwise_lstm_step(c: Tensor, z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f c + (1 - f) z, where z = tanh(z + w_z c) and f = sigmoid(f + w_f c), all element by element."""
    z, f = (z + w_z * c).tanh(), (f + w_f * c).sigmoid()
    c = f * c + (1 - f) * z
    return c, c


# -- state-space models --------------------------------------------------------------------------------------------


def diagonal_scan_step(h: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """h' = a h + b, element by element, real or complex."""
    h = a * h + b
    return h, h


def selective_scan_step(h: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, A: Tensor) -> tuple[Tensor, Tensor]:
    """h' = exp(dt A) h + dt x B^T, y = h' C (Gu and Dao 2023); x, dt [batch, heads, dim], B, C [..., state]."""
    h = torch.exp(dt[..., None] * A) * h + outer(dt * x, B)
    return apply(h, C), h


# -- every moment alone: no state, so that a step takes whole sequences ------------------------------------------------


def affine(x: Tensor, W: Tensor, b: Tensor, relu: bool = False) -> Tensor:
    """y = W x + b, or max(0, y): W [groups, heads, out, dim], b [groups, heads, out], x [batch, heads, time, dim]."""
    groups, heads, out, _ = W.shape
    if groups == heads == 1:
        y = F.linear(x, W[0, 0], b[0, 0])
    else:
        by_group = x.unflatten(0, (groups, -1)).transpose(1, 2)  # [groups, heads, rows, time, dim]
        y = by_group.flatten(2, 3) @ W.mT + b[:, :, None]
        y = y.unflatten(2, by_group.shape[2:4]).transpose(1, 2).reshape(*x.shape[:3], out)
    return y.relu() if relu else y


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """y = w (x - mean) / sqrt(variance + EPS) + b, over the last axis: w, b [groups, heads, dim]."""
    groups, heads, dim = w.shape
    if groups == heads == 1:
        return F.layer_norm(x, (dim,), w[0, 0], b[0, 0], EPS)
    by_group: Tensor = F.layer_norm(x, (dim,), eps=EPS).unflatten(0, (groups, -1))
    return (by_group * w[:, None, :, None] + b[:, None, :, None]).flatten(0, 1)
