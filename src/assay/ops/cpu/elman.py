"""The Elman network."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import block_count, gather, rows_of_block, scatter, weigh
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import larger, load, positive, store, zero
from assay.ops.grouped import before, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, relu: bool) -> Tensors:
    return (torch.empty_like(a),)


def forward(results: Tensors, a: Tensor, R: Tensor, h: Tensor, relu: bool) -> None:
    blocks = block_count(len(a), len(R), a.shape[1])
    layout = {"h": a.shape[-1], "z": a.shape[-1]}
    launch(_forward, blocks, layout, a, R, h[:, :, None], results[0], relu)


def backward(results: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, relu: bool) -> Tensors:
    da, dh = torch.empty_like(a), torch.empty_like(h)
    blocks = block_count(len(a), len(R), a.shape[1])
    layout = dict.fromkeys(("h", "dz", "dh"), a.shape[-1])
    launch(_backward, blocks, layout, R.mT.contiguous(), results[0], grads[0], da, dh[:, :, None], relu)
    return da, weight_gradient(da, before(h, results[0]), len(R)), dh


@kernel
def _forward(start, stop, scratch, a, R, first_h, outputs, relu):
    B, H, T, D = a.shape
    h, z = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        for t in range(T):
            gather(a, first, count, head, t, z)
            weigh(R[group, head], h, z)
            for i in range(D):
                store(h, i, larger(zero(z), load(z, i)) if relu else tanh(load(z, i)))
            scatter(h, first, count, head, t, outputs)


@kernel
def _backward(start, stop, scratch, R_T, outputs, d_out, da, d_first, relu):
    B, H, T, D = outputs.shape
    h, dz, dh = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R_T.shape[0], H)
        for i in range(D):
            store(dh, i, zero(dh))
        for t in range(T - 1, -1, -1):
            gather(outputs, first, count, head, t, h)
            gather(d_out, first, count, head, t, dz)
            for i in range(D):
                h_i = load(h, i)
                slope = positive(h_i) if relu else 1 - h_i * h_i
                store(dz, i, (load(dz, i) + load(dh, i)) * slope)
                store(dh, i, zero(dh))
            weigh(R_T[group, head], dz, dh)
            scatter(dz, first, count, head, t, da)
        scatter(dh, first, count, head, 0, d_first)
