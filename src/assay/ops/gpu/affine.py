"""y = W x + b at every moment, with or without a rectifier; its gradient needs only its output.

The rows of a group and all their moments are the rows of one matrix per head. A program multiplies tiles of them, one
after the other, with a part of the group's weight: that stays in shared memory, split for the matrix units once, or
above a size of 128 streams through it. The gradient of a weight is a sum over all rows: every program takes its share
of them, and PyTorch adds these up. With one head, larger sizes are left to `large_products`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu import large_products
from assay.ops.gpu.common import MULTIPROCESSORS, load, padded, precision, state_type
from assay.ops.gpu.crossovers import choice
from assay.ops.gpu.large_products import split


def outputs(x: Tensor, W: Tensor, b: Tensor, relu: bool) -> tuple[Tensor, ...]:
    return (x.new_empty(*x.shape[:3], W.shape[2]),)


def forward(outputs: tuple[Tensor, ...], x: Tensor, W: Tensor, b: Tensor, relu: bool) -> None:
    if _in_large_tiles("product", W, depth=x.shape[3]):
        large_products.linear(_matrices(x, W), W[:, 0], b[:, 0], relu, _matrices(outputs[0], W))
    else:
        _multiply(x, None, W, b, outputs[0], relu)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], x: Tensor, W: Tensor, b: Tensor, relu: bool
) -> tuple[Tensor, ...]:
    dy, activated, dx = grads[0], outputs[0] if relu else None, torch.empty_like(x)
    if _in_large_tiles("product", W, depth=dy.shape[3]):
        if activated is not None:  # here, because it would slow down both products
            dy, activated = torch.ops.aten.threshold_backward(dy, activated, 0), None
        large_products.input_gradient(_matrices(dy, W), W[:, 0], _matrices(dx, W))
    else:
        _multiply(dy, activated, W, None, dx, False)
    return dx, *weight_gradients(x, dy, W, activated)


def weight_gradients(x: Tensor, dy: Tensor, W: Tensor, activated: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The gradients of W and b; where y was rectified, it is `activated`."""
    small, large = sorted(W.shape[2:])
    if activated is None and _in_large_tiles("weight gradient", W, small=small, large=large):
        dW, db = large_products.weight_gradients(_matrices(x, W), _matrices(dy, W))
        return dW[:, None], db[:, None]
    return _weight_gradients(x, activated, dy, W)


def _in_large_tiles(work: str, W: Tensor, **sizes: int) -> bool:
    return W.shape[1] == 1 and choice(work, **sizes) == "large tiles"


def _matrices(x: Tensor, W: Tensor) -> Tensor:
    """Where there is one head: all rows and moments of a group as the rows of a matrix."""
    return x.view(len(W), -1, x.shape[3])


def _multiply(x: Tensor, activated: Tensor | None, W: Tensor, b: Tensor | None, result: Tensor, relu: bool) -> None:
    """result = W x + b; or result = W^T x, where x has passed the rectifier that gave `activated`."""
    options, size, out = _options(x, W), x.shape[-1], result.shape[-1]
    double, kept = x.dtype == torch.float64, size <= 128 and x.dtype != torch.float64
    tall, wide = (32, 32) if double else (64, min(padded(out, 16), 64 if kept else 128))
    programs, tiles = len(W) * W.shape[1] * triton.cdiv(out, wide), triton.cdiv(options["count"], tall)
    shares = _shares(programs, tiles) if kept else tiles
    options |= {"shares": shares, "SIZE": size, "OUT": out, "FORWARD": b is not None, "RELU": relu, "KEPT": kept}
    options |= {"ROWS": tall, "COLUMNS": wide, "DEPTH": min(padded(size, 16), 64) if kept else 16 if double else 32}
    _product[(programs * shares,)](x, activated, W, b, result, **options, num_warps=4)


