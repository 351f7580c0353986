"""The gated recurrent unit."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid, tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import block_count, gather, history, rows_of_block, scatter, weigh
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import load, splat, store, zero
from assay.ops.grouped import before, group_sum, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> Tensors:
    """The outputs h; then, by block, the gates r, z, n and R_n h + b."""
    B, H, T, _ = a.shape
    D = h.shape[-1]
    return a.new_empty(B, H, T, D), history(a, block_count(B, len(R), H), T, 4 * D)


def forward(results: Tensors, a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> None:
    out, gates = results
    D = h.shape[-1]
    layout = {"h": D, "a_t": 3 * D, "z": 3 * D}
    launch(_forward, len(gates), layout, a, R, b, h[:, :, None], out, gates.flatten(2))


def backward(results: Tensors, grads: Tensors, a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> Tensors:
    out, gates = results
    D, previous = h.shape[-1], before(h, out)
    da, dz, dh = torch.empty_like(a), torch.empty_like(a), torch.empty_like(h)
    layout = {"h": D, "dh": D, "da_t": 3 * D, "dz_t": 3 * D}
    input_grads = da, dz, dh[:, :, None]
    launch(_backward, len(gates), layout, R.mT.contiguous(), previous, gates.flatten(2), grads[0], *input_grads)
    db = group_sum(dz[..., 2 * D :].sum(2), len(b))
    return da, weight_gradient(dz, previous, len(R)), db, dh


@kernel
def _forward(start, stop, scratch, a, R, b, first_h, outputs, gates):
    B, H, T, _ = a.shape
    D = R.shape[3]
    h, a_t, z = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        for t in range(T):
            gather(a, first, count, head, t, a_t)
            for i in range(2 * D):
                store(z, i, load(a_t, i))
            for i in range(D):
                store(z, 2 * D + i, splat(b[group, head, i]))
            weigh(R[group, head], h, z)
            saved = gates[block, t]
            for i in range(D):
                reset, update, inner = sigmoid(load(z, i)), sigmoid(load(z, D + i)), load(z, 2 * D + i)
                new = tanh(load(a_t, 2 * D + i) + reset * inner)
                store(saved, i, reset)
                store(saved, D + i, update)
                store(saved, 2 * D + i, new)
                store(saved, 3 * D + i, inner)
                store(h, i, (1 - update) * new + update * load(h, i))
            scatter(h, first, count, head, t, outputs)


@kernel
def _backward(start, stop, scratch, R_T, previous, gates, d_out, da, dz, d_first):
    """da is the gradient of a, dz that of R h + b: they differ by r in the last third."""
    B, H, T, D = previous.shape
    h, dh, da_t, dz_t = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R_T.shape[0], H)
        for i in range(D):
            store(dh, i, zero(dh))
        for t in range(T - 1, -1, -1):
            gather(previous, first, count, head, t, h)
            gather(d_out, first, count, head, t, da_t)
            saved = gates[block, t]
            for i in range(D):
                reset, update, new = load(saved, i), load(saved, D + i), load(saved, 2 * D + i)
                d_i = load(da_t, i) + load(dh, i)
                d_new = d_i * (1 - update) * (1 - new * new)
                d_reset = d_new * load(saved, 3 * D + i) * reset * (1 - reset)
                d_update = d_i * (load(h, i) - new) * update * (1 - update)
                store(da_t, i, d_reset)
                store(da_t, D + i, d_update)
                store(da_t, 2 * D + i, d_new)
                store(dz_t, i, d_reset)
                store(dz_t, D + i, d_update)
                store(dz_t, 2 * D + i, d_new * reset)
                store(dh, i, d_i * update)
            weigh(R_T[group, head], dz_t, dh)
            scatter(da_t, first, count, head, t, da)
            scatter(dz_t, first, count, head, t, dz)
        scatter(dh, first, count, head, 0, d_first)
