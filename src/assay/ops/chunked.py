"""Parallel forms of the recurrences that have one, chunk by chunk, in plain PyTorch.

Within a chunk everything is matrix products; from chunk to chunk the state is carried. Each equals the reference of its
operator up to rounding.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.ops.products import as_complex, per_row

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


def diagonal_scan(u: Tensor, a: Tensor, b: Tensor, C: Tensor, D: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """y_i = 2 Re(C a^(i+1) h) + sum_{j<=i} K_{i-j} u_j with K_l = 2 Re sum(C b a^l), and D added to K_0.

    Sequences are [groups, heads, dim, rows, time] here, and states [..., rows, 2 state]: products of real matrices.
    """
    groups = len(D)
    chunk = min(CHUNK, u.shape[2])
    a, b, C = as_complex(a), as_complex(b), as_complex(C)
    powers = torch.ones_like(a)[..., None]
    while powers.shape[-1] <= chunk:  # 1, a, ..., a^(2n-1) from 1, a, ..., a^(n-1)
        powers = torch.cat([powers, powers * (powers[..., -1] * a)[..., None]], dim=-1)
    K = 2 * ((C * b)[..., None] * powers[..., :chunk]).sum(-2).real
    K = torch.cat([K[..., :1] + D[..., None], K[..., 1:]], dim=-1)
    toeplitz = F.pad(K, (chunk - 1, 0)).unfold(-1, chunk, 1).flip(-2)  # [j, i] is K_(i-j), or 0
    reads = 2 * C[..., None] * powers[..., 1 : chunk + 1]
    reads = torch.stack([reads.real, -reads.imag], dim=-2).flatten(-3, -2)
    writes = torch.view_as_real((b[..., None] * powers[..., :chunk]).mT.contiguous()).flatten(-2)
    x = u.unflatten(0, (groups, -1)).permute(0, 2, 4, 1, 3)
    state = h.unflatten(0, (groups, -1)).permute(0, 2, 3, 1, 4, 5).flatten(-2)
    outputs = []
    for x_c in x.split(CHUNK, dim=-1):
        n = x_c.shape[-1]
        outputs.append(x_c @ toeplitz[..., :n, :n] + state @ reads[..., :n])
        kept = as_complex(state.unflatten(-1, (-1, 2))) * powers[..., None, :, n]
        state = torch.view_as_real(kept).flatten(-2) + x_c @ writes[..., :n, :].flip(-2)
    y = torch.cat(outputs, dim=-1).permute(0, 3, 1, 4, 2).reshape(u.shape)
    return y, state.unflatten(-1, (-1, 2)).permute(0, 3, 1, 2, 4, 5).reshape(h.shape)


def causal_convolution(x: Tensor, w: Tensor, b: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """One product per entry of the window, for all moments at once."""
    time, w, b = x.shape[2], per_row(w, len(x)), per_row(b, len(x))
    window = torch.cat([past.mT, x], dim=2)
    total = b[:, :, None]
    for k in range(w.shape[-1]):
        total = total + w[:, :, None, :, k] * window[:, :, k : k + time]
    return F.silu(total), window[:, :, time:].mT


def dplr(q: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """What the corrections read solves r_i = a_i^T D S + sum_{j<i} (a_i . D b_j) r_j + (a_i . D k_j) v_j.

    A unit lower triangular system over the writes of a chunk. D is the decay between two writes, a product of w that is
    multiplied up: nothing is divided by a small decay. Then o_i = q_i^T D S + sum_{j<=i} (q_i . D b_j) r_j + ...
    """
    outputs, (writes, corrections) = [], (k.shape[3], a.shape[3])
    length = max(1, (CHUNK if w.shape[-1] == 1 else CHUNK // 4) // writes)  # all pairs of moments have decays of keys
    for q_c, k_c, v_c, w_c, a_c, b_c in zip(*(x.split(length, dim=2) for x in (q, k, v, w, a, b)), strict=True):
        time, values = q_c.shape[2], v_c.flatten(2, 3)
        decay = _decays(w_c)
        reads = values[:, :, :0]
        if corrections:
            reads = _reads(k_c, values, decay, a_c, b_c, S)
        causal = q.new_ones(time, time).tril()
        o = (decay[:, :, :, 0] * q_c) @ S
        S = decay[:, :, -1, 0, :, None] * S
        for key, value in ((b_c, reads), (k_c, values)):
            scores = _scores(q_c[:, :, :, None], decay[:, :, :, None, 1:], key)
            o = o + (scores * causal.repeat_interleave(key.shape[3], 1)) @ value
            S = S + (decay[:, :, -1, 1:, None] * key).flatten(2, 3).mT @ value
        outputs.append(o)
    return torch.cat(outputs, dim=2), S


def _reads(k: Tensor, values: Tensor, decay: Tensor, a: Tensor, b: Tensor, S: Tensor) -> Tensor:
    """a^T S before every write of a chunk; the first of a moment reads S before the decay of that moment."""
    writes = k.shape[3]
    moment_before = torch.cat([torch.ones_like(decay[:, :, :1]), decay[:, :, :-1]], dim=2)
    decay = torch.stack([moment_before] + [decay] * (writes - 1), dim=3)
    earlier = a.new_ones(values.shape[2], values.shape[2]).tril(-1)
    by_read, by_value = (_scores(a, decay[..., 1:, :], key) * earlier for key in (b, k))
    right = (decay[..., 0, :] * a).flatten(2, 3) @ S + by_value @ values
    system = torch.eye(values.shape[2], dtype=a.dtype, device=a.device) - by_read
    reads: Tensor = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    return reads


def _decays(w: Tensor) -> Tensor:
    """[..., i, j, :] is w_j ... w_i, the decay from before moment j to after moment i; 1 for j > i, up to j = time."""
    decay = torch.ones_like(w[:, :, :1]).expand(-1, -1, w.shape[2] + 1, -1)
    moments, rows = torch.arange(w.shape[2] + 1, device=w.device)[:, None], []
    for i, w_i in enumerate(w.unbind(2)):
        decay = torch.where(moments <= i, decay * w_i[:, :, None], decay)
        rows.append(decay)
    return torch.stack(rows, dim=2)


def _scores(reader: Tensor, decay: Tensor, key: Tensor) -> Tensor:
    """reader . decay key: [time, reads, key size] by [time, keys, key size], with decays [time, reads, time, 1 or key
    size]; as a matrix [time reads, time keys]."""
    if decay.shape[-1] == 1:
        products = reader.flatten(2, 3) @ key.flatten(2, 3).mT
        return products * decay.flatten(2, 3)[..., 0].repeat_interleave(key.shape[3], -1)
    decayed = (reader[..., None, :] * decay).flatten(2, 3)
    return (decayed.transpose(2, 3) @ key.mT).transpose(2, 3).flatten(3)
