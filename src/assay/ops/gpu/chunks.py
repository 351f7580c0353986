"""The parts that linear attention, retention and the delta rule share: chunks on the matrix units.

Within a chunk everything is matrix products. One program walks the chunks of a row and head; where there are too few of
these to fill the device it does so for the states alone, and one program per chunk does the rest. States are
[key, value] here.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, padded, precision, state_type


def walks(q: Tensor, v: Tensor) -> bool:
    """Whether one program does all chunks of a row and head in turn, in one launch.

    With fewer rows and heads than the device has multiprocessors, the chunks are shared out as well; but not where two
    states are too large for the shared memory together.
    """
    large = q.dtype == torch.float64 and max(q.shape[-1], v.shape[-1]) > 64
    return q.shape[0] * q.shape[1] >= MULTIPROCESSORS or q.shape[2] <= 64 or large


def chunk(q: Tensor, v: Tensor) -> int:
    """Steps in a chunk."""
    return settings(q, v)["C"]


def settings(q: Tensor, v: Tensor) -> dict[str, Any]:
    """The arguments that all these kernels take by name; chunks and warps as they were fastest on an H200."""
    K, V = padded(q.shape[-1], 16), padded(v.shape[-1], 16)
    size = max(K, V)
    if walks(q, v):
        C, warps = 16, {16: 1, 32: 2, 64: 4}.get(size, 8)
        warps = max(warps, 4) if state_type(q) == tl.float64 else warps  # with 2, Triton 3.6 gets the delta rule wrong
    else:
        C, warps = {16: (32, 2), 32: (32, 4), 64: (64, 4)}.get(size, (32, 8))
        C = min(C, 32) if state_type(q) == tl.float64 else C
    return {
        "H": q.shape[1],
        "T": q.shape[2],
        "K": q.shape[3],
        "V": v.shape[3],
        "C": C,
        "PK": K,
        "PV": V,
        "REAL": state_type(q),
        "PRECISION": precision(q),
        "num_warps": warps,
        "num_stages": 3 if size < 128 else 1,  # what is loaded ahead takes shared memory
    }


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    return tl.dot(a, b, input_precision=PRECISION, out_dtype=a.dtype)


@triton.jit
def load_steps(x, t, c, T, D, REAL: tl.constexpr):
    """Some steps of a sequence [T, D], zeros beyond its end."""
    return tl.load(x + t[:, None] * D + c[None, :], (t < T)[:, None] & (c < D)[None, :], 0.0).to(REAL)


@triton.jit
def store_steps(x, t, c, T, D, values):
    tl.store(x + t[:, None] * D + c[None, :], values, (t < T)[:, None] & (c < D)[None, :])


@triton.jit
def load_state(S, i, c, K, V):
    """A state [K, V]."""
    return tl.load(S + i[:, None] * V + c[None, :], (i < K)[:, None] & (c < V)[None, :], 0.0)


@triton.jit
def store_state(S, i, c, K, V, values):
    tl.store(S + i[:, None] * V + c[None, :], values, (i < K)[:, None] & (c < V)[None, :])


@triton.jit
def load_turned(W, i, c, K, V):
    """A fast weight [V, K] as a state [K, V]."""
    return tl.load(W + i[:, None] + c[None, :] * K, (i < K)[:, None] & (c < V)[None, :], 0.0)


@triton.jit
def store_turned(W, i, c, K, V, values):
    tl.store(W + i[:, None] + c[None, :] * K, values, (i < K)[:, None] & (c < V)[None, :])
