"""x sigmoid(z), element by element."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, sigmoid, state_type

BLOCK = 1024


def outputs(x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    return (torch.empty_like(x),)


def forward(outputs: tuple[Tensor, ...], x: Tensor, z: Tensor) -> None:
    count = x.numel()
    _forward[(triton.cdiv(count, BLOCK),)](x, z, *outputs, count, REAL=state_type(x), SIZE=BLOCK)


def backward(outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...], x: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    dx, dz, count = torch.empty_like(x), torch.empty_like(z), x.numel()
    _backward[(triton.cdiv(count, BLOCK),)](x, z, grads[0], dx, dz, count, REAL=state_type(x), SIZE=BLOCK)
    return dx, dz


@triton.jit
def _forward(x, z, y, count, REAL: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    real, like = at < count, tl.zeros([SIZE], REAL)
    tl.store(y + at, load(x + at, real, like) * sigmoid(load(z + at, real, like)), mask=real)


@triton.jit
def _backward(x, z, dy, dx, dz, count, REAL: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    real, like = at < count, tl.zeros([SIZE], REAL)
    g, d = sigmoid(load(z + at, real, like)), load(dy + at, real, like)
    tl.store(dx + at, d * g, mask=real)
    tl.store(dz + at, d * load(x + at, real, like) * g * (1.0 - g), mask=real)
