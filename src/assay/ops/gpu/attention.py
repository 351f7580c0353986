"""Causal softmax attention in tiles of queries and keys: no matrix of all pairs is ever in memory.

The forward pass keeps every query's largest score and its sum of exponentials relative to that, from which the backward
pass computes the weights again (from their logarithm alone, large scores would lose digits). One kernel then adds up dq along the keys, another dk and dv along the queries; where the keys are a
single tile, the second kernel finds dq as well. Tiles that lie entirely in the future are skipped.
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


def outputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """o; and every query's peak, its largest exponent of two, and the total of its powers relative to that."""
    peaks, totals = (q.new_empty(q.shape[:3], dtype=state_dtype(q.dtype)) for _ in range(2))
    return torch.empty_like(q), peaks, totals


def forward(outputs: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor) -> None:
    options = _options(q, k) | _tiles("forward", q, k)
    tiles = triton.cdiv(q.shape[2], options["QUERIES"])
    _forward[(tiles * len(q) * q.shape[1],)](q, k, v, *outputs, **options)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, ...]:
    pairs = len(q) * q.shape[1]
    dq, dk, dv, alongs = (torch.empty_like(x) for x in (q, k, v, outputs[1]))
    options = _options(q, k) | _tiles("keys", q, k)
    tiles = triton.cdiv(k.shape[2], options["KEYS"])
    if tiles > 1:
        queries = _options(q, k) | _tiles("queries", q, k)
        query_tiles = triton.cdiv(q.shape[2], queries["QUERIES"])
        _query_gradients[(query_tiles * pairs,)](q, k, v, grads[0], *outputs, alongs, dq, **queries)
    _key_gradients[(tiles * pairs,)](
        q, k, v, grads[0], *outputs, alongs, dq, dk, dv, **options, ONE_TILE=tiles == 1
    )
    return dq, dk, dv


def _options(q: Tensor, k: Tensor) -> dict[str, Any]:
    """The arguments that all kernels take by name; D is known to the compiler, so that loads are as wide as it allows."""
    time, size = q.shape[2:]
    return {
        "T": time,
        "S": k.shape[2],
        "D": size,
        "SIZE": padded(size, 16),
        "REAL": state_type(q),
        "PRECISION": precision(q),
    }


def _tiles(kernel: str, q: Tensor, k: Tensor) -> dict[str, int]:
    """Queries and keys of a tile of scores, and the launch settings."""
    size = padded(q.shape[-1], 16)
    if q.dtype == torch.float64:
        queries, keys, warps = (32, 32, 4) if size <= 32 else (16, 16, 4)
    elif size <= 32:
        queries, keys, warps = 64, 64, 4
    elif size == 64:
        queries, keys, warps = (32, 64, 4) if kernel == "keys" else (64, 32, 4)
    else:
        queries, keys, warps = {"forward": (32, 32, 4), "queries": (32, 64, 8), "keys": (32, 16, 4)}[kernel]
    return {"QUERIES": queries, "KEYS": keys, "num_warps": warps, "num_stages": 1}


@triton.jit
def _high(x):
    """Rounded to the 11 digits that the matrix units take."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def _dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b. In float32 three products of high and low parts keep its digits; a NaN stays one in its low part."""
    if PRECISION == "tf32x3":
        a_high, b_high = _high(a), _high(b)
        acc = tl.dot(a - a_high, b_high, acc, input_precision="tf32")
        acc = tl.dot(a_high, b - b_high, acc, input_precision="tf32")
        acc = tl.dot(a_high, b_high, acc, input_precision="tf32")
    else:
        acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=a.dtype)
    return acc


@triton.jit
def _scores(a, b, PRECISION: tl.constexpr):
    return _dot(a, tl.trans(b), tl.zeros([a.shape[0], b.shape[0]], a.dtype), PRECISION)


