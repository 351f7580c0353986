"""The Elman network."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import blocks_of, gather, place, scatter, take, weigh
from assay.ops.cpu.vector import LANES, larger, load, positive, store, zero
from assay.ops.grouped import before, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, relu: bool) -> Tensors:
    return (torch.empty_like(a),)


def forward(made: Tensors, a: Tensor, R: Tensor, h: Tensor, relu: bool) -> None:
    blocks = blocks_of(len(a), len(R), a.shape[1])
    launch(_forward, blocks, 2 * a.shape[-1] * LANES, a, R, h[:, :, None], made[0], relu)


def backward(made: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, relu: bool) -> Tensors:
    da, dh = torch.empty_like(a), torch.empty_like(h)
    blocks = blocks_of(len(a), len(R), a.shape[1])
    given = R.mT.contiguous(), made[0], grads[0], da, dh[:, :, None]
    launch(_backward, blocks, 3 * a.shape[-1] * LANES, *given, relu)
    return da, weight_gradient(da, before(h, made[0]), len(R)), dh


@kernel
def _forward(start, stop, scratch, a, R, first_h, outputs, relu):
    B, H, T, D = a.shape
    h, z = take(scratch, 0, D), take(scratch, D, D)
    for block in range(start, stop):
        group, head, first, count = place(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        for t in range(T):
            gather(a, first, count, head, t, z)
            weigh(R[group, head], h, z)
            for i in range(D):
                store(h, i, larger(zero(z), load(z, i)) if relu else tanh(load(z, i)))
            scatter(h, first, count, head, t, outputs)


@kernel
def _backward(start, stop, scratch, back, outputs, d_out, da, d_first, relu):
    B, H, T, D = outputs.shape
    h, dz, dh = take(scratch, 0, D), take(scratch, D, D), take(scratch, 2 * D, D)
    for block in range(start, stop):
        group, head, first, count = place(block, B, back.shape[0], H)
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
            weigh(back[group, head], dz, dh)
            scatter(dz, first, count, head, t, da)
        scatter(dh, first, count, head, 0, d_first)
