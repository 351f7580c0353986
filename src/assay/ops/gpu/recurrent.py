"""The parts that networks with recurrent matrices share: tiles of rows, and products with the matrix of a gate.

A program runs a tile of rows of one group and head through all of time. Small matrices stay in shared memory. Large
ones stream from the cache at every step, some rows at a time; the vectors that they multiply go through global
memory then, because a part of a tile cannot be taken from registers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, padded, precision


@triton.jit
def tile(rows, heads, ROWS: tl.constexpr):
    """The work of a program: its sequences, numbered along batch and heads; which of them exist; its matrix."""
    tiles = tl.cdiv(rows, ROWS)
    matrix = tl.program_id(0) // tiles
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)[:, None]
    sequence = (matrix // heads * rows + row).to(tl.int64) * heads + matrix % heads
    return sequence, row < rows, matrix.to(tl.int64)


@triton.jit
def load_rows(R, start, end, D: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a matrix with D columns, zeros from its end on."""
    row, column = start + tl.arange(0, COUNT)[:, None], tl.arange(0, BLOCK)[None, :]
    return tl.load(R + row * D + column, mask=(row < end) & (column < D), other=0.0)


@triton.jit
def matmul(x, R, addend, PRECISION: tl.constexpr):
    return tl.dot(x, R, addend, input_precision=PRECISION, out_dtype=addend.dtype)


@triton.jit
def stream(
    x,
    R,
    addend,
    sequence,
    present,
    SIZE: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    STREAM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """x R + addend with x [sequences, SIZE] and R [SIZE, D] in memory."""
    for start in tl.range(0, SIZE, STREAM, num_stages=3):
        column = start + tl.arange(0, STREAM)[None, :]
        part = tl.load(x + sequence * SIZE + column, mask=present & (column < SIZE), other=0.0)
        addend = matmul(part, load_rows(R, start, SIZE, D, STREAM, BLOCK), addend, PRECISION)
    return addend


def launch(a: Tensor, R: Tensor, h: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the arguments that all these kernels take by name."""
    groups, heads, _, size = R.shape
    rows, block, wide = len(a) // groups, padded(size, 16), h.element_size()
    crowded = groups * heads * triton.cdiv(rows, 16) > 2 * MULTIPROCESSORS
    taken = 32 if crowded and wide == 4 else 16  # 32 rows of float64 do not fit into registers
    settings = {
        "rows": rows,
        "heads": heads,
        "T": a.shape[2],
        "D": size,
        "ROWS": taken,
        "BLOCK": block,
        "STREAM": 0 if block * wide <= 256 else 128 // wide,
        "PRECISION": precision(a),
        "num_warps": 8 if block * taken >= 2048 else 4,
    }
    return (groups * heads * triton.cdiv(rows, taken),), settings


def transposed(R: Tensor, gates: int, dtype: torch.dtype) -> Tensor:
    """Every gate's matrix as [in, out], so that neighbours in memory are neighbours in the product."""
    return R.unflatten(2, (gates, -1)).mT.contiguous().to(dtype)
