"""Functions in Triton that the kernels share, and the settings of their launches."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MULTIPROCESSORS = 132  # of an H200


@triton.jit
def load(pointers, mask, like):
    """The values at some pointers, in the type of the state."""
    return tl.load(pointers, mask=mask, other=0.0).to(like.dtype)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh(x):
    """By its series near zero, where 1 - 2 / (1 + exp(2x)) would lose the leading digits."""
    s = x * x
    p = -929569.0 / 638512875.0
    p = p * s + 21844.0 / 6081075.0
    p = p * s - 1382.0 / 155925.0
    p = p * s + 62.0 / 2835.0
    p = p * s - 17.0 / 315.0
    p = p * s + 2.0 / 15.0
    p = p * s - 1.0 / 3.0
    near = x + x * s * p
    far = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * tl.abs(x)))
    return tl.where(s < 0.015625, near, tl.where(x < 0.0, -far, far))


@triton.jit
def exp(x):
    """exp(x); in float32 it corrects for the rounding of x log2(e), by which tl.exp is off by |x| eps."""
    if x.dtype == tl.float64:
        result = tl.exp(x)
    else:
        scaled = x * 1.4426950408889634
        rest = tl.fma(x, 1.4426950408889634, -scaled) + x * 1.925963033500e-08
        result = tl.exp2(scaled) * (1.0 + tl.where(tl.abs(x) < 200.0, rest, 0.0) * 0.6931471805599453)
    return result


@triton.jit
def softmax(z, mask):
    """Over a vector, zero where it is masked."""
    e = tl.where(mask, exp(z - tl.max(tl.where(mask, z, float("-inf")), 0)), 0.0)
    return e / tl.sum(e, 0)


def padded(size: int, least: int = 1) -> int:
    """The next power of two."""
    return max(least, 1 << (size - 1).bit_length())


def precision(x: Tensor) -> str:
    """How the matrix units multiply: in float32 with three passes, which keep its digits, unless PyTorch
    allows one pass (torch.set_float32_matmul_precision). bfloat16 fits into one."""
    if x.dtype == torch.float64:
        return "ieee"
    exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "tf32x3" if exact else "tf32"


def state_type(x: Tensor) -> Any:
    """The type that a kernel computes in: float64 for float64 and float32 for everything else."""
    return tl.float64 if x.dtype in (torch.float64, torch.complex128) else tl.float32
