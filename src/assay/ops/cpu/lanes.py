"""Blocks of sixteen rows side by side: rows of one head, and of one group where they share a weight. Lane is the last
axis of every array in a block.

A matrix W [n, m] of a block is n m vectors; a weight R [out, in] that the rows share stays as it is.
"""

from __future__ import annotations

from math import isqrt

from torch import Tensor

from assay.ops.cpu.functions import exp
from assay.ops.cpu.jit import inline
from assay.ops.cpu.scratch import DEBUG, LANES
from assay.ops.cpu.vector import COLUMNS, larger, load, load_columns, store, store_columns, zero

CACHED = 2**19  # bytes of states that the backward pass holds at once: about half of a core's cache


def block_count(rows: int, groups: int, heads: int) -> int:
    """How many blocks a batch of rows has, over all groups and heads."""
    return groups * heads * -(-(rows // groups) // LANES)


def history(like: Tensor, blocks: int, *shape: int) -> Tensor:
    """Uninitialised [blocks, *shape, lanes]."""
    return like.new_empty((blocks, *shape, LANES))


def segment_length(time: int, state: int, like: Tensor) -> int:
    """The steps between two saved states; the backward pass computes the states between them again."""
    fitting = CACHED // (state * LANES * like.element_size())
    return min(time, max(8, isqrt(time), fitting))


@inline
def rows_of_block(block, rows, groups, heads):
    """The group and head of a block, its first row, and its number of rows."""
    per_group = rows // groups
    per_head = (per_group + LANES - 1) // LANES
    group, rest = divmod(block, heads * per_head)
    head, part = divmod(rest, per_head)
    first = group * per_group + part * LANES
    return group, head, first, min(LANES, (group + 1) * per_group - first)


@inline
def take(area, start, count):
    """The vectors of an area from a first one on."""
    if DEBUG and (start < 0 or (start + count) * LANES > len(area)):
        raise IndexError("vectors are taken outside of their area")
    return area[start * LANES : (start + count) * LANES]


# -- between rows and lanes ----------------------------------------------------------------------------------------


@inline
def gather(x, first, count, head, t, into):
    """into[i, lane] = x[first + lane, head, t, i]; lanes without a row get zeros."""
    start, stride, tiled = _tiles(x, first, count, head, t)
    for i in range(0, tiled, COLUMNS):
        _store_four(into, i, *load_columns(x, start + i, stride))
    for lane in range(LANES):
        for i in range(tiled, x.shape[3]):
            into[i * LANES + lane] = x[first + lane, head, t, i] if lane < count else 0


@inline
def scatter(out, first, count, head, t, x):
    """x[first + lane, head, t, i] = out[i, lane], for the lanes that have a row."""
    start, stride, tiled = _tiles(x, first, count, head, t)
    for i in range(0, tiled, COLUMNS):
        store_columns(x, start + i, stride, (load(out, i), load(out, i + 1), load(out, i + 2), load(out, i + 3)))
    for lane in range(count):
        for i in range(tiled, x.shape[3]):
            x[first + lane, head, t, i] = out[i * LANES + lane]


@inline
def _tiles(x, first, count, head, t):
    """Where a moment of the first row begins, how far rows are apart, and how many columns are moved by fours."""
    _, H, T, D = x.shape
    return ((first * H + head) * T + t) * D, H * T * D, D - D % COLUMNS if count == LANES else 0


@inline
def gather_matrix(x, first, count, head, into):
    """into[i, c, lane] = x[first + lane, head, i, c]; lanes without a row get zeros."""
    n, m = x.shape[2], x.shape[3]
    for i in range(n):
        gather(x, first, count, head, i, take(into, i * m, m))


@inline
def scatter_matrix(out, first, count, head, x):
    """x[first + lane, head, i, c] = out[i, c, lane]."""
    n, m = x.shape[2], x.shape[3]
    for i in range(n):
        scatter(take(out, i * m, m), first, count, head, i, x)


@inline
def copy(x, into):
    for i in range(len(into) // LANES):
        store(into, i, load(x, i))


# -- products ------------------------------------------------------------------------------------------------------


@inline
def times_matrix(x, W, out, n, m):
    """out = x W, for W [n, m]; four of its columns at a time, whose sums stay in registers."""
    tiled = m - m % 4
    for j in range(0, tiled, 4):
        a = b = c = d = zero(W)
        for i in range(n):
            x_i, w = load(x, i), i * m + j
            a, b = a + x_i * load(W, w), b + x_i * load(W, w + 1)
            c, d = c + x_i * load(W, w + 2), d + x_i * load(W, w + 3)
        _store_four(out, j, a, b, c, d)
    for j in range(tiled, m):
        a = zero(W)
        for i in range(n):
            a = a + load(x, i) * load(W, i * m + j)
        store(out, j, a)


@inline
def write_and_read(k, u, W, x, out, n, m):
    """W += k u^T, then out = x W, for W [n, m], which is moved once."""
    tiled = m - m % 4
    for j in range(0, tiled, 4):
        u_0, u_1, u_2, u_3 = load(u, j), load(u, j + 1), load(u, j + 2), load(u, j + 3)
        a = b = c = d = zero(W)
        for i in range(n):
            k_i, x_i, w = load(k, i), load(x, i), i * m + j
            w_0, w_1 = load(W, w) + k_i * u_0, load(W, w + 1) + k_i * u_1
            w_2, w_3 = load(W, w + 2) + k_i * u_2, load(W, w + 3) + k_i * u_3
            _store_four(W, w, w_0, w_1, w_2, w_3)
            a, b, c, d = a + x_i * w_0, b + x_i * w_1, c + x_i * w_2, d + x_i * w_3
        _store_four(out, j, a, b, c, d)
    for j in range(tiled, m):
        a = zero(W)
        for i in range(n):
            w_0 = load(W, i * m + j) + load(k, i) * load(u, j)
            store(W, i * m + j, w_0)
            a = a + load(x, i) * w_0
        store(out, j, a)


@inline
def write_and_read_rows(k, u, W, x, out, n, m):
    """W += k u^T, then out = W x, for W [n, m], which is moved once."""
    for i in range(n):
        k_i, even, odd = load(k, i), zero(W), zero(W)
        for j in range(0, m - 1, 2):
            w, w_1 = load(W, i * m + j) + k_i * load(u, j), load(W, i * m + j + 1) + k_i * load(u, j + 1)
            store(W, i * m + j, w)
            store(W, i * m + j + 1, w_1)
            even, odd = even + w * load(x, j), odd + w_1 * load(x, j + 1)
        if m % 2:
            w = load(W, i * m + m - 1) + k_i * load(u, m - 1)
            store(W, i * m + m - 1, w)
            even = even + w * load(x, m - 1)
        store(out, i, even + odd)


@inline
def _store_four(x, n, a, b, c, d):
    store(x, n, a)
    store(x, n + 1, b)
    store(x, n + 2, c)
    store(x, n + 3, d)


@inline
def matrix_times(W, x, out, n, m):
    """out = W x, for W [n, m]."""
    for i in range(n):
        even, odd = load(W, i * m) * load(x, 0), zero(W)
        for c in range(1, m - 1, 2):
            odd = odd + load(W, i * m + c) * load(x, c)
            even = even + load(W, i * m + c + 1) * load(x, c + 1)
        if m % 2 == 0:
            odd = odd + load(W, i * m + m - 1) * load(x, m - 1)
        store(out, i, even + odd)


@inline
def add_outer(a, b, W, n, m):
    """W += a b^T, for W [n, m]."""
    add_outer_into(W, a, b, W, n, m)


@inline
def add_outer_into(W, a, b, into, n, m):
    """into = W + a b^T, for W [n, m]."""
    for i in range(n):
        a_i = load(a, i)
        for c in range(m):
            store(into, i * m + c, load(W, i * m + c) + a_i * load(b, c))


@inline
def add_two_outers(a, b, c, d, W, n, m):
    """W += a b^T + c d^T, for W [n, m], which is moved once."""
    for i in range(n):
        a_i, c_i = load(a, i), load(c, i)
        for j in range(m):
            store(W, i * m + j, load(W, i * m + j) + a_i * load(b, j) + c_i * load(d, j))


@inline
def weigh(R, x, out):
    """out += R x, with one R [out, in] for all lanes; four of its rows at a time, to read x a quarter as often."""
    blocked = R.shape[0] - R.shape[0] % 4
    for j in range(0, blocked, 4):
        a, b, c, d = load(out, j), load(out, j + 1), load(out, j + 2), load(out, j + 3)
        for i in range(R.shape[1]):
            x_i = load(x, i)
            a, b, c, d = a + R[j, i] * x_i, b + R[j + 1, i] * x_i, c + R[j + 2, i] * x_i, d + R[j + 3, i] * x_i
        _store_four(out, j, a, b, c, d)
    for j in range(blocked, R.shape[0]):
        a = load(out, j)
        for i in range(R.shape[1]):
            a = a + R[j, i] * load(x, i)
        store(out, j, a)


# -- softmax -------------------------------------------------------------------------------------------------------


@inline
def softmax(z, out, n):
    """out = softmax(z) over n vectors."""
    top = load(z, 0)
    for i in range(1, n):
        top = larger(top, load(z, i))
    total = zero(z)
    for i in range(n):
        e = exp(load(z, i) - top)
        total = total + e
        store(out, i, e)
    for i in range(n):
        store(out, i, load(out, i) / total)


@inline
def softmax_back(p, dp, dz, n):
    """dz = p (dp - p . dp)."""
    dot = load(p, 0) * load(dp, 0)
    for i in range(1, n):
        dot = dot + load(p, i) * load(dp, i)
    for i in range(n):
        store(dz, i, load(p, i) * (load(dp, i) - dot))