@triton.jit
def _weigh(weights, x, acc, PRECISION: tl.constexpr):
    """acc + weights x, summed in another order: the one in which the matrix units leave a product is not the one in
    which they take their next operand, and to exchange columns between threads would take longer than the product."""
    weights = weights.reshape(weights.shape[0], x.shape[0] // 8, 4, 2).trans(0, 1, 3, 2).reshape(weights.shape)
    x = x.reshape(x.shape[0] // 8, 4, 2, x.shape[1]).trans(0, 2, 1, 3).reshape(x.shape)
    return _dot(weights, x, acc, PRECISION)


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
    """A program's row and head and its first query; the keys that all its queries see, in whole tiles, and that some do.

    The tiles that see the most come first.
    """
    tiles = tl.cdiv(T, QUERIES)
    first = (tiles - 1 - tl.program_id(0) % tiles) * QUERIES
    seen_by_all = (S - T + first + 1) // KEYS * KEYS
    return (tl.program_id(0) // tiles).to(tl.int64), first, seen_by_all, tl.minimum(S - T + first + QUERIES, S)


@triton.jit
def _attend(
    q, k, v, acc, largest, total, query, key, S, SCALE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Add a tile of keys to the weighted sum of values; the weights are relative to that of the largest score."""
    scores = _scores(q, k, PRECISION)
    if MASKED:
        scores = tl.where(key[None, :] <= query[:, None], scores, float("-inf"))
    now = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp2(scores * SCALE - (now * SCALE)[:, None])
    shrink = tl.exp2((largest - now) * SCALE)
    acc = _weigh(weights, v, acc * shrink[:, None], PRECISION)
    return acc, now, total * shrink + tl.sum(weights, 1)


@triton.jit
def _forward(
    q_in, k_in, v_in, o_out, peaks, totals, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pair, first, seen_by_all, seen = _query_tile(T, S, QUERIES, KEYS)
    t, s = first + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    query = S - T + t  # its place among the keys
    k_in += pair * S * D
    v_in += pair * S * D
    SCALE: tl.constexpr = D**-0.5 * LOG2_E
    q = _load(q_in + pair * T * D, t, T, D, SIZE, REAL)
    acc = tl.zeros([QUERIES, SIZE], REAL)
    largest, total = tl.full([QUERIES], float("-inf"), REAL), tl.zeros([QUERIES], REAL)
    for start in range(0, seen_by_all, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        acc, largest, total = _attend(q, k, v, acc, largest, total, query, start + s, S, SCALE, False, PRECISION)
    for start in range(seen_by_all, seen, KEYS):
        k, v = _load(k_in, start + s, S, D, SIZE, REAL), _load(v_in, start + s, S, D, SIZE, REAL)
        acc, largest, total = _attend(q, k, v, acc, largest, total, query, start + s, S, SCALE, True, PRECISION)
    _store(o_out + pair * T * D, t, T, acc / total[:, None], D, SIZE)
    tl.store(peaks + pair * T + t, largest * SCALE, mask=t < T)
    tl.store(totals + pair * T + t, total, mask=t < T)


@triton.jit
def _load_gradients(do_in, totals, t, T, D: tl.constexpr, SIZE: tl.constexpr, REAL: tl.constexpr):
    """Output gradients divided by the totals, which would otherwise divide every weight."""
    total = tl.load(totals + t, mask=t < T, other=1.0)
    return _load(do_in, t, T, D, SIZE, REAL) / total[:, None]


@triton.jit
def _score_gradients(
    a, b, da, db, peak, along, seen, SCALE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """The weights of a tile before they are divided, and the gradients of its scores before their scale.

    a and da are q and do, and b and db are k and v; or the other way round, for the transposed tile.
    """
    weights = tl.exp2(_scores(a, b, PRECISION) * SCALE - peak)
    if MASKED:
        weights = tl.where(seen, weights, 0.0)
    return weights, weights * (_scores(da, db, PRECISION) - along)


@triton.jit
def _add_keys(
    dq, q, do, k_in, v_in, peak, along, query, start, S, D: tl.constexpr, SIZE: tl.constexpr, KEYS: tl.constexpr,
    REAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The share of some keys in dq."""
    key = start + tl.arange(0, KEYS)
    k, v = _load(k_in, key, S, D, SIZE, REAL), _load(v_in, key, S, D, SIZE, REAL)
    causal = key[None, :] <= query
    _, slope = _score_gradients(q, k, do, v, peak, along, causal, D**-0.5 * LOG2_E, MASKED, PRECISION)
    return _weigh(slope, k, dq, PRECISION)


@triton.jit
def _query_gradients(
    q_in, k_in, v_in, do_in, o_in, peaks, totals, alongs, dq_out, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dq of a tile of queries; and o . do, which the other kernel takes from here."""
    pair, first, seen_by_all, seen = _query_tile(T, S, QUERIES, KEYS)
    t = first + tl.arange(0, QUERIES)
    query = (S - T + t)[:, None]
    k_in += pair * S * D
    v_in += pair * S * D
    q = _load(q_in + pair * T * D, t, T, D, SIZE, REAL)
    do = _load_gradients(do_in + pair * T * D, totals + pair * T, t, T, D, SIZE, REAL)
    along = tl.sum(do * _load(o_in + pair * T * D, t, T, D, SIZE, REAL), 1)
    tl.store(alongs + pair * T + t, along, mask=t < T)
    along, peak = along[:, None], tl.load(peaks + pair * T + t, mask=t < T, other=0.0)[:, None]
    dq = tl.zeros([QUERIES, SIZE], REAL)
    for start in range(0, seen_by_all, KEYS):
        dq = _add_keys(dq, q, do, k_in, v_in, peak, along, query, start, S, D, SIZE, KEYS, REAL, False, PRECISION)
    for start in range(seen_by_all, seen, KEYS):
        dq = _add_keys(dq, q, do, k_in, v_in, peak, along, query, start, S, D, SIZE, KEYS, REAL, True, PRECISION)
    _store(dq_out + pair * T * D, t, T, dq * D**-0.5, D, SIZE)


@triton.jit
def _add_queries(
    dk, dv, k, v, q_in, do_in, o_in, peaks, totals, alongs, dq_out, start, key, T, S, D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, REAL: tl.constexpr, ONE_TILE: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The share of some queries in dk and dv; the tile of scores is transposed, as the products need it."""
    t = start + tl.arange(0, QUERIES)
    q, do = _load(q_in, t, T, D, SIZE, REAL), _load_gradients(do_in, totals, t, T, D, SIZE, REAL)
    if ONE_TILE:
        along = tl.sum(do * _load(o_in, t, T, D, SIZE, REAL), 1)
    else:
        along = tl.load(alongs + t, mask=t < T, other=0.0)
    peak = tl.load(peaks + t, mask=t < T, other=0.0)[None, :]
    causal = key[:, None] <= (S - T + t)[None, :]
    SCALE: tl.constexpr = D**-0.5 * LOG2_E
    weights, slope = _score_gradients(k, q, v, do, peak, along[None, :], causal, SCALE, MASKED, PRECISION)
    if ONE_TILE:
        dq = _dot(tl.trans(slope), k, tl.zeros([QUERIES, SIZE], REAL), PRECISION)
        _store(dq_out, t, T, dq * D**-0.5, D, SIZE)
    dk = _weigh(slope, q, dk, PRECISION)
    return dk, _weigh(weights, do, dv, PRECISION)


@triton.jit
def _key_gradients(
    q_in, k_in, v_in, do_in, o_in, peaks, totals, alongs, dq_out, dk_out, dv_out, T, S,
    D: tl.constexpr, SIZE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, REAL: tl.constexpr, PRECISION: tl.constexpr, ONE_TILE: tl.constexpr,
):  # fmt: skip
    """dk and dv of a tile of keys; if that is ONE_TILE of all keys, dq as well."""
    tiles = tl.cdiv(S, KEYS)
    pair, first = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * KEYS
    key = first + tl.arange(0, KEYS)
    q_in += pair * T * D
    o_in += pair * T * D
    do_in += pair * T * D
    dq_out += pair * T * D
    peaks += pair * T
    totals += pair * T
    alongs += pair * T
    k, v = _load(k_in + pair * S * D, key, S, D, SIZE, REAL), _load(v_in + pair * S * D, key, S, D, SIZE, REAL)
    dk, dv = tl.zeros([KEYS, SIZE], REAL), tl.zeros([KEYS, SIZE], REAL)
    earliest = tl.maximum(first - (S - T), 0) // QUERIES * QUERIES  # no query before sees a key of the tile
    sees_all = tl.minimum(tl.cdiv(tl.maximum(first + KEYS - 1 - (S - T), 0), QUERIES) * QUERIES, T)
    for start in range(earliest, sees_all, QUERIES):
        dk, dv = _add_queries(
            dk, dv, k, v, q_in, do_in, o_in, peaks, totals, alongs, dq_out, start, key, T, S,
            D, SIZE, QUERIES, REAL, ONE_TILE, True, PRECISION,
        )  # fmt: skip
    for start in range(sees_all, T, QUERIES):
        dk, dv = _add_queries(
            dk, dv, k, v, q_in, do_in, o_in, peaks, totals, alongs, dq_out, start, key, T, S,
            D, SIZE, QUERIES, REAL, ONE_TILE, False, PRECISION,
        )  # fmt: skip
    _store(dk_out + pair * S * D, key, S, dk * D**-0.5, D, SIZE)
    _store(dv_out + pair * S * D, key, S, dv, D, SIZE)
