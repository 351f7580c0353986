"""Causal softmax attention in tiles of queries and keys: no matrix of all pairs is ever in memory.

The forward pass keeps every query's largest score and its weight, from which the backward pass computes the weights
again (from the logarithm of their sum alone, large scores would lose digits). One kernel then adds up dq along the
keys, another dk and dv along the queries. Tiles that lie entirely in the future are skipped; those that all queries of
a tile see need no mask.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import padded, precision, state_type
from assay.ops.operator import state_dtype

LOG2_E = tl.constexpr(math.log2(math.e))
# By head size: queries and keys of a tile, warps, and registers of a thread, as they were fastest on an H200. Small
# tiles win, in few registers: then more programs run at once, and hide each other's waits.
TILES = {
    16: {"forward": (64, 32, 4, 128), "queries": (64, 32, 4, 128), "keys": (32, 64, 4, 128)},
    32: {"forward": (64, 32, 4, 128), "queries": (64, 32, 4, 128), "keys": (32, 64, 4, 168)},
    64: {"forward": (64, 64, 4, 255), "queries": (64, 32, 4, 255), "keys": (32, 64, 4, 255)},
    128: {"forward": (32, 32, 4, 255), "queries": (32, 64, 8, 255), "keys": (32, 16, 4, 255)},
}


def outputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """o; and every query's peak, its largest score as an exponent of two, and the weight of that score."""
    peaks, tops = (q.new_empty(q.shape[:3], dtype=state_dtype(q.dtype)) for _ in range(2))
    return torch.empty_like(q), peaks, tops


