"""The permuted scan; a block is one row and head, its real and imaginary parts lie apart."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.grouped import before

Tensors = tuple[Tensor, ...]


def outputs(P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    return (torch.empty_like(b),)


def forward(results: Tensors, P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> None:
    layout = dict.fromkeys(("real", "imaginary"), -(-a.shape[3] // LANES))
    launch(_forward, a.shape[0] * a.shape[1], layout, P, a, b, h, results[0])


def backward(results: Tensors, grads: Tensors, P: Tensor, a: Tensor, b: Tensor, h: Tensor) -> Tensors:
    dP, da, db, dh = torch.empty_like(P), torch.empty_like(a), torch.empty_like(b), torch.zeros_like(h)
    layout = dict.fromkeys(("real", "imaginary", "d_real", "d_imaginary"), -(-a.shape[3] // LANES))
    launch(_backward, a.shape[0] * a.shape[1], layout, P, a, before(h, results[0]), grads[0], dP, da, db, dh)
    return dP, da, db, dh


@kernel
def _forward(start, stop, scratch, P, a, b, first_h, outputs):
    _, H, T, N, _ = a.shape
    real, imaginary = areas(scratch)
    for block in range(start, stop):
        row, head = divmod(block, H)
        for t in range(T):
            h = first_h[row, head] if t == 0 else outputs[row, head, t - 1]
            a_t, P_t = a[row, head, t], P[row, head, t]
            for j in range(N):
                real[j] = a_t[j, 0] * h[j, 0] - a_t[j, 1] * h[j, 1]
                imaginary[j] = a_t[j, 0] * h[j, 1] + a_t[j, 1] * h[j, 0]
            for i in range(N):
                x, y = b[row, head, t, i, 0], b[row, head, t, i, 1]
                for j in range(N):
                    x += P_t[i, j] * real[j]
                    y += P_t[i, j] * imaginary[j]
                outputs[row, head, t, i, 0], outputs[row, head, t, i, 1] = x, y


@kernel
def _backward(start, stop, scratch, P, a, previous, d_out, dP, da, db, d_first):
    _, H, T, N, _ = a.shape
    real, imaginary, d_real, d_imaginary = areas(scratch)
    for block in range(start, stop):
        row, head = divmod(block, H)
        dh = d_first[row, head]
        for t in range(T - 1, -1, -1):
            h, a_t, P_t, dP_t = previous[row, head, t], a[row, head, t], P[row, head, t], dP[row, head, t]
            for j in range(N):
                real[j] = a_t[j, 0] * h[j, 0] - a_t[j, 1] * h[j, 1]
                imaginary[j] = a_t[j, 0] * h[j, 1] + a_t[j, 1] * h[j, 0]
                d_real[j] = d_imaginary[j] = 0
            for i in range(N):
                x, y = d_out[row, head, t, i, 0] + dh[i, 0], d_out[row, head, t, i, 1] + dh[i, 1]
                db[row, head, t, i, 0], db[row, head, t, i, 1] = x, y
                for j in range(N):
                    dP_t[i, j] = x * real[j] + y * imaginary[j]
                    d_real[j] += P_t[i, j] * x
                    d_imaginary[j] += P_t[i, j] * y
            for j in range(N):
                x, y = d_real[j], d_imaginary[j]
                da[row, head, t, j, 0] = x * h[j, 0] + y * h[j, 1]
                da[row, head, t, j, 1] = y * h[j, 0] - x * h[j, 1]
                dh[j, 0] = x * a_t[j, 0] + y * a_t[j, 1]
                dh[j, 1] = y * a_t[j, 0] - x * a_t[j, 1]
