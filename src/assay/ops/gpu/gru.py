"""The gated recurrent unit; saves r, z, n and u = R_n h + b of every step."""

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
from assay.ops.grouped import before


def outputs(a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    steps, size = a.shape[:3], h.shape[-1]
    return a.new_empty(*steps, size), h.new_empty(*steps, 4 * size)


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> None:
    if step_by_step(R, h.dtype):
        _forward_steps(outputs, a, R, b, h)
    else:
        grid, settings = launch(a, R, h)
        _forward[grid](a, transposed(R, 3, h.dtype), b, h, *outputs, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, b: Tensor, h: Tensor
) -> tuple[Tensor, ...]:
    hidden, gates = outputs
    da, du, dh = torch.empty_like(a), torch.empty_like(hidden), torch.empty_like(h)
    size, previous = h.shape[2], before(h, hidden)
    if step_by_step(R, h.dtype):
        dh = _backward_steps(R, h, previous, gates, grads[0], da, du)
    else:
        grid, settings = launch(a, R, h)
        _backward[grid](R.to(h.dtype), previous, gates, *grads, da, du, dh, **settings)
    dz = torch.cat([da[..., : 2 * size], du], dim=-1)
    dR, db = weight_gradients(dz, previous, R)
    return da, dR, db[..., 2 * size :].contiguous(), dh


def _forward_steps(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, b: Tensor, h: Tensor) -> None:
    product = StepProduct(R, len(a) // len(R), h.dtype, transposed=False)
    product.x.copy_(by_matrix(h, len(R)))
    grid, settings = step_launch(a, R, product)
    for t in range(a.shape[2]):
        product()
        _activate[grid](a, b, product.sums, product.x, *outputs, t, **settings)


def _backward_steps(
    R: Tensor, h: Tensor, previous: Tensor, gates: Tensor, dhidden: Tensor, da: Tensor, du: Tensor
) -> Tensor:
    """The gradient of the first state; those of a and u go to `da` and `du`."""
    product, carried = StepProduct(R, len(da) // len(R), h.dtype, transposed=True), torch.zeros_like(h)
    product.sums.zero_()
    grid, settings = step_launch(da, R, product)
    for t in reversed(range(da.shape[2])):
        _activate_backward[grid](previous, gates, dhidden, product.sums, product.x, carried, da, du, t, **settings)
        product()
    return carried + by_sequence(product.sums.sum(0), R.shape[1])


@triton.jit
def _forward(
    a,
    R,
    b,
    first,
    hidden,
    gates,
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
    state, at = sequence * D + column, sequence * T * D + column
    at_a, at_gates = sequence * T * 3 * D + column, sequence * T * 4 * D + column
    h = tl.load(first + state, mask=real, other=0.0)
    bias = tl.broadcast_to(load(b + matrix * D + column, column < D, h), [ROWS, BLOCK])
    R_r = R + matrix * 3 * D * D
    R_z, R_n = R_r + D * D, R_r + 2 * D * D
    kept_r = load_matrix(R_r, D, BLOCK)
    kept_z = load_matrix(R_z, D, BLOCK)
    kept_n = load_matrix(R_n, D, BLOCK)
    for t in tl.range(T, num_stages=2):
        r = load(a + t * 3 * D + at_a, real, h)
        z = load(a + t * 3 * D + D + at_a, real, h)
        n = load(a + t * 3 * D + 2 * D + at_a, real, h)
        u = bias
        r = matmul(h, kept_r, r, PRECISION)
        z = matmul(h, kept_z, z, PRECISION)
        u = matmul(h, kept_n, u, PRECISION)
        r, z = sigmoid(r), sigmoid(z)
        n = tanh(n + r * u)
        h = (1.0 - z) * n + z * h
        tl.store(gates + t * 4 * D + at_gates, r, mask=real)
        tl.store(gates + t * 4 * D + D + at_gates, z, mask=real)
        tl.store(gates + t * 4 * D + 2 * D + at_gates, n, mask=real)
        tl.store(gates + t * 4 * D + 3 * D + at_gates, u, mask=real)
        tl.store(hidden + t * D + at, h, mask=real)


@triton.jit
def _backward(
    R,
    previous,
    gates,
    dhidden,
    da,
    dproduct,
    dfirst,
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
    state, at = sequence * D + column, sequence * T * D + column
    at_a, at_gates = sequence * T * 3 * D + column, sequence * T * 4 * D + column
    dh = tl.zeros([ROWS, BLOCK], dtype=dfirst.dtype.element_ty)
    R += matrix * 3 * D * D
    kept_r = load_matrix(R, D, BLOCK)
    kept_z = load_matrix(R + D * D, D, BLOCK)
    kept_n = load_matrix(R + 2 * D * D, D, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        r = tl.load(gates + t * 4 * D + at_gates, mask=real, other=0.0)
        z = tl.load(gates + t * 4 * D + D + at_gates, mask=real, other=0.0)
        n = tl.load(gates + t * 4 * D + 2 * D + at_gates, mask=real, other=0.0)
        u = tl.load(gates + t * 4 * D + 3 * D + at_gates, mask=real, other=0.0)
        before = load(previous + t * D + at, real, dh)
        dh += load(dhidden + t * D + at, real, dh)
        dz = dh * (before - n) * z * (1.0 - z)
        dn = dh * (1.0 - z) * (1.0 - n * n)
        dr = dn * u * r * (1.0 - r)
        du = dn * r
        tl.store(da + t * 3 * D + at_a, dr, mask=real)
        tl.store(da + t * 3 * D + D + at_a, dz, mask=real)
        tl.store(da + t * 3 * D + 2 * D + at_a, dn, mask=real)
        tl.store(dproduct + t * D + at, du, mask=real)
        dh *= z
        dh = matmul(dr, kept_r, dh, PRECISION)
        dh = matmul(dz, kept_z, dh, PRECISION)
        dh = matmul(du, kept_n, dh, PRECISION)
    tl.store(dfirst + state, dh, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate(
    a,
    b,
    sums,
    state,
    hidden,
    gates,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at_a, at_gates = (sequence * T + t) * 3 * D + column, (sequence * T + t) * 4 * D + column
    h = tl.load(state + place * D + column, mask=real, other=0.0)
    bias = load(b + place // rows * D + column, real, h)
    r = sigmoid(add_product(load(a + at_a, real, h), sums, place, column, real, 3 * D, SHARES))
    z = sigmoid(add_product(load(a + at_a + D, real, h), sums, place, D + column, real, 3 * D, SHARES))
    u = add_product(bias, sums, place, 2 * D + column, real, 3 * D, SHARES)
    n = tanh(load(a + at_a + 2 * D, real, h) + r * u)
    h = (1.0 - z) * n + z * h
    tl.store(gates + at_gates, r, mask=real)
    tl.store(gates + at_gates + D, z, mask=real)
    tl.store(gates + at_gates + 2 * D, n, mask=real)
    tl.store(gates + at_gates + 3 * D, u, mask=real)
    tl.store(hidden + (sequence * T + t) * D + column, h, mask=real)
    tl.store(state + place * D + column, h, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate_backward(
    previous,
    gates,
    dhidden,
    sums,
    exchange,
    carried,
    da,
    dproduct,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at, at_state = (sequence * T + t) * D + column, sequence * D + column
    at_a, at_gates = (sequence * T + t) * 3 * D + column, (sequence * T + t) * 4 * D + column
    r = tl.load(gates + at_gates, mask=real, other=0.0)
    z = tl.load(gates + at_gates + D, mask=real, other=0.0)
    n = tl.load(gates + at_gates + 2 * D, mask=real, other=0.0)
    u = tl.load(gates + at_gates + 3 * D, mask=real, other=0.0)
    before = load(previous + at, real, r)
    dh = load(dhidden + at, real, r) + tl.load(carried + at_state, mask=real, other=0.0)
    dh = add_product(dh, sums, place, column, real, D, SHARES)
    dz = dh * (before - n) * z * (1.0 - z)
    dn = dh * (1.0 - z) * (1.0 - n * n)
    dr = dn * u * r * (1.0 - r)
    du = dn * r
    tl.store(da + at_a, dr, mask=real)
    tl.store(da + at_a + D, dz, mask=real)
    tl.store(da + at_a + 2 * D, dn, mask=real)
    tl.store(dproduct + at, du, mask=real)
    tl.store(carried + at_state, dh * z, mask=real)
    x = exchange + place * 3 * D + column
    tl.store(x, dr, mask=real)
    tl.store(x + D, dz, mask=real)
    tl.store(x + 2 * D, du, mask=real)
