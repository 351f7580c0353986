"""Long short-term memory; saves its gates i, f, g, o and the cell before every step."""

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


def outputs(a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    steps, size = a.shape[:3], h.shape[-1]
    hidden, gates, cells = a.new_empty(*steps, size), c.new_empty(*steps, 4 * size), c.new_empty(*steps, size)
    return hidden, torch.empty_like(c), gates, cells


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> None:
    if step_by_step(R, h.dtype):
        _forward_steps(outputs, a, R, h, c)
    else:
        grid, settings = launch(a, R, h)
        _forward[grid](a, transposed(R, 4, h.dtype), h, c, *outputs, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, ...]:
    hidden, _, gates, cells = outputs
    da, dh, dc = (torch.empty_like(x) for x in (a, h, c))
    dh_out, dc_out = grads[0], or_zeros(grads[1], c)
    if step_by_step(R, h.dtype):
        dh, dc = _backward_steps(R, gates, cells, dh_out, dc_out, da)
    else:
        grid, settings = launch(a, R, h)
        _backward[grid](R.to(h.dtype), gates, cells, dh_out, dc_out, da, dh, dc, **settings)
    dR, _ = weight_gradients(da, before(h, hidden), R)
    return da, dR, dh, dc


def _forward_steps(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, c: Tensor) -> None:
    hidden, last_c, gates, cells = outputs
    product = StepProduct(R, len(a) // len(R), h.dtype, transposed=False)
    product.x.copy_(by_matrix(h, len(R)))
    cells[:, :, 0] = c
    grid, settings = step_launch(a, R, product)
    for t in range(a.shape[2]):
        product()
        _activate[grid](a, product.sums, product.x, hidden, last_c, gates, cells, t, **settings)


def _backward_steps(
    R: Tensor, gates: Tensor, cells: Tensor, dhidden: Tensor, dlast_c: Tensor, da: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the first state; that of a goes to `da`."""
    product, dc = StepProduct(R, len(da) // len(R), cells.dtype, transposed=True), dlast_c.clone()
    product.sums.zero_()
    grid, settings = step_launch(da, R, product)
    for t in reversed(range(da.shape[2])):
        _activate_backward[grid](gates, cells, dhidden, product.sums, product.x, dc, da, t, **settings)
        product()
    return by_sequence(product.sums.sum(0), R.shape[1]), dc


@triton.jit
def _forward(
    a,
    R,
    first_h,
    first_c,
    hidden,
    last_c,
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
    R_i = R + matrix * 4 * D * D
    R_f, R_g, R_o = R_i + D * D, R_i + 2 * D * D, R_i + 3 * D * D
    kept_i = load_matrix(R_i, D, BLOCK)
    kept_f = load_matrix(R_f, D, BLOCK)
    kept_g = load_matrix(R_g, D, BLOCK)
    kept_o = load_matrix(R_o, D, BLOCK)
    for t in tl.range(T, num_stages=2):
        i = load(a + t * 4 * D + at_gates, real, h)
        f = load(a + t * 4 * D + D + at_gates, real, h)
        g = load(a + t * 4 * D + 2 * D + at_gates, real, h)
        o = load(a + t * 4 * D + 3 * D + at_gates, real, h)
        g = matmul(h, kept_g, g, PRECISION)  # first: in the gates' own order Triton 3.9's compiler aborts
        i = matmul(h, kept_i, i, PRECISION)
        f = matmul(h, kept_f, f, PRECISION)
        o = matmul(h, kept_o, o, PRECISION)
        g, i, f, o = tanh(g), sigmoid(i), sigmoid(f), sigmoid(o)
        tl.store(gates + t * 4 * D + at_gates, i, mask=real)
        tl.store(gates + t * 4 * D + D + at_gates, f, mask=real)
        tl.store(gates + t * 4 * D + 2 * D + at_gates, g, mask=real)
        tl.store(gates + t * 4 * D + 3 * D + at_gates, o, mask=real)
        tl.store(cells + t * D + at, c, mask=real)
        c = f * c + i * g
        h = o * tanh(c)
        tl.store(hidden + t * D + at, h, mask=real)
    tl.store(last_c + state, c, mask=real)


@triton.jit
def _backward(
    R,
    gates,
    cells,
    dhidden,
    dlast_c,
    da,
    dfirst_h,
    dfirst_c,
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
    dh = tl.zeros_like(dc)
    R += matrix * 4 * D * D
    kept_i = load_matrix(R, D, BLOCK)
    kept_f = load_matrix(R + D * D, D, BLOCK)
    kept_g = load_matrix(R + 2 * D * D, D, BLOCK)
    kept_o = load_matrix(R + 3 * D * D, D, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        i = tl.load(gates + t * 4 * D + at_gates, mask=real, other=0.0)
        f = tl.load(gates + t * 4 * D + D + at_gates, mask=real, other=0.0)
        g = tl.load(gates + t * 4 * D + 2 * D + at_gates, mask=real, other=0.0)
        o = tl.load(gates + t * 4 * D + 3 * D + at_gates, mask=real, other=0.0)
        before = tl.load(cells + t * D + at, mask=real, other=0.0)
        dh += load(dhidden + t * D + at, real, dh)
        squashed = tanh(f * before + i * g)
        dc += dh * o * (1.0 - squashed * squashed)
        di = dc * g * i * (1.0 - i)
        df = dc * before * f * (1.0 - f)
        dg = dc * i * (1.0 - g * g)
        do = dh * squashed * o * (1.0 - o)
        dc *= f
        tl.store(da + t * 4 * D + at_gates, di, mask=real)
        tl.store(da + t * 4 * D + D + at_gates, df, mask=real)
        tl.store(da + t * 4 * D + 2 * D + at_gates, dg, mask=real)
        tl.store(da + t * 4 * D + 3 * D + at_gates, do, mask=real)
        dh = tl.zeros_like(dc)
        dh = matmul(di, kept_i, dh, PRECISION)
        dh = matmul(df, kept_f, dh, PRECISION)
        dh = matmul(dg, kept_g, dh, PRECISION)
        dh = matmul(do, kept_o, dh, PRECISION)
    tl.store(dfirst_h + state, dh, mask=real)
    tl.store(dfirst_c + state, dc, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate(
    a,
    sums,
    state,
    hidden,
    last_c,
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
    c = tl.load(cells + at, mask=real, other=0.0)
    i = sigmoid(add_product(load(a + at_gates, real, c), sums, place, column, real, 4 * D, SHARES))
    f = sigmoid(add_product(load(a + at_gates + D, real, c), sums, place, D + column, real, 4 * D, SHARES))
    g = tanh(add_product(load(a + at_gates + 2 * D, real, c), sums, place, 2 * D + column, real, 4 * D, SHARES))
    o = sigmoid(add_product(load(a + at_gates + 3 * D, real, c), sums, place, 3 * D + column, real, 4 * D, SHARES))
    tl.store(gates + at_gates, i, mask=real)
    tl.store(gates + at_gates + D, f, mask=real)
    tl.store(gates + at_gates + 2 * D, g, mask=real)
    tl.store(gates + at_gates + 3 * D, o, mask=real)
    c = f * c + i * g
    h = o * tanh(c)
    if t + 1 < T:
        tl.store(cells + at + D, c, mask=real)  # the cell before the next step
    else:
        tl.store(last_c + sequence * D + column, c, mask=real)
    tl.store(hidden + at, h, mask=real)
    tl.store(state + place * D + column, h, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate_backward(
    gates,
    cells,
    dhidden,
    sums,
    exchange,
    dcell,
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
    i = tl.load(gates + at_gates, mask=real, other=0.0)
    f = tl.load(gates + at_gates + D, mask=real, other=0.0)
    g = tl.load(gates + at_gates + 2 * D, mask=real, other=0.0)
    o = tl.load(gates + at_gates + 3 * D, mask=real, other=0.0)
    before = tl.load(cells + at, mask=real, other=0.0)
    dc = tl.load(dcell + sequence * D + column, mask=real, other=0.0)
    dh = add_product(load(dhidden + at, real, i), sums, place, column, real, D, SHARES)
    squashed = tanh(f * before + i * g)
    dc += dh * o * (1.0 - squashed * squashed)
    di = dc * g * i * (1.0 - i)
    df = dc * before * f * (1.0 - f)
    dg = dc * i * (1.0 - g * g)
    do = dh * squashed * o * (1.0 - o)
    tl.store(dcell + sequence * D + column, dc * f, mask=real)
    to, x = da + at_gates, exchange + place * 4 * D + column
    tl.store(to, di, mask=real)
    tl.store(to + D, df, mask=real)
    tl.store(to + 2 * D, dg, mask=real)
    tl.store(to + 3 * D, do, mask=real)
    tl.store(x, di, mask=real)
    tl.store(x + D, df, mask=real)
    tl.store(x + 2 * D, dg, mask=real)
    tl.store(x + 3 * D, do, mask=real)
