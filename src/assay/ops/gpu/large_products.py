"""Products of large matrices, for every matrix of a batch: a linear map and its gradients.

In strict float32 they run on the matrix units, which read eleven binary digits of a number: x = big + small, and three
of the four products of the parts are computed. The parts of a weight are computed once, those of x as it is loaded. The
units round sums towards zero, so sums of more than 32 or 64 products are added up outside of them. In other types,
these products are left to the library.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, precision

SIDE = 64  # of a tile that is transposed


class Digits(NamedTuple):
    """A factor W [matrices, out, depth] as the matrix units read it: in two parts, or as it is."""

    big: Tensor
    small: Tensor | None


class Tile(NamedTuple):
    """What a program computes of the result, how many products it adds up at a time, and with what."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


TALL, WIDE, SQUARE = Tile(128, 64, 32, 4, 3), Tile(64, 128, 32, 4, 3), Tile(128, 128, 32, 8, 3)


# -- a linear map ---------------------------------------------------------------------------------------------------


def linear(x: Tensor, W: Tensor, b: Tensor, relu: bool, y: Tensor) -> None:
    """y = x W^T + b, or max(0, y): x [matrices, rows, size], W [matrices, out, size], b [matrices, out]."""
    if precision(x) == "tf32x3":
        multiply(x, digits(W), y[None], b, relu)
    else:
        torch.baddbmm(b[:, None], x, W.mT, out=y)
        if relu:
            y.relu_()


def input_gradient(dy: Tensor, W: Tensor, dx: Tensor) -> None:
    """dx = dy W."""
    if precision(dy) == "tf32x3":
        multiply(dy, digits(W, turned=True), dx[None])
    else:
        torch.bmm(dy, W, out=dx)


