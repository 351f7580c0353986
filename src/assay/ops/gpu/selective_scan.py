"""The selective scan, one program per row, head and block of channels with its states [BLOCK, N] in registers.

Decays cannot be undone, so the forward pass saves the state before every SEGMENT steps and the backward pass computes a
segment's states again, into memory, before it runs back through them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded
from assay.ops.grouped import group_sum, or_zeros

SEGMENT = 16


def outputs(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    checkpoints = h.new_empty(*h.shape[:2], (x.shape[2] + SEGMENT - 1) // SEGMENT, *h.shape[2:])
    return torch.empty_like(x), torch.empty_like(h), checkpoints


def forward(outputs: tuple[Tensor, ...], x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, h: Tensor) -> None:
    _launch(_forward, x, dt, A, B, C, h, *outputs)


def backward(
    outputs: tuple[Tensor, ...],
    grads: tuple[Tensor, ...],
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    h: Tensor,
) -> tuple[Tensor, ...]:
    dx, ddt, dh = (torch.empty_like(tensor) for tensor in (x, dt, h))
    blocks = triton.cdiv(x.shape[3], _block(A))
    dB, dC = (h.new_empty(blocks, *B.shape) for _ in range(2))
    dA, states = torch.empty_like(h), h.new_empty(*h.shape[:2], SEGMENT, *h.shape[2:])
    _launch(_backward, x, dt, A, B, C, outputs[2], grads[0], or_zeros(grads[1], h), states, dx, ddt, dA, dB, dC, dh)
    return dx, ddt, group_sum(dA, len(A)).to(A.dtype), dB.sum(0).to(B.dtype), dC.sum(0).to(C.dtype), dh


def _block(A: Tensor) -> int:
    """How many channels a program takes: some 256 numbers of state."""
    size, count = A.shape[2:]
    return min(padded(size), max(256 // padded(count), 1))


def _launch(kernel: triton.JITFunction, x: Tensor, dt: Tensor, A: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = x.shape
    count, block = A.shape[3], _block(A)
    grid = (batch * heads, triton.cdiv(size, block))
    sizes = (batch // len(A), heads, time, size)
    kernel[grid](x, dt, A, *others, *sizes, N=count, SEGMENT=SEGMENT, BLOCK=block, STATES=padded(count), num_warps=1)


@triton.jit
def _forward(
    x,
    dt,
    A,
    B,
    C,
    first,
    y,
    last,
    checkpoints,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    STATES: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    d, n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STATES)
    real_d, real_n = d < D, n < N
    real = real_d[:, None] & real_n[None, :]
    state = d[:, None] * N + n[None, :]
    h = tl.load(first + sequence * D * N + state, mask=real, other=0.0)
    rates = load(A + (sequence // heads // rows * heads + sequence % heads) * D * N + state, real, h)
    checkpoints += sequence * tl.cdiv(T, SEGMENT) * D * N
    for t in tl.range(T, num_stages=4):
        tl.store(checkpoints + t // SEGMENT * D * N + state, h, mask=real & (t % SEGMENT == 0))
        at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
        step = load(dt + at_d, real_d, h)
        written = step * load(x + at_d, real_d, h)
        h = tl.exp(step[:, None] * rates) * h + written[:, None] * load(B + at_n, real_n, h)[None, :]
        tl.store(y + at_d, tl.sum(h * load(C + at_n, real_n, h)[None, :], axis=1), mask=real_d)
    tl.store(last + sequence * D * N + state, h, mask=real)


@triton.jit
def _backward(
    x,
    dt,
    A,
    B,
    C,
    checkpoints,
    dy,
    dlast,
    states,
    dx,
    ddt,
    dA_by_row,
    dB_by_block,
    dC_by_block,
    dfirst,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    STATES: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    d, n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, STATES)
    real_d, real_n = d < D, n < N
    real = real_d[:, None] & real_n[None, :]
    state = d[:, None] * N + n[None, :]
    dh = tl.load(dlast + sequence * D * N + state, mask=real, other=0.0)
    rates = load(A + (sequence // heads // rows * heads + sequence % heads) * D * N + state, real, dh)
    dA = tl.zeros_like(dh)
    segments = tl.cdiv(T, SEGMENT)
    checkpoints += sequence * segments * D * N
    states += sequence * SEGMENT * D * N
    of_block = tl.program_id(1).to(tl.int64) * tl.num_programs(0) * T * N
    for segment in range(segments - 1, -1, -1):
        start = segment * SEGMENT
        end = tl.minimum(start + SEGMENT, T)
        h = tl.load(checkpoints + segment * D * N + state, mask=real, other=0.0)
        for t in tl.range(start, end, num_stages=4):
            tl.store(states + (t - start) * D * N + state, h, mask=real)
            at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
            step = load(dt + at_d, real_d, h)
            written = step * load(x + at_d, real_d, h)
            h = tl.exp(step[:, None] * rates) * h + written[:, None] * load(B + at_n, real_n, h)[None, :]
        tl.debug_barrier()  # threads may read what others have stored
        for t in tl.range(end - 1, start - 1, -1, num_stages=4):
            at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
            step, value = load(dt + at_d, real_d, h), load(x + at_d, real_d, h)
            key, dread = load(B + at_n, real_n, h)[None, :], load(dy + at_d, real_d, h)[:, None]
            tl.store(dC_by_block + of_block + at_n, tl.sum(dread * h, axis=0), mask=real_n)
            dh += dread * load(C + at_n, real_n, h)[None, :]
            h = tl.load(states + (t - start) * D * N + state, mask=real, other=0.0)
            decay = tl.exp(step[:, None] * rates)
            dexponent = dh * h * decay
            dwritten = tl.sum(dh * key, axis=1)
            tl.store(dB_by_block + of_block + at_n, tl.sum(dh * (step * value)[:, None], axis=0), mask=real_n)
            tl.store(dx + at_d, step * dwritten, mask=real_d)
            tl.store(ddt + at_d, value * dwritten + tl.sum(dexponent * rates, axis=1), mask=real_d)
            dA += dexponent * step[:, None]
            dh *= decay
        tl.debug_barrier()
    tl.store(dA_by_row + sequence * D * N + state, dA, mask=real)
    tl.store(dfirst + sequence * D * N + state, dh, mask=real)
