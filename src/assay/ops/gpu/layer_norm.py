"""Layer normalisation with weights per group, a tile of positions at a time: each pass reads its inputs once.

The same kernels add what a residual connection adds before the norm, and pass the gradient of the sum on.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, load, padded
from assay.ops.operator import state_dtype

EPS = tl.constexpr(1e-5)
TILE_BYTES = 16384  # of the state's type; the backward pass holds four such tiles and takes half


def outputs(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """y, and every position's mean and 1 / standard deviation."""
    return torch.empty_like(x), x.new_empty(*x.shape[:3], 2, dtype=state_dtype(x.dtype))


def forward(outputs: tuple[Tensor, ...], x: Tensor, w: Tensor, b: Tensor) -> None:
    normalise(x, None, None, w, b, *outputs)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], x: Tensor, w: Tensor, b: Tensor
) -> tuple[Tensor, ...]:
    return gradients(x, w, outputs[1], grads[0], None)


def normalise(
    x: Tensor, addend: Tensor | None, total: Tensor | None, w: Tensor, b: Tensor, y: Tensor, stats: Tensor
) -> None:
    """Fill y with the norm of x, or of x + addend, which is written to `total`."""
    tiles, options = _settings(x, w, stats, TILE_BYTES)
    pairs = w.shape[0] * w.shape[1]
    _forward[(pairs * tiles,)](x, addend, total, w, b, y, stats, tiles, **options)


def gradients(x: Tensor, w: Tensor, stats: Tensor, dy: Tensor, dx_beside: Tensor | None) -> tuple[Tensor, ...]:
    """Of x, w and b, where x has another gradient besides that of its norm, or None."""
    tiles, options = _settings(x, w, stats, TILE_BYTES // 2)
    pairs = w.shape[0] * w.shape[1]
    splits = min(tiles, max(1, 4 * MULTIPROCESSORS // pairs))
    tile = options["TILE"] * options["BLOCK"] * stats.element_size()
    options["STAGES"] = (
        3 if tile <= 16384 else 1
    )  # loads two tiles ahead, if shared memory is large enough; 2 overlap nothing
    dx, parts = torch.empty_like(x), stats.new_empty(2, splits, *w.shape)
    _backward[(pairs * splits,)](x, w, stats, dy, dx_beside, dx, parts[0], parts[1], tiles, splits, **options)
    dw, db = (parts.sum(1) if splits > 1 else parts[:, 0]).to(w.dtype)
    return dx, dw, db


def _settings(x: Tensor, w: Tensor, stats: Tensor, tile_bytes: int) -> tuple[int, dict[str, Any]]:
    """How many tiles the positions of a group's head make, and the arguments that both kernels take.

    D is known when they are compiled: a load then takes 16 bytes wherever D allows that, not only where 16 divides it.
    """
    batch, heads, time, size = x.shape
    rows, block = batch // len(w), padded(size)
    tile = min(padded(rows * time), max(1, tile_bytes // (block * stats.element_size())))
    warps = min(16, max(1, tile * block * stats.element_size() // 2048))
    options = {"rows": rows, "heads": heads, "T": time, "D": size, "TILE": tile, "BLOCK": block, "num_warps": warps}
    return triton.cdiv(rows * time, tile), options


@triton.jit
def _positions(pair, tile, rows, heads, T, TILE: tl.constexpr):
    """Where a tile's positions are among all of [batch, heads, time], and which of them are real."""
    p = tile * TILE + tl.arange(0, TILE)
    first = (pair // heads * rows * heads + pair % heads) * T
    return first + p + p // T * ((heads - 1) * T), p < rows * T


@triton.jit
def _forward(
    x_in, addend, total, w_in, b_in, y_in, stats, tiles,
    rows, heads, T, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    column = tl.arange(0, BLOCK)
    real = column < D
    w = tl.load(w_in + pair * D + column, mask=real, other=0.0).to(stats.dtype.element_ty)
    b = load(b_in + pair * D + column, real, w)
    n, there = _positions(pair, tl.program_id(0) % tiles, rows, heads, T, TILE)
    at, mask = n[:, None] * D + column[None, :], there[:, None] & real[None, :]
    x = load(x_in + at, mask, w)
    if addend is not None:
        x += load(addend + at, mask, w)
        tl.store(total + at, x, mask=mask)
    mean = tl.sum(x, 1) / D
    x = tl.where(real[None, :], x - mean[:, None], 0.0)
    rstd = tl.rsqrt(tl.sum(x * x, 1) / D + EPS)
    tl.store(y_in + at, x * rstd[:, None] * w[None, :] + b[None, :], mask=mask)
    tl.store(stats + 2 * n, mean, mask=there)
    tl.store(stats + 2 * n + 1, rstd, mask=there)


@triton.jit
def _backward(
    x_in, w_in, stats, dy_in, dx_beside, dx_in, dw_parts, db_parts, tiles, splits,
    rows, heads, T, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Every split takes each splits-th tile; dw and db are summed over a tile's positions only at the end."""
    pair, split = (tl.program_id(0) // splits).to(tl.int64), tl.program_id(0) % splits
    column = tl.arange(0, BLOCK)
    real = column < D
    w = tl.load(w_in + pair * D + column, mask=real, other=0.0).to(stats.dtype.element_ty)
    dw, db = tl.zeros([TILE, BLOCK], w.dtype), tl.zeros([TILE, BLOCK], w.dtype)
    for tile in tl.range(split, tiles, splits, num_stages=STAGES):
        n, there = _positions(pair, tile, rows, heads, T, TILE)
        at, mask = n[:, None] * D + column[None, :], there[:, None] & real[None, :]
        x, dy = load(x_in + at, mask, w), load(dy_in + at, mask, w)
        mean, rstd = load(stats + 2 * n, there, w), load(stats + 2 * n + 1, there, w)
        x = (x - mean[:, None]) * rstd[:, None]  # not 0 beyond D, but there dy is
        dw += dy * x
        db += dy
        dy *= w[None, :]
        along, level = tl.sum(dy * x, 1) / D, tl.sum(dy, 1) / D
        dx = (dy - level[:, None] - x * along[:, None]) * rstd[:, None]
        if D == 1:  # nothing moves a single number; what is left is rounding, and rstd is large
            dx = tl.zeros_like(dx)
        if dx_beside is not None:
            dx += load(dx_beside + at, mask, w)
        tl.store(dx_in + at, dx, mask=mask)
    pairs = tl.num_programs(0) // splits
    part = (split * pairs + pair) * D + column
    tl.store(dw_parts + part, tl.sum(dw, 0), mask=real)
    tl.store(db_parts + part, tl.sum(db, 0), mask=real)
