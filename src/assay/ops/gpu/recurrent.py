"""The parts that networks with recurrent matrices share, for the two methods of computing them.

In one launch: a program runs a tile of rows of one group and head through all of time, with the matrices in shared
memory. Step by step, where they do not fit: two launches for every time step, which a CUDA graph makes cheap. The first
multiplies all states by all matrices, on all multiprocessors; the second does what is done element by element.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu import affine
from assay.ops.gpu.common import MULTIPROCESSORS, padded, precision
from assay.ops.gpu.crossovers import choice, matrix_bytes
from assay.ops.gpu.large_products import Tile, digits, multiply
from assay.ops.grouped import group_sum, weight_gradient


@triton.jit
def tile(rows, heads, ROWS: tl.constexpr):
    """The work of a program: its sequences, numbered along batch and heads; which of them exist; its matrix."""
    tiles = tl.cdiv(rows, ROWS)
    matrix = tl.program_id(0) // tiles
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)[:, None]
    sequence = (matrix // heads * rows + row).to(tl.int64) * heads + matrix % heads
    return sequence, row < rows, matrix.to(tl.int64)


@triton.jit
def load_matrix(R, D: tl.constexpr, BLOCK: tl.constexpr):
    """A matrix [D, D], with zeros around it."""
    row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    return tl.load(R + row * D + column, mask=(row < D) & (column < D), other=0.0)


@triton.jit
def matmul(x, R, addend, PRECISION: tl.constexpr):
    return tl.dot(x, R, addend, input_precision=PRECISION, out_dtype=addend.dtype)


def launch(a: Tensor, R: Tensor, h: Tensor) -> tuple[tuple[int], dict[str, Any]]:
    """The grid, and the arguments that all these kernels take by name."""
    groups, heads, _, size = R.shape
    rows, block = len(a) // groups, padded(size, 16)
    crowded = groups * heads * triton.cdiv(rows, 16) > 2 * MULTIPROCESSORS
    row_count = 32 if crowded and h.element_size() == 4 else 16  # 32 rows of float64 do not fit into registers
    settings = {
        "rows": rows,
        "heads": heads,
        "T": a.shape[2],
        "D": size,
        "ROWS": row_count,
        "BLOCK": block,
        "PRECISION": precision(a),
        "num_warps": 8 if block * row_count >= 2048 else 4,
    }
    return (groups * heads * triton.cdiv(rows, row_count),), settings


def transposed(R: Tensor, gates: int, dtype: torch.dtype) -> Tensor:
    """Every gate's matrix as [in, out], so that neighbours in memory are neighbours in the product."""
    return R.unflatten(2, (gates, -1)).mT.contiguous().to(dtype)


def weight_gradients(dz: Tensor, x: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """Those of R and b in z = R x + b."""
    if x.dtype == torch.float64:
        return weight_gradient(dz, x, len(R)), group_sum(dz.sum(2), len(R))
    return affine.weight_gradients(x, dz, R)


# -- step by step ---------------------------------------------------------------------------------------------------


def step_by_step(R: Tensor, dtype: torch.dtype) -> bool:
    """Whether a network is computed step by step; `dtype` is that of its state."""
    _, _, out, size = R.shape
    return choice("recurrence", bytes=matrix_bytes(out // size, size, dtype.itemsize)) == "step by step"


class StepProduct:
    """The product of all states with R^T, or of their gradients with R: a call multiplies what `x` holds then.

    `x` is [groups heads, rows, size]. The result is the sum over the first axis of `sums`.
    """

    def __init__(self, R: Tensor, rows: int, dtype: torch.dtype, transposed: bool) -> None:
        matrices = R.flatten(0, 1).to(dtype)
        self.R = matrices.mT if transposed else matrices  # [groups heads, out, in]
        count, out, size = self.R.shape
        self.tile, shares = _step_tile(count, rows, out, size)
        self.library = dtype == torch.float64
        self.x = R.new_zeros(count, rows, size, dtype=dtype)
        self.sums = R.new_empty(1 if self.library else shares, count, rows, out, dtype=dtype)
        if not self.library:
            self.digits = digits(matrices, transposed, self.tile)

    def __call__(self) -> None:
        if self.library:
            torch.bmm(self.x, self.R.mT, out=self.sums[0])
        else:
            multiply(self.x, self.digits, self.sums, tile=self.tile)


def _step_tile(matrices: int, rows: int, out: int, size: int) -> tuple[Tile, int]:
    """The tile of a program, and by how many programs a sum is shared, so that every multiprocessor has one."""
    tall = min(64, padded(rows, 16))
    down = matrices * triton.cdiv(rows, tall)
    columns = 64 if down * triton.cdiv(out, 64) >= MULTIPROCESSORS // 2 else 32
    shares = max(1, min(MULTIPROCESSORS // (down * triton.cdiv(out, columns)), size // 128))
    return Tile(tall, columns, 64, 4, 3), shares


def by_matrix(x: Tensor, groups: int) -> Tensor:
    """A state [batch, heads, size] as [groups heads, rows, size]."""
    return x.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)


def by_sequence(x: Tensor, heads: int) -> Tensor:
    """A state [groups heads, rows, size] as [batch, heads, size]."""
    return x.unflatten(0, (-1, heads)).transpose(1, 2).flatten(0, 1)


def step_launch(a: Tensor, R: Tensor, product: StepProduct) -> tuple[tuple[int, int], dict[str, Any]]:
    """The grid of what is done element by element, and the arguments that all these kernels take by name."""
    batch, heads, T, _ = a.shape
    size = R.shape[3]
    block = min(padded(size), 256)
    settings = {
        "rows": batch // len(R),
        "heads": heads,
        "T": T,
        "D": size,
        "BLOCK": block,
        "SHARES": len(product.sums),
        "num_warps": max(1, block // 64),
    }
    return (batch * heads, triton.cdiv(size, block)), settings


@triton.jit
def element(rows, heads, D: tl.constexpr, BLOCK: tl.constexpr):
    """The work of a program: a sequence, its place in [groups heads, rows], some columns, and which of them exist."""
    sequence = tl.program_id(0).to(tl.int64)
    batch, head = sequence // heads, sequence % heads
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    return sequence, (batch // rows * heads + head) * rows + batch % rows, column, column < D


@triton.jit
def add_product(addend, sums, place, column, present, SIZE: tl.constexpr, SHARES: tl.constexpr):
    """Add some columns of a product, which is a sum of shares."""
    for share in tl.static_range(SHARES):
        addend += tl.load(sums + (share * tl.num_programs(0) + place) * SIZE + column, mask=present, other=0.0)
    return addend
