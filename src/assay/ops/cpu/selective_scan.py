"""The selective scan; a block is one row and head. What is done per channel and step, around it, PyTorch does."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.ops.cpu.functions import exp
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.grouped import group_sum, or_zeros
from assay.ops.products import per_row

Tensors = tuple[Tensor, ...]
SEGMENT = 16  # steps between the states that the forward pass keeps


def outputs(x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor) -> Tensors:
    """y and the final state; then h C + D x, and the states at the start of every segment."""
    starts = h.new_empty(*h.shape[:2], -(-x.shape[2] // SEGMENT), *h.shape[2:])
    return torch.empty_like(x), torch.empty_like(h), torch.empty_like(x), starts


def forward(
    results: Tensors, x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> None:
    y, last, read, starts = results
    last.copy_(h)
    launch(_forward, x.shape[0] * x.shape[1], {}, x, F.softplus(dt), -A.exp(), B, C, last, read, starts)
    read += per_row(D, len(x))[:, :, None] * x
    torch.mul(read, F.silu(z), out=y)


def backward(
    results: Tensors,
    grads: Tensors,
    x: Tensor,
    z: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    h: Tensor,
) -> Tensors:
    _, _, read, starts = results
    step, rates, dread = F.softplus(dt), -A.exp(), grads[0] * F.silu(z)
    dx, dstep, dB, dC = (torch.empty_like(a) for a in (x, dt, B, C))
    dh = or_zeros(grads[1], h).clone()
    dA = torch.empty_like(h)
    layout = {"states": -(-(SEGMENT + 1) * h.shape[2] * h.shape[3] // LANES)}
    arguments = x, step, rates, B, C, starts, dread, dx, dstep, dA, dB, dC, dh
    launch(_backward, x.shape[0] * x.shape[1], layout, *arguments)
    dx += per_row(D, len(x))[:, :, None] * dread
    dz = torch.ops.aten.silu_backward(grads[0] * read, z)
    dD = group_sum((dread * x).sum(2), len(D))
    return dx, dz, dstep * dt.sigmoid(), group_sum(dA, len(A)) * rates, dB, dC, dD, dh


@kernel
def _forward(start, stop, scratch, x, dt, A, B, C, state, y, starts):
    rows, H, T, D = x.shape
    N = A.shape[3]
    for block in range(start, stop):
        row, head = divmod(block, H)
        A_r, h = A[row * len(A) // rows, head], state[row, head]
        for t in range(T):
            if t % SEGMENT == 0:
                starts[row, head, t // SEGMENT] = h
            B_t, C_t = B[row, head, t], C[row, head, t]
            for i in range(D):
                step = dt[row, head, t, i]
                fresh = step * x[row, head, t, i]
                y_i = fresh - fresh
                for n in range(N):
                    h_n = exp(step * A_r[i, n]) * h[i, n] + fresh * B_t[n]
                    h[i, n] = h_n
                    y_i += h_n * C_t[n]
                y[row, head, t, i] = y_i


@kernel
def _backward(start, stop, scratch, x, dt, A, B, C, starts, dy, dx, ddt, dA, dB, dC, d_state):
    """h_t = g h + dt x B with g = exp(dt A): the states of a segment are computed again, then walked back."""
    rows, H, T, D = x.shape
    N = A.shape[3]
    (states,) = areas(scratch)
    states = states[: (SEGMENT + 1) * D * N].reshape(SEGMENT + 1, D, N)
    for block in range(start, stop):
        row, head = divmod(block, H)
        A_r, dh, dA_r = A[row * len(A) // rows, head], d_state[row, head], dA[row, head]
        dA_r[:] = 0
        for part in range(starts.shape[2] - 1, -1, -1):
            begin, end = part * SEGMENT, min(T, (part + 1) * SEGMENT)
            states[0] = starts[row, head, part]
            for t in range(begin, end):
                before, after, B_t = states[t - begin], states[t - begin + 1], B[row, head, t]
                for i in range(D):
                    step = dt[row, head, t, i]
                    fresh = step * x[row, head, t, i]
                    for n in range(N):
                        after[i, n] = exp(step * A_r[i, n]) * before[i, n] + fresh * B_t[n]
            for t in range(end - 1, begin - 1, -1):
                before, after = states[t - begin], states[t - begin + 1]
                B_t, C_t, dB_t, dC_t = B[row, head, t], C[row, head, t], dB[row, head, t], dC[row, head, t]
                dB_t[:] = 0
                dC_t[:] = 0
                for i in range(D):
                    step, x_i, dy_i = dt[row, head, t, i], x[row, head, t, i], dy[row, head, t, i]
                    d_fresh = d_step = step - step
                    for n in range(N):
                        d_n = dh[i, n] + dy_i * C_t[n]
                        dC_t[n] += dy_i * after[i, n]
                        dB_t[n] += d_n * step * x_i
                        g = exp(step * A_r[i, n])
                        d_exponent = d_n * before[i, n] * g
                        dA_r[i, n] += d_exponent * step
                        d_step += d_exponent * A_r[i, n]
                        d_fresh += d_n * B_t[n]
                        dh[i, n] = d_n * g
                    dx[row, head, t, i] = d_fresh * step
                    ddt[row, head, t, i] = d_step + d_fresh * x_i
