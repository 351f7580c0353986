"""The self-referential weight matrix, W = [W_y | W_q | W_k | w_b] with M = 3 D + 4 columns."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.cpu.functions import sigmoid
from assay.ops.cpu.jit import inline, kernel, launch
from assay.ops.cpu.lanes import (
    add_outer_into,
    add_two_outers,
    block_count,
    copy,
    gather,
    gather_matrix,
    history,
    matrix_times,
    rows_of_block,
    scatter,
    scatter_matrix,
    segment_length,
    softmax,
    softmax_back,
    take,
    times_matrix,
    write_and_read,
)
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.cpu.vector import load, store, zero
from assay.ops.fast_weights import written_parts
from assay.ops.grouped import group_sum, or_zeros

Tensors = tuple[Tensor, ...]


def outputs(x: Tensor, W_y: Tensor, W_q: Tensor, W_k: Tensor, w_b: Tensor, **flags: bool | str) -> Tensors:
    """y and the final matrices; then, by block: softmax(q) and softmax(k); beta; (q - k) W; states to start from."""
    B, H, T, D = x.shape
    M, blocks = 3 * D + 4, block_count(B, 1, H)
    finals = (x.new_empty(B, H, *W.shape[2:]) for W in (W_y, W_q, W_k, w_b))
    starts = -(-T // segment_length(T, D * M, x))
    return (
        torch.empty_like(x),
        *finals,
        history(x, blocks, T, 2 * D),
        history(x, blocks, T, 4),
        history(x, blocks, T, M),
        history(x, blocks, starts, D, M),
    )


def forward(results: Tensors, x: Tensor, *W: Tensor, read_after_write: bool, fixed: str) -> None:
    y, *finals, qk, beta, m, starts = results
    D = x.shape[-1]
    final = x.new_empty(*x.shape[:2], D, 3 * D + 4)
    steps = segment_length(x.shape[2], D * (3 * D + 4), x)
    saved = (qk.flatten(2), beta.flatten(2), m.flatten(2), starts.flatten(2))
    M = 3 * D + 4
    layout = {"W": D * M, "x_t": D, "p": D, "z": M, "u": M}
    written = torch.tensor(written_parts(fixed))
    launch(_forward, len(qk), layout, x, torch.cat(W, -1), y, final, *saved, steps, read_after_write, written)
    for out, part in zip(finals, final.split([D, D, D, 4], -1), strict=True):
        out.copy_(part)


def backward(results: Tensors, grads: Tensors, x: Tensor, *W: Tensor, read_after_write: bool, fixed: str) -> Tensors:
    """A part that is fixed has a saved beta of 0, so that its gradients come out right without `fixed`."""
    _, _, _, _, _, qk, beta, m, starts = results
    dy, *dfinal = grads
    final = torch.cat([or_zeros(grad, out) for grad, out in zip(dfinal, results[1:5], strict=True)], -1)
    D = x.shape[-1]
    M = 3 * D + 4
    steps = segment_length(x.shape[2], D * M, x)
    dx, dW = torch.empty_like(x), torch.empty_like(final)
    saved = (qk.flatten(2), beta.flatten(2), m.flatten(2), starts.flatten(2))
    layout = {"states": steps * D * M, "dW": D * M, "x_t": D, "dx_t": D, "p": D, "dp": D, "dk": D}
    layout |= {"u": M, "du": M, "dm": M, "dz": M}
    launch(_backward, len(qk), layout, x, dy, final, *saved, dx, dW, steps, read_after_write)
    return dx, *group_sum(dW, len(W[0])).split([D, D, D, 4], -1)


@inline
def _written(beta, m, u, D):
    """u = rates * m: each of the four parts of W is written with its own beta."""
    for part in range(4):
        rate = load(beta, part)
        for c in range(part * D, (part + 1) * D if part < 3 else 3 * D + 4):
            store(u, c, rate * load(m, c))


@inline
def _difference(a, b, out, n):
    for i in range(n):
        store(out, i, load(a, i) - load(b, i))


@kernel
def _forward(start, stop, scratch, x, W_0, y, final, qk, beta, m, starts, steps, read_after_write, written):
    B, H, T, D = x.shape
    G, M = W_0.shape[0], W_0.shape[3]
    W, x_t, p, z, u = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        if G == B:  # a state has a matrix for every row
            gather_matrix(W_0, first, count, head, W)
        else:
            for lane in range(LANES):  # blocks do not keep to the groups
                group = min(first + lane, B - 1) * G // B
                for i in range(D):
                    for c in range(M):
                        W[(i * M + c) * LANES + lane] = W_0[group, head, i, c]
        for t in range(T):
            q, k = take(qk[block, t], 0, D), take(qk[block, t], D, D)
            if t % steps == 0:
                copy(W, starts[block, t // steps])
            if t == 0 or read_after_write:
                gather(x, first, count, head, t, x_t)
                times_matrix(x_t, W, z, D, M)
            softmax(take(z, D, D), q, D)
            softmax(take(z, 2 * D, D), k, D)
            for i in range(4):
                store(beta[block, t], i, sigmoid(load(z, 3 * D + i)) if written[i] else zero(z))
            _difference(q, k, p, D)
            times_matrix(p, W, m[block, t], D, M)
            _written(beta[block, t], m[block, t], u, D)
            if not read_after_write:  # the next step's z = x W is computed while W is written
                scatter(z, first, count, head, t, y)
                gather(x, first, count, head, min(t + 1, T - 1), x_t)
            write_and_read(k, u, W, x_t, z, D, M)
            if read_after_write:
                scatter(z, first, count, head, t, y)
        scatter_matrix(W, first, count, head, final)


@kernel
def _backward(start, stop, scratch, x, dy, dfinal, qk, beta, m, starts, dx, dW_0, steps, read_after_write):
    B, H, T, D = x.shape
    M = dfinal.shape[3]
    states, dW, x_t, dx_t, p, dp, dk, u, du, dm, dz = areas(scratch)
    for block in range(start, stop):
        _, head, first, count = rows_of_block(block, B, 1, H)
        gather_matrix(dfinal, first, count, head, dW)
        for part in range(starts.shape[1] - 1, -1, -1):
            begin, end = part * steps, min(T, (part + 1) * steps)
            copy(starts[block, part], take(states, 0, D * M))
            for t in range(begin, end - 1):
                W, after = take(states, (t - begin) * D * M, D * M), take(states, (t - begin + 1) * D * M, D * M)
                _written(beta[block, t], m[block, t], u, D)
                add_outer_into(W, take(qk[block, t], D, D), u, after, D, M)
            for t in range(end - 1, begin - 1, -1):
                W = take(states, (t - begin) * D * M, D * M)
                q, k, beta_t, m_t = take(qk[block, t], 0, D), take(qk[block, t], D, D), beta[block, t], m[block, t]
                gather(x, first, count, head, t, x_t)
                gather(dy, first, count, head, t, dz)
                _written(beta_t, m_t, u, D)
                if read_after_write:  # y = x W_y + (x . k) u_y
                    for i in range(D):
                        for c in range(D):
                            store(dW, i * M + c, load(dW, i * M + c) + load(x_t, i) * load(dz, c))
                # W' = W + k^T u, u = rates * (q - k) W
                times_matrix(k, dW, du, D, M)
                matrix_times(dW, u, dk, D, M)
                _written(beta_t, du, dm, D)
                _difference(q, k, p, D)
                matrix_times(W, dm, dp, D, M)
                _difference(dk, dp, dk, D)
                softmax_back(q, dp, take(dz, D, D), D)
                softmax_back(k, dk, take(dz, 2 * D, D), D)
                for i in range(4):
                    b, dbeta = load(beta_t, i), zero(x_t)
                    for c in range(i * D, (i + 1) * D if i < 3 else M):
                        dbeta = dbeta + load(m_t, c) * load(du, c)
                    store(dz, 3 * D + i, dbeta * b * (1 - b))
                matrix_times(W, dz, dx_t, D, M)
                if read_after_write:
                    shared = zero(x_t)
                    for c in range(D):
                        shared = shared + load(u, c) * load(dz, c)
                        store(dz, c, zero(x_t))
                    for i in range(D):
                        store(dx_t, i, load(dx_t, i) + load(k, i) * shared)
                add_two_outers(p, dm, x_t, dz, dW, D, M)
                scatter(dx_t, first, count, head, t, dx)
        scatter_matrix(dW, first, count, head, dW_0)
