"""The plain recurrent network; needs no more than its outputs for the gradient."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, tanh
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


def outputs(a: Tensor, R: Tensor, h: Tensor, relu: bool) -> tuple[Tensor, ...]:
    return (torch.empty_like(a),)


def forward(outputs: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, relu: bool) -> None:
    if step_by_step(R, h.dtype):
        _forward_steps(outputs[0], a, R, h, relu)
    else:
        grid, settings = launch(a, R, h)
        _forward[grid](a, transposed(R, 1, h.dtype), h, *outputs, RELU=relu, **settings)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], a: Tensor, R: Tensor, h: Tensor, relu: bool
) -> tuple[Tensor, ...]:
    (hidden,) = outputs
    da, dh = torch.empty_like(a), torch.empty_like(h)
    if step_by_step(R, h.dtype):
        dh = _backward_steps(R, hidden, grads[0], da, h.dtype, relu)
    else:
        grid, settings = launch(a, R, h)
        _backward[grid](R.to(h.dtype), hidden, *grads, da, dh, RELU=relu, **settings)
    dR, _ = weight_gradients(da, before(h, hidden), R)
    return da, dR, dh


def _forward_steps(hidden: Tensor, a: Tensor, R: Tensor, h: Tensor, relu: bool) -> None:
    product = StepProduct(R, len(a) // len(R), h.dtype, transposed=False)
    product.x.copy_(by_matrix(h, len(R)))
    grid, settings = step_launch(a, R, product)
    for t in range(a.shape[2]):
        product()
        _activate[grid](a, product.sums, product.x, hidden, t, RELU=relu, **settings)


def _backward_steps(R: Tensor, hidden: Tensor, dhidden: Tensor, da: Tensor, dtype: torch.dtype, relu: bool) -> Tensor:
    """The gradient of the first state; that of a goes to `da`."""
    product = StepProduct(R, len(da) // len(R), dtype, transposed=True)
    product.sums.zero_()
    grid, settings = step_launch(da, R, product)
    for t in reversed(range(da.shape[2])):
        _activate_backward[grid](hidden, dhidden, product.sums, product.x, da, t, RELU=relu, **settings)
        product()
    return by_sequence(product.sums.sum(0), R.shape[1])


@triton.jit
def _forward(
    a,
    R,
    first,
    hidden,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at = sequence * D + column, sequence * T * D + column
    h = tl.load(first + state, mask=real, other=0.0)
    R += matrix * D * D
    kept = load_matrix(R, D, BLOCK)
    for t in tl.range(T, num_stages=2):
        x = load(a + t * D + at, real, h)
        x = matmul(h, kept, x, PRECISION)
        h = tl.where(x < 0.0, 0.0, x) if RELU else tanh(x)
        tl.store(hidden + t * D + at, h, mask=real)


@triton.jit
def _backward(
    R,
    hidden,
    dhidden,
    da,
    dfirst,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    sequence, present, matrix = tile(rows, heads, ROWS)
    column = tl.arange(0, BLOCK)[None, :]
    real = present & (column < D)
    state, at = sequence * D + column, sequence * T * D + column
    dh = tl.zeros([ROWS, BLOCK], dtype=dfirst.dtype.element_ty)
    R += matrix * D * D
    kept = load_matrix(R, D, BLOCK)
    for t in tl.range(T - 1, -1, -1, num_stages=2):
        h = load(hidden + t * D + at, real, dh)
        dh += load(dhidden + t * D + at, real, dh)
        dx = tl.where(h > 0.0, dh, 0.0) if RELU else dh * (1.0 - h * h)
        tl.store(da + t * D + at, dx, mask=real)
        dh = tl.zeros_like(dh)
        dh = matmul(dx, kept, dh, PRECISION)
    tl.store(dfirst + state, dh, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate(
    a,
    sums,
    state,
    hidden,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at = (sequence * T + t) * D + column
    x = tl.load(a + at, mask=real, other=0.0).to(state.dtype.element_ty)
    x = add_product(x, sums, place, column, real, D, SHARES)
    h = tl.where(x < 0.0, 0.0, x) if RELU else tanh(x)
    tl.store(hidden + at, h, mask=real)
    tl.store(state + place * D + column, h, mask=real)


@triton.jit(do_not_specialize=("t",))
def _activate_backward(
    hidden,
    dhidden,
    sums,
    exchange,
    da,
    t,
    rows,
    heads,
    T,
    D: tl.constexpr,
    RELU: tl.constexpr,
    BLOCK: tl.constexpr,
    SHARES: tl.constexpr,
):
    sequence, place, column, real = element(rows, heads, D, BLOCK)
    at = (sequence * T + t) * D + column
    dh = tl.load(dhidden + at, mask=real, other=0.0).to(exchange.dtype.element_ty)
    dh = add_product(dh, sums, place, column, real, D, SHARES)
    h = load(hidden + at, real, dh)
    dx = tl.where(h > 0.0, dh, 0.0) if RELU else dh * (1.0 - h * h)
    tl.store(da + at, dx, mask=real)
    tl.store(exchange + place * D + column, dx, mask=real)
