"""Long short-term memory."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid, tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import blocks_of, gather, history, place, scatter, take, weigh
from assay.ops.cpu.vector import LANES, load, store, zero
from assay.ops.grouped import before, or_zeros, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> Tensors:
    """The outputs h and the last cell; then, by block, the gates i, f, g, o and the cells."""
    B, H, T, _ = a.shape
    D = h.shape[-1]
    return a.new_empty(B, H, T, D), torch.empty_like(c), history(a, blocks_of(B, len(R), H), T, 5 * D)


def forward(made: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> None:
    out, last, gates = made
    scratch = 6 * h.shape[-1] * LANES
    given = a, R, h[:, :, None], c[:, :, None], out, last[:, :, None], gates.flatten(2)
    launch(_forward, len(gates), scratch, *given)


def backward(made: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> Tensors:
    out, _, gates = made
    da, dh, dc = torch.empty_like(a), torch.empty_like(h), torch.empty_like(c)
    given = R.mT.contiguous(), c[:, :, None], gates.flatten(2), grads[0], or_zeros(grads[1], c)[:, :, None]
    launch(_backward, len(gates), 7 * h.shape[-1] * LANES, *given, da, dh[:, :, None], dc[:, :, None])
    return da, weight_gradient(da, before(h, out), len(R)), dh, dc


@kernel
def _forward(start, stop, scratch, a, R, first_h, first_c, outputs, last_c, gates):
    B, H, T, _ = a.shape
    D = R.shape[3]
    h, c, z = take(scratch, 0, D), take(scratch, D, D), take(scratch, 2 * D, 4 * D)
    for block in range(start, stop):
        group, head, first, count = place(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        gather(first_c, first, count, head, 0, c)
        for t in range(T):
            gather(a, first, count, head, t, z)
            weigh(R[group, head], h, z)
            kept = gates[block, t]
            for n in range(D):
                i, f, o = sigmoid(load(z, n)), sigmoid(load(z, D + n)), sigmoid(load(z, 3 * D + n))
                g = tanh(load(z, 2 * D + n))
                cell = f * load(c, n) + i * g
                store(kept, n, i)
                store(kept, D + n, f)
                store(kept, 2 * D + n, g)
                store(kept, 3 * D + n, o)
                store(kept, 4 * D + n, cell)
                store(c, n, cell)
                store(h, n, o * tanh(cell))
            scatter(h, first, count, head, t, outputs)
        scatter(c, first, count, head, 0, last_c)


@kernel
def _backward(start, stop, scratch, back, first_c, gates, d_out, d_last, da, d_first_h, d_first_c):
    B, H, T, D = d_out.shape
    d_h, dh, dc = take(scratch, 0, D), take(scratch, D, D), take(scratch, 2 * D, D)
    dz = take(scratch, 3 * D, 4 * D)
    for block in range(start, stop):
        group, head, first, count = place(block, B, back.shape[0], H)
        gather(d_last, first, count, head, 0, dc)
        for n in range(D):
            store(dh, n, zero(dh))
        for t in range(T - 1, -1, -1):
            gather(d_out, first, count, head, t, d_h)
            kept = gates[block, t]
            if t > 0:
                earlier = take(gates[block, t - 1], 4 * D, D)
            else:
                earlier = take(dz, 0, D)  # read at n before dz is written there
                gather(first_c, first, count, head, 0, earlier)
            for n in range(D):
                i, f, g, o = load(kept, n), load(kept, D + n), load(kept, 2 * D + n), load(kept, 3 * D + n)
                squashed = tanh(load(kept, 4 * D + n))
                d_n = load(d_h, n) + load(dh, n)
                dc_n = load(dc, n) + d_n * o * (1 - squashed * squashed)
                d_f = dc_n * load(earlier, n)
                store(dz, n, dc_n * g * i * (1 - i))
                store(dz, D + n, d_f * f * (1 - f))
                store(dz, 2 * D + n, dc_n * i * (1 - g * g))
                store(dz, 3 * D + n, d_n * squashed * o * (1 - o))
                store(dc, n, dc_n * f)
                store(dh, n, zero(dh))
            weigh(back[group, head], dz, dh)
            scatter(dz, first, count, head, t, da)
        scatter(dh, first, count, head, 0, d_first_h)
        scatter(dc, first, count, head, 0, d_first_c)
