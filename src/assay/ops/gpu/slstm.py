"""The sLSTM; saves p, sigmoid(f), tanh(z), sigmoid(o) and the cell before every step."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, sigmoid, tanh
from assay.ops.gpu.recurrent import (
    StepProduct,
    add_product,
    by_matrix,
    by_sequence,
    element,
    launch,
    load_matrix,
    matmul,
    step_by_step,
    step_launch,
    tile,
    transposed,
    weight_gradients,
)
from assay.ops.grouped import before, or_zeros

Tensors = tuple[Tensor, ...]


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> Tensors:
    steps, size = a.shape[:3], h.shape[-1]
    hidden, gates, cells = a.new_empty(*steps, size), c.new_empty(*steps, 4 * size), c.new_empty(*steps, size)
    return hidden, torch.empty_like(c), torch.empty_like(n), gates, cells


def forward(outputs: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> None:
    if step_by_step(R, h.dtype):
        _forward_steps(outputs, a, R, h, c, n)
    else:
        grid, settings = launch(a, R, h)
        _forward[grid](a, transposed(R, 4, h.dtype), h, c, n, *outputs, **settings)


def backward(outputs: Tensors, grads: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> Tensors:
    hidden, _, _, gates, cells = outputs
    da, dh, dc, dn = (torch.empty_like(x) for x in (a, h, c, n))
    dh_out, dc_out, dn_out = grads[0], or_zeros(grads[1], c), or_zeros(grads[2], n)
    if step_by_step(R, h.dtype):
        dc, dn = dc_out.clone(), dn_out.clone()
        dh = _backward_steps(R, gates, cells, dh_out, dc, dn, da)
    else:
        grid, settings = launch(a, R, h)
        _backward[grid](R.to(h.dtype), gates, cells, dh_out, dc_out, dn_out, da, dh, dc, dn, **settings)
    dR, _ = weight_gradients(da, before(h, hidden), R)
    return da, dR, dh, dc, dn


def _forward_steps(outputs: Tensors, a: Tensor, R: Tensor, h: Tensor, c: Tensor, n: Tensor) -> None:
    hidden, last_c, last_n, gates, cells = outputs
    product = StepProduct(R, len(a) // len(R), h.dtype, transposed=False)
    product.x.copy_(by_matrix(h, len(R)))
    last_c.copy_(c)
    last_n.copy_(n)
    grid, settings = step_launch(a, R, product)
    for t in range(a.shape[2]):
        product()
        _activate[grid](a, product.sums, product.x, hidden, last_c, last_n, gates, cells, t, **settings)


def _backward_steps(
    R: Tensor, gates: Tensor, cells: Tensor, dhidden: Tensor, dc: Tensor, dn: Tensor, da: Tensor
) -> Tensor:
    """The gradient of the first h; those of a, c and n go to `da`, `dc` and `dn`."""
    product = StepProduct(R, len(da) // len(R), cells.dtype, transposed=True)
    product.sums.zero_()
    grid, settings = step_launch(da, R, product)
    for t in reversed(range(da.shape[2])):
        _activate_backward[grid](gates, cells, dhidden, product.sums, product.x, dc, dn, da, t, **settings)
        product()
    return by_sequence(product.sums.sum(0), R.shape[1])


@triton.jit
def _softplus(x):
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def _step(i, f, z, o, c, n):
    """p, sigmoid(f), tanh(z), sigmoid(o), and the cell and normaliser after the step."""
    kept = n - _softplus(-f)
    p, z = sigmoid(i - kept), tanh(z)
    log_sum = tl.maximum(i, kept) + _softplus(-tl.abs(i - kept))
    return p, sigmoid(f), z, sigmoid(o), c + p * (z - c), log_sum


@triton.jit
def _step_back(p, f, z, o, c, dh, dc, dn):
    """The gradients of i, f, z, o, and of the cell and the normaliser before the step."""
    do = dh * (c + p * (z - c)) * o * (1.0 - o)
    dc += dh * o
    di = (dc * (z - c) * (1.0 - p) + dn) * p
    return di, (dn - di) * (1.0 - f), dc * p * (1.0 - z * z), do, dc * (1.0 - p), dn - di


@triton.jit
def _forward(
    a,
    R,
    first_h,
    first_c,
    first_n,
    hidden,
    last_c,
    last_n,
    gates,
    cells,
    rows,
    heads,
    T,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at, at_gates = sequence * D + column, sequence * T * D + column, sequence * T * 4 * D + column
    h = tl.load(first_h + state, mask=real, other=0.0)
    c = tl.load(first_c + state, mask=real, other=0.0)
    n = tl.load(first_n + state, mask=real, other=0.0)
    R += matrix * 4 * D * D
    kept_i = load_matrix(R, D, BLOCK)
    kept_f = load_matrix(R + D * D, D, BLOCK)
    kept_z = load_matrix(R + 2 * D * D, D, BLOCK)
    kept_o = load_matrix(R + 3 * D * D, D, BLOCK)
    for t in tl.range(T, num_stages=2):
        now = a + t * 4 * D + at_gates
        i, f, z, o = load(now, real, h), load(now + D, real, h), load(now + 2 * D, real, h), load(now + 3 * D, real, h)
        z = matmul(h, kept_z, z, PRECISION)
        i = matmul(h, kept_i, i, PRECISION)
        f = matmul(h, kept_f, f, PRECISION)
        o = matmul(h, kept_o, o, PRECISION)
        tl.store(cells + t * D + at, c, mask=real)
        p, f, z, o, c, n = _step(i, f, z, o, c, n)
        saved = gates + t * 4 * D + at_gates
        tl.store(saved, p, mask=real)
        tl.store(saved + D, f, mask=real)
        tl.store(saved + 2 * D, z, mask=real)
        tl.store(saved + 3 * D, o, mask=real)
        h = o * c
        tl.store(hidden + t * D + at, h, mask=real)
    tl.store(last_c + state, c, mask=real)
    tl.store(last_n + state, n, mask=real)


@triton.jit
def _backward(
    R,
    gates,
    cells,
    dhidden,
    dlast_c,
    dlast_n,
    da,
    dfirst_h,
    dfirst_c,
    dfirst_n,
    rows,
    heads,
    T,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at, at_gates = sequence * D + column, sequence * T * D + column, sequence * T * 4 * D + column
    dc = tl.load(dlast_c + state, mask=real, other=0.0)
    dn = tl.load(dlast_n + state, mask=real, other=0.0)
    dh = tl.zeros_like(dc)
    R += matrix * 4 * D * D
    kept_i = load_matrix(R, D, BLOCK)
    kept_f = load_matrix(R + D * D, D, BLOCK)
    kept_z = load_matrix(R + 2 * D * D, D, BLOCK)
    kept_o = load_matrix(R + 3 * D * D, D, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        saved, to = gates + t * 4 * D + at_gates, da + t * 4 * D + at_gates
        p = tl.load(saved, mask=real, other=0.0)
        f = tl.load(saved + D, mask=real, other=0.0)
        z = tl.load(saved + 2 * D, mask=real, other=0.0)
        o = tl.load(saved + 3 * D, mask=real, other=0.0)
        c = tl.load(cells + t * D + at, mask=real, other=0.0)
        dh += load(dhidden + t * D + at, real, dh)
        di, df, dz, do, dc, dn = _step_back(p, f, z, o, c, dh, dc, dn)
        tl.store(to, di, mask=real)
        tl.store(to + D, df, mask=real)
        tl.store(to + 2 * D, dz, mask=real)
        tl.store(to + 3 * D, do, mask=real)
        dh = tl.zeros_like(dc)
        dh = matmul(di, kept_i, dh, PRECISION)
        dh = matmul(df, kept_f, dh, PRECISION)
        dh = matmul(dz, kept_z, dh, PRECISION)
        dh = matmul(do, kept_o, dh, PRECISION)
    tl.store(dfirst_h + state, dh, mask=real)
    tl.store(dfirst_c + state, dc, mask=real)
    tl.store(dfirst_n + state, dn, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate(
    a,
    sums,
    state,
    hidden,
    cell,
    normaliser,
    gates,
    cells,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at, at_gates = (sequence * T + t) * D + column, (sequence * T + t) * 4 * D + column
    own = sequence * D + column
    c = tl.load(cell + own, mask=real, other=0.0)
    n = tl.load(normaliser + own, mask=real, other=0.0)
    i = add_product(load(a + at_gates, real, c), sums, place, column, real, 4 * D, SHARES)
    f = add_product(load(a + at_gates + D, real, c), sums, place, D + column, real, 4 * D, SHARES)
    z = add_product(load(a + at_gates + 2 * D, real, c), sums, place, 2 * D + column, real, 4 * D, SHARES)
    o = add_product(load(a + at_gates + 3 * D, real, c), sums, place, 3 * D + column, real, 4 * D, SHARES)
    tl.store(cells + at, c, mask=real)
    p, f, z, o, c, n = _step(i, f, z, o, c, n)
    tl.store(gates + at_gates, p, mask=real)
    tl.store(gates + at_gates + D, f, mask=real)
    tl.store(gates + at_gates + 2 * D, z, mask=real)
    tl.store(gates + at_gates + 3 * D, o, mask=real)
    tl.store(cell + own, c, mask=real)
    tl.store(normaliser + own, n, mask=real)
    tl.store(hidden + at, o * c, mask=real)
    tl.store(state + place * D + column, o * c, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate_backward(
    gates,
    cells,
    dhidden,
    sums,
    exchange,
    dcell,
    dnormaliser,
    da,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at, at_gates = (sequence * T + t) * D + column, (sequence * T + t) * 4 * D + column
    own = sequence * D + column
    p = tl.load(gates + at_gates, mask=real, other=0.0)
    f = tl.load(gates + at_gates + D, mask=real, other=0.0)
    z = tl.load(gates + at_gates + 2 * D, mask=real, other=0.0)
    o = tl.load(gates + at_gates + 3 * D, mask=real, other=0.0)
    c = tl.load(cells + at, mask=real, other=0.0)
    dc = tl.load(dcell + own, mask=real, other=0.0)
    dn = tl.load(dnormaliser + own, mask=real, other=0.0)
    dh = add_product(load(dhidden + at, real, p), sums, place, column, real, D, SHARES)
    di, df, dz, do, dc, dn = _step_back(p, f, z, o, c, dh, dc, dn)
    tl.store(dcell + own, dc, mask=real)
    tl.store(dnormaliser + own, dn, mask=real)
    to, x = da + at_gates, exchange + place * 4 * D + column
    tl.store(to, di, mask=real)
    tl.store(to + D, df, mask=real)
    tl.store(to + 2 * D, dz, mask=real)
    tl.store(to + 3 * D, do, mask=real)
    tl.store(x, di, mask=real)
    tl.store(x + D, df, mask=real)
    tl.store(x + 2 * D, dz, mask=real)
    tl.store(x + 3 * D, do, mask=real)