def weight_gradients(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The sums over the rows of dy x^T, [matrices, out, size], and of dy."""
    if precision(x) != "tf32x3":
        return dy.mT @ x, dy.sum(1)
    if x.shape[2] > dy.shape[2]:  # the narrower one is transposed in memory
        return _sum_of_outer_products(x, dy)[0].mT.contiguous(), dy.sum(1)
    return _sum_of_outer_products(dy, x)


def _sum_of_outer_products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The sums over the rows of x y^T and of x."""
    matrices, rows, out = x.shape
    tiles = matrices * triton.cdiv(out, SQUARE.rows) * triton.cdiv(y.shape[2], SQUARE.columns)
    shares = max(1, min(2 * MULTIPROCESSORS // tiles, rows // 512))
    products, totals = x.new_empty(shares, matrices, out, y.shape[2]), x.new_empty(shares, matrices, out)
    multiply(x, digits(y, turned=True), products, totals=totals, tile=SQUARE)
    return (products[0], totals[0]) if shares == 1 else (products.sum(0), totals.sum(0))


# -- the product ----------------------------------------------------------------------------------------------------


def digits(W: Tensor, turned: bool = False, tile: Tile | None = None) -> Digits:
    """The parts of W [matrices, out, depth]; or of [matrices, depth, out], which is transposed here.

    A tile of fewer than 64 rows splits W itself: only for more do the matrix units read it from shared memory.
    """
    matrices, rows, columns = W.shape
    split = precision(W) == "tf32x3" and (tile is None or tile.rows >= 64)
    if not split and not turned:
        return Digits(W, None)
    depth = triton.cdiv(rows, 32) * 32 if turned else columns  # zeros at the end: every row begins aligned
    shape = (matrices, columns, depth) if turned else W.shape
    big, small = W.new_empty(shape), W.new_empty(shape) if split else None
    grid = (triton.cdiv(depth if turned else rows, SIDE), triton.cdiv(columns, SIDE), matrices)
    _digits[grid](W, big, small, rows, columns, depth, TURNED=turned, SPLIT=split, SIDE=SIDE, num_warps=8)
    return Digits(big, small)


def multiply(
    x: Tensor,
    W: Digits,
    result: Tensor,
    b: Tensor | None = None,
    relu: bool = False,
    totals: Tensor | None = None,
    tile: Tile | None = None,
) -> None:
    """result [shares, matrices, rows, out] = x W^T + b: a share has a part of the sum over the depth.

    x is [matrices, rows, depth]; with `totals` [shares, matrices, rows], its sums, it is [matrices, depth, rows].
    """
    shares, matrices, rows, out = result.shape
    turned = totals is not None
    depth = x.shape[1] if turned else x.shape[2]
    tile = tile or (WIDE if out > TALL.columns else TALL)
    grid = (triton.cdiv(rows, tile.rows) * triton.cdiv(out, tile.columns), shares, matrices)
    part = triton.cdiv(triton.cdiv(depth, tile.depth), shares)
    _product[grid](
        x,
        *W,
        b,
        result,
        totals,
        rows,
        depth,
        W.big.shape[2],
        out,
        part,
        TURNED=turned,
        RELU=relu,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        STAGES=tile.stages,
        SPLIT=precision(x) == "tf32x3",
        num_warps=tile.warps,
    )


@triton.jit
def split(x):
    """The digits of x that the matrix units use, rounded, and the rest."""
    big = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return big, x - big


@triton.jit
def _digits(W, big, small, rows, columns, depth, TURNED: tl.constexpr, SPLIT: tl.constexpr, SIDE: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    matrix = tl.program_id(2).to(tl.int64)
    at = (matrix * rows + row[:, None]) * columns + column[None, :]
    present = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(W + at, mask=present, other=0.0)
    if TURNED:
        values = tl.trans(values)
        at = (matrix * columns + column[:, None]) * depth + row[None, :]
        present = (column < columns)[:, None] & (row < depth)[None, :]
    if SPLIT:
        values, rest = split(values)
        tl.store(small + at, rest, mask=present)
    tl.store(big + at, values, mask=present)


@triton.jit(do_not_specialize=("part",))
def _product(
    x,
    big,
    small,
    b,
    result,
    totals,
    rows,
    depth,
    stride,
    out,
    part,
    TURNED: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
    SPLIT: tl.constexpr,
):
    across = tl.cdiv(out, COLUMNS)  # neighbours share their rows of x
    row = tl.program_id(0) // across * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    share, matrix = tl.program_id(1), tl.program_id(2).to(tl.int64)
    first = matrix * rows * depth
    result_sum = tl.zeros([ROWS, COLUMNS], tl.float32)
    if TURNED:
        total = tl.zeros([DEPTH, ROWS], tl.float32)
    for block in tl.range(share * part, min(share * part + part, tl.cdiv(depth, DEPTH)), num_stages=STAGES):
        i = block * DEPTH + tl.arange(0, DEPTH)
        if TURNED:
            at, present = first + i[:, None] * rows + row[None, :], (i < depth)[:, None] & (row < rows)[None, :]
        else:
            at, present = first + row[:, None] * depth + i[None, :], (row < rows)[:, None] & (i < depth)[None, :]
        values = tl.load(x + at, mask=present, other=0.0)
        if TURNED:
            total += values
            values = tl.trans(values)
        at = (matrix * out + column) * stride + i[:, None]
        present = (column < out) & (i < depth)[:, None]
        weight = tl.load(big + at, mask=present, other=0.0)
        if SPLIT:
            if small is None:
                weight, rest = split(weight)
            else:
                rest = tl.load(small + at, mask=present, other=0.0)
            values, values_rest = split(values)
            y = tl.dot(values_rest, weight, input_precision="tf32")
            y = tl.dot(values, rest, y, input_precision="tf32")
            result_sum += tl.dot(values, weight, y, input_precision="tf32")
        else:
            result_sum = tl.dot(values, weight, result_sum, input_precision="tf32")
    if b is not None:
        result_sum += tl.load(b + matrix * out + column, mask=column < out, other=0.0)
    if RELU:
        result_sum = tl.where(result_sum < 0.0, 0.0, result_sum)  # a NaN stays one
    at = (share * tl.num_programs(2) + matrix) * rows + row
    tl.store(result + at[:, None] * out + column, result_sum, mask=(row < rows)[:, None] & (column < out))
    if TURNED:
        tl.store(totals + at, tl.sum(total, 0), mask=row < rows)  # the same from every tile of these rows
