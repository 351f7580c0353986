"""Rows of a table per group; the gradient of the table is a product with one-hot vectors, without atomic sums.

A program takes its share of a group's positions; PyTorch adds the shares up.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, padded, precision, state_type
from assay.ops.operator import state_dtype

TILE = 64  # positions
COLUMNS, WORDS = 64, 64  # the largest part of a table that a program adds up


def outputs(tokens: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    return (W.new_empty(*tokens.shape, W.shape[-1]),)


def forward(outputs: tuple[Tensor, ...], tokens: Tensor, W: Tensor) -> None:
    count, options = _settings(tokens, W)
    tiles = triton.cdiv(count, TILE)
    _forward[(len(W) * tiles, triton.cdiv(W.shape[-1], options["COLUMNS"]))](tokens, W, *outputs, tiles, **options)


def backward(outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], tokens: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    (groups, words, size), (count, options) = W.shape, _settings(tokens, W)
    wide = min(padded(words, 16), WORDS)
    parts = triton.cdiv(size, options["COLUMNS"]), triton.cdiv(words, wide)
    tiles, programs = triton.cdiv(count, TILE), groups * parts[0] * parts[1]
    shares = min(tiles, max(1, 2 * MULTIPROCESSORS // programs))
    dW = W.new_empty(shares, *W.shape, dtype=state_dtype(W.dtype))
    _backward[(groups * shares, *parts)](
        tokens, grads[0], dW, tiles, shares, WORDS=wide, REAL=state_type(W), PRECISION=precision(W), **options
    )
    return ((dW[0] if shares == 1 else dW.sum(0)).to(W.dtype),)


def _settings(tokens: Tensor, W: Tensor) -> tuple[int, dict[str, Any]]:
    """The positions of a group, and the arguments that both kernels take by name."""
    count, (_, words, size) = tokens.numel() // len(W), W.shape
    return count, {"count": count, "words": words, "D": size, "COLUMNS": min(padded(size, 16), COLUMNS), "SIZE": TILE}


@triton.jit
def _forward(tokens, W, y, tiles, count, words, D: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr):
    group = (tl.program_id(0) // tiles).to(tl.int64)
    n = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    token = tl.load(tokens + group * count + n, mask=n < count, other=0)
    mask = (n < count)[:, None] & (column < D)[None, :]
    row = tl.load(W + (group * words + token)[:, None] * D + column[None, :], mask=mask)
    tl.store(y + (group * count + n)[:, None] * D + column[None, :], row, mask=mask)


@triton.jit
def _backward(
    tokens, dy, dW, tiles, shares, count, words, D: tl.constexpr,
    COLUMNS: tl.constexpr, SIZE: tl.constexpr, WORDS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    group, share = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    word = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    total = tl.zeros([WORDS, COLUMNS], REAL)
    for tile in range(share, tiles, shares):
        n = tile * SIZE + tl.arange(0, SIZE)
        token = tl.load(tokens + group * count + n, mask=n < count, other=-1)
        mask = (n < count)[:, None] & (column < D)[None, :]
        arriving = tl.load(dy + (group * count + n)[:, None] * D + column[None, :], mask=mask, other=0.0).to(REAL)
        one_hot = tl.where(word[:, None] == token[None, :], 1.0, 0.0).to(REAL)
        total = tl.dot(one_hot, arriving, total, input_precision=PRECISION, out_dtype=REAL)
    groups = tl.num_programs(0) // shares
    at = ((share * groups + group) * words + word)[:, None] * D + column[None, :]
    tl.store(dW + at, total, mask=(word < words)[:, None] & (column < D)[None, :])
