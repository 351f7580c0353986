"""The e-LSTM's recurrence; a block is one row and head."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid, tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.grouped import before, group_sum

Tensors = tuple[Tensor, ...]


def outputs(z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> Tensors:
    return (torch.empty_like(z),)


def forward(results: Tensors, z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> None:
    launch(_forward, z.shape[0] * z.shape[1], {}, z, f, w_z, w_f, c, results[0])


def backward(results: Tensors, grads: Tensors, z: Tensor, f: Tensor, w_z: Tensor, w_f: Tensor, c: Tensor) -> Tensors:
    previous = before(c, results[0])
    dz, df, dc = torch.empty_like(z), torch.empty_like(f), torch.empty_like(c)
    launch(_backward, z.shape[0] * z.shape[1], {}, z, f, w_z, w_f, previous, grads[0], dz, df, dc)
    dw_z, dw_f = (group_sum((d * previous).sum(2), len(w_z)) for d in (dz, df))
    return dz, df, dw_z, dw_f, dc


@kernel
def _forward(start, stop, scratch, z, f, w_z, w_f, first_c, outputs):
    B, H, T, D = z.shape
    one = z.dtype.type(1)
    for block in range(start, stop):
        row, head = divmod(block, H)
        weight_z, weight_f = w_z[row * len(w_z) // B, head], w_f[row * len(w_f) // B, head]
        for t in range(T):
            c = first_c[row, head] if t == 0 else outputs[row, head, t - 1]
            for i in range(D):
                new = tanh(z[row, head, t, i] + weight_z[i] * c[i])
                keep = sigmoid(f[row, head, t, i] + weight_f[i] * c[i])
                outputs[row, head, t, i] = keep * c[i] + (one - keep) * new


@kernel
def _backward(start, stop, scratch, z, f, w_z, w_f, previous, d_out, dz, df, d_first):
    B, H, T, D = z.shape
    one = z.dtype.type(1)
    for block in range(start, stop):
        row, head = divmod(block, H)
        weight_z, weight_f = w_z[row * len(w_z) // B, head], w_f[row * len(w_f) // B, head]
        dc = d_first[row, head]
        dc[:] = 0
        for t in range(T - 1, -1, -1):
            c = previous[row, head, t]
            for i in range(D):
                new = tanh(z[row, head, t, i] + weight_z[i] * c[i])
                keep = sigmoid(f[row, head, t, i] + weight_f[i] * c[i])
                d_i = dc[i] + d_out[row, head, t, i]
                d_new = d_i * (one - keep) * (one - new * new)
                d_keep = d_i * (c[i] - new) * keep * (one - keep)
                dz[row, head, t, i] = d_new
                df[row, head, t, i] = d_keep
                dc[i] = d_i * keep + d_new * weight_z[i] + d_keep * weight_f[i]
