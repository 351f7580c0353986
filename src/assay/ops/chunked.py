"""Parallel forms of the recurrences that have one, chunk by chunk, in plain PyTorch.

Within a chunk everything is matrix products; from chunk to chunk the state is carried. Each equals the reference of its
operator up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.products import per_row

CHUNK = 64


def _chunks(*inputs: Tensor) -> zip[tuple[Tensor, ...]]:
    return zip(*(x.split(CHUNK, dim=2) for x in inputs), strict=True)


def retention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """o_i = decay^(i+1) W q_i + sum_{j<=i} decay^(i-j) (q_i . k_j) v_j."""
    outputs, decay = [], per_row(decay, len(q))[..., None, None]
    for q_c, k_c, v_c in _chunks(q, k, v):
        n = q_c.shape[2]
        i = torch.arange(n, device=q.device)
        lag = (i[:, None] - i).clamp(min=0)
        past = decay**lag * (i[:, None] >= i)
        scores = (q_c @ k_c.mT) * past
        since = decay ** (i + 1)[:, None]
        outputs.append(scores @ v_c + since * (q_c @ W.mT))
        until = decay ** (n - 1 - i)[:, None]
        W = decay**n * W + (until * v_c).mT @ k_c
    return torch.cat(outputs, dim=2), W


def linear_attention(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """o_i = W q_i + sum_{j<=i} (q_i . k_j) v_j."""
    outputs = []
    for q_c, k_c, v_c in _chunks(q, k, v):
        outputs.append((q_c @ k_c.mT).tril() @ v_c + q_c @ W.mT)
        W = W + v_c.mT @ k_c
    return torch.cat(outputs, dim=2), W


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """The WY form: the writes u_i of a chunk solve u_i = beta_i (v_i - W k_i - sum_{j<i} (k_j . k_i) u_j).

    A unit lower triangular system; then the chunk is linear attention over the pairs (k_i, u_i).
    """
    outputs = []
    for q_c, k_c, v_c, beta_c in _chunks(q, k, v, beta[..., None]):
        system = (beta_c * (k_c @ k_c.mT)).tril(-1) + torch.eye(k_c.shape[2], dtype=k.dtype, device=k.device)
        u = torch.linalg.solve_triangular(system, beta_c * (v_c - k_c @ W.mT), upper=False, unitriangular=True)
        outputs.append((q_c @ k_c.mT).tril() @ u + q_c @ W.mT)
        W = W + u.mT @ k_c
    return torch.cat(outputs, dim=2), W


def diagonal_scan(a: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor]:
    """All h_t = a_t h_{t-1} + b_t of a chunk by doubling: after round r every entry covers the last 2^r steps."""
    outputs = []
    for a_c, b_c in _chunks(a, b):
        b_c = torch.cat([b_c[:, :, :1] + a_c[:, :, :1] * h[:, :, None], b_c[:, :, 1:]], dim=2)
        reach = 1
        while reach < b_c.shape[2]:
            b_c = torch.cat([b_c[:, :, :reach], b_c[:, :, reach:] + a_c[:, :, reach:] * b_c[:, :, :-reach]], dim=2)
            a_c = torch.cat([a_c[:, :, :reach], a_c[:, :, reach:] * a_c[:, :, :-reach]], dim=2)
            reach *= 2
        h = b_c[:, :, -1]
        outputs.append(b_c)
    return (torch.cat(outputs, dim=2),)


def selective_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """A diagonal scan over [batch, heads, time, dim, state], read by C."""
    a = torch.exp(dt[..., None] * per_row(A, len(x))[..., None, :, :])
    (states,) = diagonal_scan(a, (dt * x)[..., None] * B[..., None, :], h)
    return (states @ C[..., None])[..., 0], states[:, :, -1]
