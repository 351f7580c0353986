"""From a projection [batch, time, 3 width (+ heads)] to q, k, v (and beta) of every head, with the feature map.

A program takes a tile of positions of one head, and its neighbours the other heads, with which it shares lines of z.
The backward pass computes the features again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import exp, padded, sigmoid, state_type

TILE_ENTRIES = 1024  # of one of q, k and v
SMALLEST = tl.constexpr(1e-12)  # length, as torch.nn.functional.normalize has it


def outputs_of(z: Tensor, heads: int, gated: bool) -> tuple[Tensor, ...]:
    batch, time, size = z.shape
    dim = (size - gated * heads) // (3 * heads)
    rates = [z.new_empty(batch, heads, time)] if gated else []
    return *(z.new_empty(batch, heads, time, dim) for _ in range(3)), *rates


def split(outputs: Sequence[Tensor], z: Tensor, features: str, sigmoid: bool) -> None:
    q, k, v = outputs[:3]
    beta = outputs[3] if len(outputs) > 3 else None
    grid, options = _settings(z, q, beta is not None)
    _split[grid](z, q, k, v, beta, FEATURES=features, SIGMOID=sigmoid, **options)


def join(outputs: Sequence[Tensor], grads: Sequence[Tensor | None], z: Tensor, features: str, sigmoid: bool) -> Tensor:
    """The gradient of z from those of the outputs, of which some may be None."""
    dz, gated = torch.empty_like(z), len(outputs) == 4
    grid, options = _settings(z, outputs[0], gated)
    dq, dk, dv = grads[:3]
    dbeta = grads[3] if gated else None
    _join[grid](z, dq, dk, dv, dbeta, dz, FEATURES=features, SIGMOID=sigmoid, GATED=gated, **options)
    return dz


def _settings(z: Tensor, q: Tensor, gated: bool) -> tuple[tuple[int], dict[str, Any]]:
    batch, heads, time, dim = q.shape
    block = padded(dim)
    tile = max(1, min(padded(batch * time), TILE_ENTRIES // block))
    sizes = {"count": batch * time, "T": time, "SIZE": z.shape[-1], "H": heads, "D": dim, "TILE": tile, "BLOCK": block}
    return (heads * triton.cdiv(batch * time, tile),), sizes | {"REAL": state_type(z), "num_warps": 8}


@triton.jit
def _features(z, real, FEATURES: tl.constexpr):
    """The features of every row of z, and what their gradient needs besides: the divisor."""
    divisor = tl.zeros([z.shape[0]], z.dtype) + 1.0
    f = z
    if FEATURES == "elu" or FEATURES == "elu-sum":
        f = tl.where(z > 0.0, z + 1.0, exp(tl.minimum(z, 0.0)))
    if FEATURES == "elu-sum":
        divisor = tl.sum(tl.where(real, f, 0.0), 1)
    elif FEATURES == "softmax":
        f = exp(z - tl.max(tl.where(real, z, float("-inf")), 1)[:, None])
        divisor = tl.sum(tl.where(real, f, 0.0), 1)
    elif FEATURES == "unit":
        divisor = tl.maximum(tl.sqrt(tl.sum(tl.where(real, z * z, 0.0), 1)), SMALLEST)
    return f / divisor[:, None], divisor


@triton.jit
def _feature_gradient(z, d, real, FEATURES: tl.constexpr):
    if FEATURES != "identity":
        f, divisor = _features(z, real, FEATURES)
        if FEATURES != "elu":
            along = tl.sum(tl.where(real, d * f, 0.0), 1)
            if FEATURES == "unit":
                d -= f * tl.where(divisor > SMALLEST, along, 0.0)[:, None]
            else:
                d -= along[:, None]
        if FEATURES == "softmax":
            d *= f
        else:
            d /= divisor[:, None]
        if FEATURES == "elu" or FEATURES == "elu-sum":
            d *= tl.where(z > 0.0, 1.0, exp(tl.minimum(z, 0.0)))
    return d


@triton.jit
def _places(count, T, SIZE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Of a tile's positions and one head: where its entries lie in z and in q, which exist; and the same for beta."""
    head, c = tl.program_id(0) % H, tl.arange(0, BLOCK)
    n = (tl.program_id(0) // H).to(tl.int64) * TILE + tl.arange(0, TILE)
    place = (n // T * H + head) * T + n % T
    real = (n < count)[:, None] & (c < D)[None, :]
    return (n * SIZE + head * D)[:, None] + c[None, :], place[:, None] * D + c[None, :], real, n, place, head


@triton.jit
def _split(
    z, q, k, v, beta, count, T, SIZE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, REAL: tl.constexpr, FEATURES: tl.constexpr, SIGMOID: tl.constexpr,
):  # fmt: skip
    at, to, real, n, place, head = _places(count, T, SIZE, H, D, TILE, BLOCK)
    z_q, z_k = tl.load(z + at, real, 0.0).to(REAL), tl.load(z + H * D + at, real, 0.0).to(REAL)
    f_q, _ = _features(z_q, real, FEATURES)
    f_k, _ = _features(z_k, real, FEATURES)
    tl.store(q + to, f_q, real)
    tl.store(k + to, f_k, real)
    tl.store(v + to, tl.load(z + 2 * H * D + at, real, 0.0), real)
    if beta is not None:
        rate = tl.load(z + n * SIZE + 3 * H * D + head, n < count, 0.0).to(REAL)
        tl.store(beta + place, sigmoid(rate) if SIGMOID else rate, n < count)


@triton.jit
def _join(
    z, dq, dk, dv, dbeta, dz, count, T, SIZE: tl.constexpr, H: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, REAL: tl.constexpr, FEATURES: tl.constexpr, SIGMOID: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    at, to, real, n, place, head = _places(count, T, SIZE, H, D, TILE, BLOCK)
    nothing = tl.zeros([TILE, BLOCK], REAL)
    d_q, d_k, d_v = nothing, nothing, nothing
    if dq is not None:
        d_q = _feature_gradient(tl.load(z + at, real, 0.0).to(REAL), tl.load(dq + to, real, 0.0), real, FEATURES)
    if dk is not None:
        z_k = tl.load(z + H * D + at, real, 0.0).to(REAL)
        d_k = _feature_gradient(z_k, tl.load(dk + to, real, 0.0).to(REAL), real, FEATURES)
    if dv is not None:
        d_v = tl.load(dv + to, real, 0.0).to(REAL)
    tl.store(dz + at, d_q, real)
    tl.store(dz + H * D + at, d_k, real)
    tl.store(dz + 2 * H * D + at, d_v, real)
    if GATED:
        d_rate = tl.zeros([TILE], REAL)
        if dbeta is not None:
            d_rate += tl.load(dbeta + place, n < count, 0.0).to(REAL)
            if SIGMOID:
                rate = sigmoid(tl.load(z + n * SIZE + 3 * H * D + head, n < count, 0.0).to(REAL))
                d_rate *= rate * (1.0 - rate)
        tl.store(dz + n * SIZE + 3 * H * D + head, d_rate, n < count)
