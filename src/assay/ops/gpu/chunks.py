"""Chunk by chunk on the matrix units: what linear attention, retention and the delta rule share.

Within a chunk everything is matrix products; one program walks the chunks of a row and head for their states, and one
program per chunk does the rest. States are [key, value] here.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import padded, state_type

PRECISION = {"float32": "tf32x3", "bfloat16": "tf32", "float64": "ieee"}  # of products, by the inputs' type


def chunk(q: Tensor, v: Tensor) -> int:
    """Steps in a chunk: as many as the sequence has, to what fits a multiprocessor."""
    most = 32 if max(q.shape[-1], v.shape[-1]) > 64 or state_type(q) == tl.float64 else 64
    return min(most, padded(q.shape[2], 16))


def settings(q: Tensor, v: Tensor) -> dict[str, Any]:
    """What every kernel here is told by name."""
    K, V = padded(q.shape[-1], 16), padded(v.shape[-1], 16)
    return {
        "H": q.shape[1],
        "T": q.shape[2],
        "K": q.shape[3],
        "V": v.shape[3],
        "C": chunk(q, v),
        "PK": K,
        "PV": V,
        "REAL": state_type(q),
        "PRECISION": PRECISION[str(q.dtype).removeprefix("torch.")],
        "num_warps": 4 if max(K, V) <= 64 else 8,
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
