"""The sLSTM: p and c as in the operator's step, u = i - log sigmoid(f) - n, p = sigmoid(u)."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid, softplus, tanh
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import block_count, gather, history, rows_of_block, scatter, take, weigh
from assay.ops.cpu.scratch import areas
from assay.ops.cpu.vector import larger, load, store, zero
from assay.ops.grouped import before, or_zeros, weight_gradient

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> Tensors:
    """The outputs h, the last c and n; then, by block, p, sigmoid(f), tanh(z), sigmoid(o) and the cells."""
    B, H, T, _ = a.shape
    D = h.shape[-1]
    gates = history(a, block_count(B, len(R), H), T, 5 * D)
    return a.new_empty(B, H, T, D), torch.empty_like(c), torch.empty_like(n), gates


def forward(results: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> None:
    out, last_c, last_n, gates = results
    layout = dict.fromkeys(("h", "c", "n"), h.shape[-1]) | {"x": 4 * h.shape[-1]}
    first = h[:, :, None], c[:, :, None], n[:, :, None]
    last = last_c[:, :, None], last_n[:, :, None]
    launch(_forward, len(gates), layout, a, R, *first, out, *last, gates.flatten(2))


def backward(results: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> Tensors:
    out, _, _, gates = results
    da, dh, dc, dn = torch.empty_like(a), torch.empty_like(h), torch.empty_like(c), torch.empty_like(n)
    layout = dict.fromkeys(("d_h", "dh", "dc", "dn"), h.shape[-1]) | {"dx": 4 * h.shape[-1]}
    output_grads = grads[0], or_zeros(grads[1], c)[:, :, None], or_zeros(grads[2], n)[:, :, None]
    input_grads = da, dh[:, :, None], dc[:, :, None], dn[:, :, None]
    saved = c[:, :, None], gates.flatten(2)
    launch(_backward, len(gates), layout, R.mT.contiguous(), *saved, *output_grads, *input_grads)
    return da, weight_gradient(da, before(h, out), len(R)), dh, dc, dn


@kernel
def _forward(start, stop, scratch, a, R, first_h, first_c, first_n, outputs, last_c, last_n, gates):
    B, H, T, _ = a.shape
    D = R.shape[3]
    h, c, n, x = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R.shape[0], H)
        gather(first_h, first, count, head, 0, h)
        gather(first_c, first, count, head, 0, c)
        gather(first_n, first, count, head, 0, n)
        for t in range(T):
            gather(a, first, count, head, t, x)
            weigh(R[group, head], h, x)
            saved = gates[block, t]
            for d in range(D):
                f = load(x, D + d)
                kept = load(n, d) - softplus(-f)
                i = load(x, d)
                u = i - kept
                p, g, o = sigmoid(u), tanh(load(x, 2 * D + d)), sigmoid(load(x, 3 * D + d))
                cell = load(c, d)
                cell = cell + p * (g - cell)
                store(saved, d, p)
                store(saved, D + d, sigmoid(f))
                store(saved, 2 * D + d, g)
                store(saved, 3 * D + d, o)
                store(saved, 4 * D + d, cell)
                store(c, d, cell)
                store(n, d, larger(i, kept) + softplus(-larger(u, -u)))  # not kept + softplus(u), which rounds
                store(h, d, o * cell)
            scatter(h, first, count, head, t, outputs)
        scatter(c, first, count, head, 0, last_c)
        scatter(n, first, count, head, 0, last_n)


@kernel
def _backward(
    start, stop, scratch, R_T, first_c, gates, d_out, d_last_c, d_last_n, da, d_first_h, d_first_c, d_first_n
):
    B, H, T, D = d_out.shape
    d_h, dh, dc, dn, dx = areas(scratch)
    for block in range(start, stop):
        group, head, first, count = rows_of_block(block, B, R_T.shape[0], H)
        gather(d_last_c, first, count, head, 0, dc)
        gather(d_last_n, first, count, head, 0, dn)
        for d in range(D):
            store(dh, d, zero(dh))
        for t in range(T - 1, -1, -1):
            gather(d_out, first, count, head, t, d_h)
            saved = gates[block, t]
            if t > 0:
                earlier = take(gates[block, t - 1], 4 * D, D)
            else:
                earlier = take(dx, 0, D)  # read at d before dx is written there
                gather(first_c, first, count, head, 0, earlier)
            for d in range(D):
                p, f, g, o = load(saved, d), load(saved, D + d), load(saved, 2 * D + d), load(saved, 3 * D + d)
                d_d, dn_d = load(d_h, d) + load(dh, d), load(dn, d)
                dc_d = load(dc, d) + d_d * o
                du = (dc_d * (g - load(earlier, d)) * (1 - p) + dn_d) * p
                d_kept = dn_d - du
                store(dx, d, du)
                store(dx, D + d, d_kept * (1 - f))
                store(dx, 2 * D + d, dc_d * p * (1 - g * g))
                store(dx, 3 * D + d, d_d * load(saved, 4 * D + d) * o * (1 - o))
                store(dc, d, dc_d * (1 - p))
                store(dn, d, d_kept)
                store(dh, d, zero(dh))
            weigh(R_T[group, head], dx, dh)
            scatter(dx, first, count, head, t, da)
        scatter(dh, first, count, head, 0, d_first_h)
        scatter(dc, first, count, head, 0, d_first_c)
        scatter(dn, first, count, head, 0, d_first_n)
