"""The root-mean-square norm of every head, joined and gated: a program has one row and head, a tile of time at once."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.fusions import HEAD_EPS
from assay.ops.gpu.common import padded, sigmoid, state_type
from assay.ops.grouped import group_sum
from assay.ops.operator import state_dtype

TILE_ENTRIES = 1024
EPS = tl.constexpr(HEAD_EPS)


def outputs(o: Tensor, z: Tensor, w: Tensor, activation: str) -> tuple[Tensor, ...]:
    return (torch.empty_like(z),)


def forward(outputs: tuple[Tensor, ...], o: Tensor, z: Tensor, w: Tensor, activation: str) -> None:
    _forward[(len(o) * o.shape[1],)](o, z, w, *outputs, **_settings(o, w, activation))


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], o: Tensor, z: Tensor, w: Tensor, activation: str
) -> tuple[Tensor, ...]:
    do, dz = torch.empty_like(o), torch.empty_like(z)
    parts = o.new_empty(*o.shape[:2], o.shape[3], dtype=state_dtype(o.dtype))
    _backward[(len(o) * o.shape[1],)](o, z, w, grads[0], do, dz, parts, **_settings(o, w, activation))
    return do, dz, group_sum(parts.sum(1), len(w)).to(w.dtype)


def _settings(o: Tensor, w: Tensor, activation: str) -> dict[str, Any]:
    batch, heads, time, size = o.shape
    block = padded(size)
    tile = min(padded(time), max(1, TILE_ENTRIES // block))
    sizes = {"H": heads, "T": time, "D": size, "per_group": batch // len(w), "TILE": tile, "BLOCK": block}
    warps = min(8, max(1, tile * block // 256))
    return sizes | {"REAL": state_type(o), "SILU": activation == "silu", "num_warps": warps}


@triton.jit
def _places(start, row, T, H, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    """Where a tile lies in o [batch, heads, time, dim] and in z [batch, time, heads dim], and which of it exists."""
    t, c = start + tl.arange(0, TILE), tl.arange(0, BLOCK)
    in_o = (row * T + t)[:, None] * D + c[None, :]
    in_z = ((row // H * T + t) * H + row % H)[:, None] * D + c[None, :]
    return in_o, in_z, (t < T)[:, None] & (c < D)[None, :]


@triton.jit
def _normed(o, D: tl.constexpr):
    """o / rms(o), and 1 / rms(o)."""
    scale = tl.rsqrt(tl.sum(o * o, 1) / D + EPS)[:, None]
    return o * scale, scale


@triton.jit
def _weight(w, row, H, per_group, D: tl.constexpr, BLOCK: tl.constexpr, REAL: tl.constexpr):
    c = tl.arange(0, BLOCK)
    return tl.load(w + row // H // per_group * D + c, c < D, 0.0).to(REAL)[None, :]


@triton.jit
def _forward(
    o_in, z_in, w_in, y_out, H, T, per_group, D: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
    REAL: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    w = _weight(w_in, row, H, per_group, D, BLOCK, REAL)
    for start in range(0, T, TILE):
        in_o, in_z, real = _places(start, row, T, H, D, TILE, BLOCK)
        o, z = tl.load(o_in + in_o, real, 0.0).to(REAL), tl.load(z_in + in_z, real, 0.0).to(REAL)
        n, _ = _normed(o, D)
        gate = z * sigmoid(z) if SILU else sigmoid(z)
        tl.store(y_out + in_z, n * w * gate, real)


@triton.jit
def _backward(
    o_in, z_in, w_in, dy_in, do_out, dz_out, parts, H, T, per_group, D: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, REAL: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    w = _weight(w_in, row, H, per_group, D, BLOCK, REAL)
    dw = tl.zeros([TILE, BLOCK], REAL)
    for start in range(0, T, TILE):
        in_o, in_z, real = _places(start, row, T, H, D, TILE, BLOCK)
        o, z = tl.load(o_in + in_o, real, 0.0).to(REAL), tl.load(z_in + in_z, real, 0.0).to(REAL)
        dy = tl.load(dy_in + in_z, real, 0.0).to(REAL)
        n, scale = _normed(o, D)
        s = sigmoid(z)
        gate, slope = s, s * (1.0 - s)
        if SILU:
            slope = s + z * slope
            gate = z * s
        tl.store(dz_out + in_z, dy * n * w * slope, real)
        dn = dy * gate
        dw += dn * n
        dn *= w
        tl.store(do_out + in_o, (dn - n * (tl.sum(dn * n, 1) / D)[:, None]) * scale, real)
    tl.store(parts + row * D + c, tl.sum(dw, 0), c < D)
