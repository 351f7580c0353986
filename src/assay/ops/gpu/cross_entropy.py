"""The mean cross-entropy of every row; the gradient computes its softmax again.

A row's positions are shared out among programs, each of which writes a sum and a count; a program per row adds them up.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, padded, state_type
from assay.ops.operator import state_dtype

IGNORE = tl.constexpr(-100)
TILE_ENTRIES = 2048  # logits at a time
SHARES = 64  # at most, of a row


def outputs(logits: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
    """The losses; then every row's number of targets."""
    return logits.new_empty(len(logits)), logits.new_empty(len(logits), dtype=state_dtype(logits.dtype))


def forward(outputs: tuple[Tensor, ...], logits: Tensor, targets: Tensor) -> None:
    losses, counts = outputs
    tiles, options = _settings(logits)
    shares = _shares(len(logits), tiles)
    sums = counts.new_empty(2, len(logits), shares)
    _forward[(len(logits) * shares,)](logits, targets, sums[0], sums[1], tiles, shares, **options)
    _finish[(len(logits),)](sums[0], sums[1], losses, counts, shares, SHARES=padded(shares))


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], logits: Tensor, targets: Tensor
) -> tuple[Tensor, ...]:
    dlogits, (tiles, options) = logits.new_empty(logits.shape), _settings(logits)
    _backward[(len(logits) * tiles,)](logits, targets, outputs[1], grads[0], dlogits, tiles, **options)
    return (dlogits,)


def _settings(logits: Tensor) -> tuple[int, dict[str, Any]]:
    """The tiles of a row, and the arguments that both kernels take by name."""
    _, time, classes = logits.shape
    block = padded(classes)
    tile = max(1, min(padded(time), TILE_ENTRIES // block))
    options = {"T": time, "N": classes, "TILE": tile, "BLOCK": block, "REAL": state_type(logits), "num_warps": 4}
    return triton.cdiv(time, tile), options


def _shares(rows: int, tiles: int) -> int:
    return min(tiles, SHARES, max(1, 4 * MULTIPROCESSORS // rows))


@triton.jit
def _tile(logits, targets, row, tile, T, N: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr):
    """Where a tile's logits are, which exist, its targets, the shifted logits, and their exponentials' sum."""
    t, c = tile * TILE + tl.arange(0, TILE), tl.arange(0, BLOCK)
    at, real = (row * T + t)[:, None] * N + c[None, :], (t < T)[:, None] & (c < N)[None, :]
    target = tl.load(targets + row * T + t, mask=t < T, other=IGNORE)
    z = tl.load(logits + at, mask=real, other=0.0).to(REAL)
    z -= tl.max(tl.where(real, z, float("-inf")), 1)[:, None]
    e = tl.where(real, tl.exp(z), 0.0)
    return at, real, target, target[:, None] == c[None, :], z, e, tl.sum(e, 1)


@triton.jit
def _forward(
    logits, targets, sums, counts, tiles, shares, T, N: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    row, share = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares
    loss, count = tl.zeros([TILE], REAL), tl.zeros([TILE], REAL)
    for tile in range(share, tiles, shares):
        _, _, target, is_target, z, _, total = _tile(logits, targets, row, tile, T, N, TILE, BLOCK, REAL)
        counted = target != IGNORE
        loss += tl.where(counted, tl.log(total) - tl.sum(tl.where(is_target, z, 0.0), 1), 0.0)
        count += tl.where(counted, 1.0, 0.0)
    tl.store(sums + row * shares + share, tl.sum(loss, 0))
    tl.store(counts + row * shares + share, tl.sum(count, 0))


@triton.jit
def _finish(sums, counts, losses, totals, shares, SHARES: tl.constexpr):
    row, share = tl.program_id(0).to(tl.int64), tl.arange(0, SHARES)
    count = tl.sum(tl.load(counts + row * shares + share, mask=share < shares, other=0.0), 0)
    loss = tl.sum(tl.load(sums + row * shares + share, mask=share < shares, other=0.0), 0)
    tl.store(totals + row, count)
    tl.store(losses + row, loss / tl.maximum(count, 1.0))


@triton.jit
def _backward(
    logits, targets, counts, d_losses, d_logits, tiles, T, N: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    at, real, target, is_target, _, e, total = _tile(logits, targets, row, tile, T, N, TILE, BLOCK, REAL)
    scale = tl.load(d_losses + row).to(REAL) / tl.maximum(tl.load(counts + row), 1.0)
    gradient = (e / total[:, None] - tl.where(is_target, 1.0, 0.0)) * scale
    tl.store(d_logits + at, tl.where((target != IGNORE)[:, None], gradient, 0.0), mask=real)
