"""Long short-term memory."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid, tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import block_count, gather, history, rows_of_block, scatter, take, weigh
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.grouped import before, or_zeros, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> Tensors:
    """The outputs h and the last cell; then, by block, the gates i, f, g, o and the cells."""
    B, H, T, _ = a.shape
    D = h.shape[-1]
    return a.new_empty(B, H, T, D), torch.empty_like(c), history(a, block_count(B, len(R), H), T, 5 * D)


def forward(results: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> None:
    out, last, gates = results
    D = h.shape[-1]
    layout = {"h": D, "c": D, "z": 4 * D}
    first_and_last = h[:, :, None], c[:, :, None], out, last[:, :, None]
    launch(_forward, len(gates), layout, a, R, *first_and_last, gates.flatten(2))


def backward(results: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> Tensors:
    out, _, gates = results
    da, dh, dc = torch.empty_like(a), torch.empty_like(h), torch.empty_like(c)
    D = h.shape[-1]
    layout = {"d_h": D, "dh": D, "dc": D, "dz": 4 * D}
    output_grads, input_grads = (grads[0], or_zeros(grads[1], c)[:, :, None]), (da, dh[:, :, None], dc[:, :, None])
    saved = c[:, :, None], gates.flatten(2)
    launch(_backward, len(gates), layout, R.mT.contiguous(), *saved, *output_grads, *input_grads)
    return da, weight_gradient(da, before(h, out), len(R)), dh, dc


@kernel
def _forward(start, stop, scratch, a, R, first_h, first_c, outputs, last_c, gates):
    B, H, T, _ = a.shape
    D = R.shape[3]
    h, c, z = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        gather(first_c, first, count, head, 0, c)
        for t in range(T):
            gather(a, first, count, head, t, z)
            weigh(R[group, head], h, z)
            saved = gates[block, t]
            for n in range(D):
                i, f, o = sigmoid(load(z, n)), sigmoid(load(z, D + n)), sigmoid(load(z, 3 * D + n))
                g = tanh(load(z, 2 * D + n))
                cell = f * load(c, n) + i * g
                store(saved, n, i)
                store(saved, D + n, f)
                store(saved, 2 * D + n, g)
                store(saved, 3 * D + n, o)
                store(saved, 4 * D + n, cell)
                store(c, n, cell)
                store(h, n, o * tanh(cell))
            scatter(h, first, count, head, t, outputs)
        scatter(c, first, count, head, 0, last_c)


@kernel
def _backward(start, stop, scratch, R_T, first_c, gates, d_out, d_last, da, d_first_h, d_first_c):
    B, H, T, D = d_out.shape
    d_h, dh, dc, dz = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R_T.shape[0], H)
        gather(d_last, first, count, head, 0, dc)
        for n in range(D):
            store(dh, n, zero(dh))
        for t in range(T - 1, -1, -1):
            gather(d_out, first, count, head, t, d_h)
            saved = gates[block, t]
            if t > 0:
                earlier = take(gates[block, t - 1], 4 * D, D)
            else:
                earlier = take(dz, 0, D)  # read at n before dz is written there
                gather(first_c, first, count, head, 0, earlier)
            for n in range(D):
                i, f, g, o = load(saved, n), load(saved, D + n), load(saved, 2 * D + n), load(saved, 3 * D + n)
                squashed = tanh(load(saved, 4 * D + n))
                d_n = load(d_h, n) + load(dh, n)
                dc_n = load(dc, n) + d_n * o * (1 - squashed * squashed)
                d_f = dc_n * load(earlier, n)
                store(dz, n, dc_n * g * i * (1 - i))
                store(dz, D + n, d_f * f * (1 - f))
                store(dz, 2 * D + n, dc_n * i * (1 - g * g))
                store(dz, 3 * D + n, d_n * squashed * o * (1 - o))
                store(dc, n, dc_n * f)
                store(dh, n, zero(dh))
            weigh(R_T[group, head], dz, dh)
            scatter(dz, first, count, head, t, da)
        scatter(dh, first, count, head, 0, d_first_h)
        scatter(dc, first, count, head, 0, d_first_c)