def forward(outputs: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> None:
    options = _options("forward", q, k)
    _forward[_programs(q, options["QUERIES"])](q, k, v, *outputs, **options)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    dq, dk, dv, alongs = (torch.empty_like(x) for x in (q, k, v, outputs[1]))
    options = _options("queries", q, k)
    _query_gradients[_programs(q, options["QUERIES"])](q, k, v, grads[0], *outputs, alongs, dq, **options)
    options = _options("keys", q, k)
    _key_gradients[_programs(k, options["KEYS"])](q, k, v, grads[0], *outputs[1:], alongs, dk, dv, **options)
    return dq, dk, dv


def _programs(x: Tensor, positions: int) -> tuple[int]:
    """One for each tile of so many positions."""
    return (x.shape[0] * x.shape[1] * triton.cdiv(x.shape[2], positions),)


def _options(kernel: str, q: Tensor, k: Tensor) -> dict[str, Any]:
    """The arguments that a kernel takes by name. The compiler knows D, so that loads are as wide as D allows."""
    time, size = q.shape[2:]
    sizes = {"T": time, "S": k.shape[2], "D": size, "SIZE": padded(size, 16)}
    return sizes | {"REAL": state_type(q), "PRECISION": precision(q)} | _tiles(kernel, q)


def _tiles(kernel: str, q: Tensor) -> dict[str, int]:
    """Queries and keys of a tile, and the launch settings."""
    size = padded(q.shape[-1], 16)
    if q.dtype == torch.float64:
        queries, keys, warps, registers = (32, 32, 4, 255) if size <= 32 else (16, 16, 4, 255)
    else:
        queries, keys, warps, registers = TILES[size][kernel]
    limit = {"maxnreg": registers} if registers < 255 else {}
    return {"QUERIES": queries, "KEYS": keys, "num_warps": warps, "num_stages": 1} | limit


@triton.jit
def _high(x):
    """Rounded to the 11 digits that the matrix units take: they would cut off the others."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    """a b. With tf32x3, products of high and low parts keep the digits of float32; a NaN stays one in its low part.

    Sums of such products belong outside: the matrix units round towards zero, which would add up.
    """
    if PRECISION == "ieee":
        product = tl.dot(a, b, input_precision="ieee", out_dtype=a.dtype)
    else:
        a_high, b_high = _high(a), _high(b)
        if PRECISION == "tf32x3":
            product = tl.dot(a - a_high, b_high, input_precision="tf32")
            product = tl.dot(a_high, b - b_high, product, input_precision="tf32")
            product = tl.dot(a_high, b_high, product, input_precision="tf32")
        else:
            product = tl.dot(a_high, b_high, input_precision="tf32")
    return product


@triton.jit
def _weigh(weights, x, PRECISION: tl.constexpr):
    """weights x, summed in another order: the one in which the matrix units leave a product is not the one in which
    they take their next operand, and to exchange columns between threads would take longer than the product."""
    weights = weights.reshape(weights.shape[0], x.shape[0] // 8, 4, 2).trans(0, 1, 3, 2).reshape(weights.shape)
    x = x.reshape(x.shape[0] // 8, 4, 2, x.shape[1]).trans(0, 2, 1, 3).reshape(x.shape)
    return _dot(weights, x, PRECISION)


@triton.jit
def _load(x, position, count, D: tl.constexpr, SIZE: tl.constexpr, REAL: tl.constexpr):
    """Some positions of a sequence [count, D] as [positions, SIZE], zero outside of it."""
    column = tl.arange(0, SIZE)
    mask = (position < count)[:, None] & (column < D)[None, :]
    return tl.load(x + position[:, None] * D + column[None, :], mask=mask, other=0.0).to(REAL)


@triton.jit
def _store(x, position, count, values, D: tl.constexpr, SIZE: tl.constexpr):
    column = tl.arange(0, SIZE)
    mask = (position < count)[:, None] & (column < D)[None, :]
    tl.store(x + position[:, None] * D + column[None, :], values, mask=mask)


@triton.jit
def _query_tile(T, S, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """A program's row and head, and its first query; how many keys all its queries see (in whole tiles), and some do.

    The tiles that see the most come first.
    """
    tiles = tl.cdiv(T, QUERIES)
    first = (tiles - 1 - tl.program_id(0) % tiles) * QUERIES
    seen_by_all = (S - T + first + 1) // KEYS * KEYS
    return (tl.program_id(0) // tiles).to(tl.int64), first, seen_by_all, tl.minimum(S - T + first + QUERIES, S)


# -- forward -------------------------------------------------------------------------------------------------------


@triton.jit
def _attend(
    q, k, v, o, largest, total, query, key, SCALE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Add a tile of keys to the weighted sum of values; the weights are relative to that of the largest score."""
    scores = _dot(q, tl.trans(k), PRECISION)
    if MASKED:
        scores = tl.where(key[None, :] <= query[:, None], scores, float("-inf"))
    now = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp2(scores * SCALE - (now * SCALE)[:, None])
    shrink = tl.exp2((largest - now) * SCALE)
    o = o * shrink[:, None] + _weigh(weights, v, PRECISION)
    return o, now, total * shrink + tl.sum(weights, 1)


@triton.jit
def _forward(
    q_in, k_in, v_in, o_out, peaks, tops, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, first, seen_by_all, seen = _query_tile(T, S, QUERIES, KEYS)
    t, s = first + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    query = S - T + t  # its place among the keys
    k_in += pair * S * D
    v_in += pair * S * D
    SCALE: tl.constexpr = D**-0.5 * LOG2_E
    q = _load(q_in + pair * T * D, t, T, D, SIZE, REAL)
    o = tl.zeros([QUERIES, SIZE], REAL)
    largest, total = tl.full([QUERIES], float("-inf"), REAL), tl.zeros([QUERIES], REAL)
    for start in range(0, seen_by_all, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        o, largest, total = _attend(q, k, v, o, largest, total, query, start + s, SCALE, False, PRECISION)
    for start in range(seen_by_all, seen, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        o, largest, total = _attend(q, k, v, o, largest, total, query, start + s, SCALE, True, PRECISION)
    top = 1.0 / total
    _store(o_out + pair * T * D, t, T, o * top[:, None], D, SIZE)
    tl.store(peaks + pair * T + t, largest * SCALE, mask=t < T)
    tl.store(tops + pair * T + t, top, mask=t < T)


# -- backward ------------------------------------------------------------------------------------------------------


@triton.jit
def _load_gradients(do_in, tops, t, T, D: tl.constexpr, SIZE: tl.constexpr, REAL: tl.constexpr):
    """Output gradients times the weight of the largest score, which every other weight is relative to."""
    return _load(do_in, t, T, D, SIZE, REAL) * tl.load(tops + t, mask=t < T, other=0.0)[:, None]


@triton.jit
def _score_gradients(
    a, b, da, db, peak, along, seen, SCALE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """The weights of a tile relative to the largest, and the gradients of its scores before their scale.

    a and da are q and do, and b and db are k and v; or the other way round, for the transposed tile.
    """
    weights = tl.exp2(_dot(a, tl.trans(b), PRECISION) * SCALE - peak)
    if MASKED:
        weights = tl.where(seen, weights, 0.0)
    return weights, weights * (_dot(da, tl.trans(db), PRECISION) - along)


@triton.jit
def _query_gradients(
    q_in, k_in, v_in, do_in, o_in, peaks, tops, alongs, dq_out, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of a tile of queries; and o . do, which the other kernel takes from here."""
    pair, first, seen_by_all, seen = _query_tile(T, S, QUERIES, KEYS)
    t, s = first + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    query = (S - T + t)[:, None]
    k_in += pair * S * D
    v_in += pair * S * D
    at = pair * T
    SCALE: tl.constexpr = D**-0.5 * LOG2_E
    q, do = _load(q_in + at * D, t, T, D, SIZE, REAL), _load_gradients(do_in + at * D, tops + at, t, T, D, SIZE, REAL)
    along = tl.sum(do * _load(o_in + at * D, t, T, D, SIZE, REAL), 1)
    tl.store(alongs + at + t, along, mask=t < T)
    peak, along = tl.load(peaks + at + t, mask=t < T, other=0.0)[:, None], along[:, None]
    dq = tl.zeros([QUERIES, SIZE], REAL)
    for start in range(0, seen_by_all, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        _, slope = _score_gradients(q, k, do, v, peak, along, query, SCALE, False, PRECISION)
        dq += _weigh(slope, k, PRECISION)
    for start in range(seen_by_all, seen, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        causal = (start + s)[None, :] <= query
        _, slope = _score_gradients(q, k, do, v, peak, along, causal, SCALE, True, PRECISION)
        dq += _weigh(slope, k, PRECISION)
    _store(dq_out + at * D, t, T, dq * D**-0.5, D, SIZE)


@triton.jit
def _key_gradients(
    q_in, k_in, v_in, do_in, peaks, tops, alongs, dk_out, dv_out, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dk and dv of a tile of keys; the tiles of scores are transposed, as the products need them."""
    tiles, past = tl.cdiv(S, KEYS), S - T
    pair, first = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * KEYS
    s, i = first + tl.arange(0, KEYS), tl.arange(0, QUERIES)
    q_in += pair * T * D
    do_in += pair * T * D
    peaks += pair * T
    tops += pair * T
    alongs += pair * T
    SCALE: tl.constexpr = D**-0.5 * LOG2_E
    k, v = _load(k_in + pair * S * D, s, S, D, SIZE, REAL), _load(v_in + pair * S * D, s, S, D, SIZE, REAL)
    dk, dv = tl.zeros([KEYS, SIZE], REAL), tl.zeros([KEYS, SIZE], REAL)
    earliest = tl.maximum(first - past, 0) // QUERIES * QUERIES  # no query before sees a key of the tile
    sees_all = tl.minimum(tl.cdiv(tl.maximum(first + KEYS - 1 - past, 0), QUERIES) * QUERIES, T)
    for start in range(earliest, sees_all, QUERIES):
        t = start + i
        q, do = _load(q_in, t, T, D, SIZE, REAL), _load_gradients(do_in, tops, t, T, D, SIZE, REAL)
        peak = tl.load(peaks + t, mask=t < T, other=0.0)[None, :]
        along = tl.load(alongs + t, mask=t < T, other=0.0)[None, :]
        causal = s[:, None] <= (past + t)[None, :]
        weights, slope = _score_gradients(k, q, v, do, peak, along, causal, SCALE, True, PRECISION)
        dk += _weigh(slope, q, PRECISION)
        dv += _weigh(weights, do, PRECISION)
    for start in range(sees_all, T, QUERIES):
        t = start + i
        q, do = _load(q_in, t, T, D, SIZE, REAL), _load_gradients(do_in, tops, t, T, D, SIZE, REAL)
        peak = tl.load(peaks + t, mask=t < T, other=0.0)[None, :]
        along = tl.load(alongs + t, mask=t < T, other=0.0)[None, :]
        weights, slope = _score_gradients(k, q, v, do, peak, along, along, SCALE, False, PRECISION)
        dk += _weigh(slope, q, PRECISION)
        dv += _weigh(weights, do, PRECISION)
    _store(dk_out + pair * S * D, s, S, dk * D**-0.5, D, SIZE)
    _store(dv_out + pair * S * D, s, S, dv, D, SIZE)
