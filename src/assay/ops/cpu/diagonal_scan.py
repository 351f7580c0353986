"""The diagonal scan, real or complex; a block is one row and head."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from assay.ops.cpu.jit import kernel, launch
from assay.ops.grouped import before

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    return (torch.empty_like(b),)


def forward(results: Tensors, a: Tensor, b: Tensor, h: Tensor) -> None:
    launch(_forward, b.shape[0] * b.shape[1], {}, a, b, h, results[0])


def backward(results: Tensors, grads: Tensors, a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    da, db, dh = torch.empty_like(a), torch.empty_like(b), torch.empty_like(h)
    launch(_backward, b.shape[0] * b.shape[1], {}, a, before(h, results[0]), grads[0], da, db, dh)
    return da, db, dh


@kernel
def _forward(start, stop, scratch, a, b, first_h, outputs):
    H, T, D = a.shape[1:]
    for block in range(start, stop):
        row, head = divmod(block, H)
        for t in range(T):
            h = first_h[row, head] if t == 0 else outputs[row, head, t - 1]
            for i in range(D):
                outputs[row, head, t, i] = a[row, head, t, i] * h[i] + b[row, head, t, i]


@kernel
def _backward(start, stop, scratch, a, previous, d_out, da, db, d_first):
    H, T, D = a.shape[1:]
    for block in range(start, stop):
        row, head = divmod(block, H)
        dh = d_first[row, head]
        dh[:] = 0
        for t in range(T - 1, -1, -1):
            for i in range(D):
                d_i = dh[i] + d_out[row, head, t, i]
                da[row, head, t, i] = d_i * np.conj(previous[row, head, t, i])
                db[row, head, t, i] = d_i
                dh[i] = d_i * np.conj(a[row, head, t, i])