def _weight_gradients(x: Tensor, activated: Tensor | None, dy: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    options, (groups, heads, out, size) = _options(x, W), W.shape
    double = x.dtype == torch.float64
    largest = (32, 32) if double else (128, 64) if out >= 128 and activated is None else (32, 128)
    tall, wide = (min(padded(n, 16), most) for n, most in zip((out, size), largest, strict=True))
    programs = groups * heads * triton.cdiv(out, tall) * triton.cdiv(size, wide)
    depth = 16 if double else 32
    shares = _shares(programs, triton.cdiv(options["count"], depth))
    options |= {"shares": shares, "D": size, "OUT": out, "ROWS": depth, "TALL": tall, "WIDE": wide}
    biases = groups * heads * out
    both = x.new_empty(shares, W.numel() + biases, dtype=torch.promote_types(x.dtype, torch.float32))
    dW, db = both[:, : W.numel()], both[:, W.numel() :]
    _weight_product[(programs * shares,)](x, activated, dy, dW, db, both.shape[1], **options, num_warps=4)
    total = (both[0] if shares == 1 else both.sum(0)).to(W.dtype)
    return total[: W.numel()].view(W.shape), total[W.numel() :].view(W.shape[:3])


def _options(x: Tensor, W: Tensor) -> dict[str, Any]:
    """The arguments that both kernels take by name."""
    count = len(x) // len(W) * x.shape[2]  # of rows and moments in a group
    return {"count": count, "T": x.shape[2], "HEADS": W.shape[1], "REAL": state_type(x), "PRECISION": precision(x)}


@lru_cache(1024)
def _shares(programs: int, tiles: int) -> int:
    """How many programs share the rows of a matrix, where two at a time run on a multiprocessor.

    The weight that a program loads or the sum that it writes takes as long as one more tile.
    """
    at_once = 2 * MULTIPROCESSORS

    def cost(shares: int) -> int:
        return -(-programs * shares // at_once) * (-(-tiles // shares) + 1)

    return min(range(1, min(tiles, at_once) + 1), key=cost)


@triton.jit
def _rows(first, count, matrix, T, HEADS: tl.constexpr, ROWS: tl.constexpr):
    """Where some rows of a group and head lie among all rows, heads and moments; and which of them exist."""
    row = first + tl.arange(0, ROWS)
    if HEADS == 1:
        at = matrix * count + row
    else:
        sequence = (matrix // HEADS * (count // T) + row // T) * HEADS + matrix % HEADS
        at = sequence * T + row % T
    return at[:, None], row[:, None] < count


@triton.jit
def _load_passed(x, activated, at, mask, like):
    """Entries of a gradient x; zero where the rectifier that it passes backward was zero."""
    values = load(x + at, mask, like)
    if activated is not None:
        values = tl.where(load(activated + at, mask, like) <= 0.0, 0.0, values)  # so that a NaN is not lost
    return values


@triton.jit
def _weight(W, i, column, SIZE: tl.constexpr, OUT: tl.constexpr, like, FORWARD: tl.constexpr):
    """A part of a weight as [size, out]; it lies as [out, size] in memory, or backward as [size, out]."""
    at = column[None, :] * SIZE + i[:, None] if FORWARD else i[:, None] * OUT + column[None, :]
    return load(W + at, (i < SIZE)[:, None] & (column < OUT)[None, :], like)


@triton.jit
def _split_if(x, PRECISION: tl.constexpr):
    """The digits of x that one pass of the matrix units uses, and the rest, which further passes need."""
    big, rest = x, x
    if PRECISION == "tf32x3":
        big, rest = split(x)
    return big, rest


@triton.jit
def _dot(x, big, small, addend, PRECISION: tl.constexpr):
    """x W + addend with a weight that is already split; tl.dot would split it again at every tile."""
    if PRECISION == "tf32x3":
        x, rest = split(x)
        addend = tl.dot(rest, big, addend, input_precision="tf32")
        addend = tl.dot(x, small, addend, input_precision="tf32")
    return tl.dot(x, big, addend, input_precision="tf32")


@triton.jit(do_not_specialize=("count", "T", "shares"))  # these change from batch to batch
def _product(
    x,
    activated,
    W,
    b,
    result,
    count,
    T,
    shares,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    OUT: tl.constexpr,
    FORWARD: tl.constexpr,
    RELU: tl.constexpr,
    KEPT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    REAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    across = tl.cdiv(OUT, COLUMNS)  # neighbours share their rows of x
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    share = tl.program_id(0) // across % shares
    matrix = (tl.program_id(0) // across // shares).to(tl.int64)
    W += matrix * OUT * SIZE
    nothing = tl.zeros([ROWS, COLUMNS], REAL)
    i = tl.arange(0, DEPTH)
    if FORWARD:
        bias = load(b + matrix * OUT + column, column < OUT, nothing)[None, :]
    if KEPT:
        big, small = _split_if(_weight(W, i, column, SIZE, OUT, nothing, FORWARD), PRECISION)
        if SIZE > DEPTH:
            more_big, more_small = _split_if(_weight(W, DEPTH + i, column, SIZE, OUT, nothing, FORWARD), PRECISION)
    for start in tl.range(share * ROWS, count, shares * ROWS, num_stages=3 if SIZE <= DEPTH else 2):
        at, present = _rows(start, count, matrix, T, HEADS, ROWS)
        y = nothing
        if KEPT:
            part = _load_passed(x, activated, at * SIZE + i[None, :], present & (i < SIZE)[None, :], y)
            if SIZE > DEPTH:
                mask = present & (DEPTH + i < SIZE)[None, :]
                more = _load_passed(x, activated, at * SIZE + DEPTH + i[None, :], mask, y)
                y = _dot(more, more_big, more_small, y, PRECISION)
            y = _dot(part, big, small, y, PRECISION)
        else:
            for first in tl.range(0, SIZE, DEPTH, num_stages=3):
                j = first + i
                part = _load_passed(x, activated, at * SIZE + j[None, :], present & (j < SIZE)[None, :], y)
                weight = _weight(W, j, column, SIZE, OUT, y, FORWARD)
                y = tl.dot(part, weight, y, input_precision=PRECISION, out_dtype=REAL)
        if FORWARD:
            y += bias
            y = tl.where(y < 0.0, 0.0, y) if RELU else y
        tl.store(result + at * OUT + column[None, :], y, mask=present & (column < OUT)[None, :])


@triton.jit(do_not_specialize=("count", "T", "shares"))
def _weight_product(
    x,
    activated,
    dy,
    dW,
    db,
    stride,
    count,
    T,
    shares,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    REAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    across, down = tl.cdiv(D, WIDE), tl.cdiv(OUT, TALL)
    j = tl.program_id(0) % across * WIDE + tl.arange(0, WIDE)
    i = tl.program_id(0) // across % down * TALL + tl.arange(0, TALL)
    program = tl.program_id(0) // across // down
    share, matrix = program % shares, (program // shares).to(tl.int64)
    product, total = tl.zeros([TALL, WIDE], REAL), tl.zeros([ROWS, TALL], REAL)
    for start in tl.range(share * ROWS, count, shares * ROWS, num_stages=3):
        at, present = _rows(start, count, matrix, T, HEADS, ROWS)
        grad = _load_passed(dy, activated, at * OUT + i[None, :], present & (i < OUT)[None, :], product)
        part = load(x + at * D + j[None, :], present & (j < D)[None, :], product)
        total += grad
        grad = tl.trans(grad)
        if PRECISION == "tf32x3":
            grad, small_grad = split(grad)
            part, small_part = split(part)
            sums = tl.dot(small_grad, part, input_precision="tf32")
            sums = tl.dot(grad, small_part, sums, input_precision="tf32")
            product += tl.dot(grad, part, sums, input_precision="tf32")
        else:
            product = tl.dot(grad, part, product, input_precision=PRECISION, out_dtype=REAL)
    row, first = matrix * OUT + i, share.to(tl.int64) * stride
    tl.store(dW + first + row[:, None] * D + j[None, :], product, mask=(i < OUT)[:, None] & (j < D)[None, :])
    if tl.program_id(0) % across == 0:
        tl.store(db + first + row, tl.sum(total, 0), mask=i < OUT)
