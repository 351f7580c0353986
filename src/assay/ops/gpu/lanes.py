"""Small fast weights in the registers of one warp, without a sum across lanes for a product with a matrix.

A sequence (one row and head) has P lanes; a warp has 32 / P sequences. A vector of a sequence lies across its lanes,
one entry each. A matrix is a tuple of P such vectors: each lane holds one column of it (or one row), so a product with
a vector adds up within the lane, once that vector is spread: every lane then has all of its entries, as a tuple.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import exp, padded

LANES = 32
LARGEST = 64  # bytes of a column: above, the states and their gradients do not fit into a thread's registers


def lanes_of(state: Tensor, *sizes: int) -> int:
    """The lanes of a sequence whose vectors have these sizes; 0 if its matrices are too large."""
    lanes = padded(max(sizes))
    return lanes if lanes * state.element_size() <= LARGEST else 0


def grid(x: Tensor, lanes: int) -> tuple[int]:
    """A program is a warp."""
    return (triton.cdiv(x.shape[0] * x.shape[1] * lanes, LANES),)


@triton.jit
def sequences(count, P: tl.constexpr):
    """For each lane its sequence, whether that exists, its place in the sequence, and the sequence's first lane."""
    lane = tl.arange(0, 32)
    sequence = tl.program_id(0) * (32 // P) + lane // P
    return tl.minimum(sequence, count - 1).to(tl.int64), sequence < count, lane % P, lane - lane % P


@triton.jit
def _fold(column, HALF: tl.constexpr):
    """Tensors that each hold two of the 2 HALF entries, in a last axis of 2."""
    entries = ()
    for i in tl.static_range(HALF):
        entries = entries + (tl.join(column[i], column[i + HALF]),)
    return entries


@triton.jit
def _unfold(column, COUNT: tl.constexpr):
    """The inverse: twice as many tensors, without their last axis."""
    lower, upper = (), ()
    for i in tl.static_range(COUNT):
        first, second = tl.split(column[i])
        lower, upper = lower + (first,), upper + (second,)
    return lower + upper


@triton.jit
def load_column(pointer, stride, size, mask, P: tl.constexpr, REAL: tl.constexpr):
    """A column in each lane: `size` entries that lie `stride` apart, and zeros after them.

    One load for all: the time to compile a kernel grows with the square of its loads and stores.
    """
    i = tl.arange(0, P)[None, :]
    values = tl.load(pointer[:, None] + i * stride, mask[:, None] & (i < size), 0.0).to(REAL)
    if P == 1:
        column = (tl.reshape(values, [32]),)
    elif P == 2:
        column = _unfold((values,), 1)
    elif P == 4:
        column = _unfold(_unfold((tl.reshape(values, [32, 2, 2]),), 1), 2)
    elif P == 8:
        column = _unfold(_unfold(_unfold((tl.reshape(values, [32, 2, 2, 2]),), 1), 2), 4)
    else:
        column = _unfold(_unfold(_unfold(_unfold((tl.reshape(values, [32, 2, 2, 2, 2]),), 1), 2), 4), 8)
    return column


@triton.jit
def store_column(pointer, stride, size, column, mask, P: tl.constexpr):
    if P >= 16:
        column = _fold(column, 8)
    if P >= 8:
        column = _fold(column, 4)
    if P >= 4:
        column = _fold(column, 2)
    if P >= 2:
        column = _fold(column, 1)
    i = tl.arange(0, P)[None, :]
    tl.store(pointer[:, None] + i * stride, tl.reshape(column[0], [32, P]), mask[:, None] & (i < size))


@triton.jit
def zero_column(like, P: tl.constexpr):
    entries = ()
    for _ in tl.static_range(P):
        entries = entries + (tl.zeros_like(like),)
    return entries


@triton.jit
def spread(x, first, P: tl.constexpr):
    """All entries of a vector in every lane of its sequence."""
    entries = ()
    for i in tl.static_range(P):
        entries = entries + (tl.gather(x, first + i, 0),)
    return entries


@triton.jit
def dot(a, b, P: tl.constexpr):
    """The sum of the products of two tuples, within the lane."""
    total = a[0] * b[0]
    for i in tl.static_range(1, P):
        total += a[i] * b[i]
    return total


@triton.jit
def scale(column, factor, P: tl.constexpr):
    entries = ()
    for i in tl.static_range(P):
        entries = entries + (column[i] * factor,)
    return entries


@triton.jit
def add_scaled(column, other, factor, P: tl.constexpr):
    """column + other factor: with a spread vector, a rank-one update of a matrix."""
    entries = ()
    for i in tl.static_range(P):
        entries = entries + (column[i] + other[i] * factor,)
    return entries


@triton.jit
def across(x, P: tl.constexpr):
    """The sum of a vector, in every lane of its sequence."""
    total = tl.sum(tl.reshape(x, [32 // P, P]), 1)
    return tl.reshape(tl.broadcast_to(total[:, None], [32 // P, P]), [32])


@triton.jit
def largest(x, P: tl.constexpr):
    """The largest entry of a vector, in every lane of its sequence."""
    top = tl.max(tl.reshape(x, [32 // P, P]), 1)
    return tl.reshape(tl.broadcast_to(top[:, None], [32 // P, P]), [32])


@triton.jit
def _halve(column, place, HALF: tl.constexpr):
    """A lane keeps half of its 2 HALF entries, and gives the others to the lane that keeps those."""
    lane, upper, entries = tl.arange(0, 32), (place & HALF) != 0, ()
    for i in tl.static_range(HALF):
        own_half = tl.where(upper, column[i + HALF], column[i])
        other_half = tl.gather(tl.where(upper, column[i], column[i + HALF]), lane ^ HALF, 0)
        entries = entries + (own_half + other_half,)
    return entries


@triton.jit
def collect(column, place, P: tl.constexpr):
    """From a tuple in every lane to a vector: its entry i is the sum of all lanes' entries i."""
    if P >= 16:
        column = _halve(column, place, 8)
    if P >= 8:
        column = _halve(column, place, 4)
    if P >= 4:
        column = _halve(column, place, 2)
    if P >= 2:
        column = _halve(column, place, 1)
    return column[0]


@triton.jit
def softmax(z, real, P: tl.constexpr):
    """Over the entries of a vector that are real; zero at the others."""
    e = tl.where(real, exp(z - largest(tl.where(real, z, float("-inf")), P)), 0.0)
    return e / across(e, P)
