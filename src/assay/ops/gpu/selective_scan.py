"""The selective scan, one program per row, head and block of channels with its states in registers.

The states of a program are [STATES / 4, BLOCK / 8, 4, 8], all states of channels apart: the last two axes are the lanes
of a warp, so that a sum over states or over channels takes place mostly within a thread.

Decays cannot be undone, so the forward pass saves the state before every SEGMENT steps and the backward pass computes a
segment's states again, into memory, before it runs back through them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import load, padded, sigmoid
from assay.ops.grouped import group_sum, or_zeros

Tensors = tuple[Tensor, ...]
SEGMENT = 16
LOG2E = tl.constexpr(1.4426950408889634)


def outputs(x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor) -> Tensors:
    return torch.empty_like(x), torch.empty_like(h), _scratch(triton.cdiv(x.shape[2], SEGMENT), A, h)


def forward(
    outputs: Tensors, x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> None:
    _launch(_forward, A, x, z, dt, A, B, C, D, h, *outputs)


def backward(
    outputs: Tensors,
    grads: Tensors,
    x: Tensor,
    z: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    h: Tensor,
) -> Tensors:
    dx, dz, ddt, dh = (torch.empty_like(tensor) for tensor in (x, z, dt, h))
    dA, dD = torch.empty_like(h), h.new_empty(h.shape[:3])
    blocks, states = triton.cdiv(x.shape[3], _block(A)), _scratch(SEGMENT, A, h)
    dB, dC = (h.new_empty(blocks, *B.shape) for _ in range(2))
    inputs = x, z, dt, A, B, C, D, outputs[2], grads[0], or_zeros(grads[1], h)
    _launch(_backward, A, *inputs, states, dx, dz, ddt, dA, dB, dC, dD, dh)
    dA, dD = (group_sum(dw, len(w)).to(w.dtype) for dw, w in ((dA, A), (dD, D)))
    return dx, dz, ddt, dA, dB.sum(0).to(B.dtype), dC.sum(0).to(C.dtype), dD, dh


def _block(A: Tensor) -> int:
    """How many channels a program takes: some 512 numbers of state."""
    size, count = A.shape[2:]
    return max(min(padded(size), 512 // padded(count, 2)), 16)


def _scratch(count: int, A: Tensor, h: Tensor) -> Tensor:
    """Memory for some states of every program."""
    blocks = triton.cdiv(A.shape[2], _block(A))
    return h.new_empty(*h.shape[:2], blocks, count, _block(A) * padded(A.shape[3], 2))


def _launch(kernel: triton.JITFunction, A: Tensor, x: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = x.shape
    count, block = A.shape[3], _block(A)
    grid = (batch * heads, triton.cdiv(size, block))
    sizes = (batch // len(A), heads, time, size)
    settings = {"N": count, "SEGMENT": SEGMENT, "BLOCK": block, "STATES": padded(count, 2)}
    kernel[grid](x, *others, *sizes, **settings, num_warps=1)


@triton.jit
def _places(BLOCK: tl.constexpr, STATES: tl.constexpr):
    """The channels [1, BLOCK / 16, 2, 16], the states [STATES / 2, 1, 2, 16] and the memory of a program, by lane."""
    lane = tl.arange(0, 2)[None, None, :, None] * 16 + tl.arange(0, 16)[None, None, None, :]
    of_d, of_n = tl.arange(0, BLOCK // 16)[None, :, None, None], tl.arange(0, STATES // 2)[:, None, None, None]
    d, n = 16 * of_d + lane % 16, 2 * of_n + lane // 16
    return tl.program_id(1) * BLOCK + d, n, (of_n * (BLOCK // 16) + of_d) * 32 + lane


@triton.jit
def _sum_states(x):
    """Over all states of a channel, for all lanes."""
    return tl.sum(tl.sum(x, 0, keep_dims=True), 2, keep_dims=True)


@triton.jit
def _sum_channels(x):
    return tl.sum(tl.sum(x, 1, keep_dims=True), 3, keep_dims=True)


@triton.jit
def _softplus(x):
    """max(x, 0) + log(1 + e) with e = exp(-|x|); log(u) e / (u - 1) corrects for the rounding of u = 1 + e."""
    e = tl.exp(-tl.abs(x))
    u = 1.0 + e
    return tl.maximum(x, 0.0) + tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _forward(
    x,
    z,
    dt,
    A,
    B,
    C,
    D_skip,
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
    weight = sequence // heads // rows * heads + sequence % heads
    d, n, own = _places(BLOCK, STATES)
    SIZE: tl.constexpr = BLOCK * STATES
    program = sequence * tl.num_programs(1) + tl.program_id(1)
    real_d, real_n = d < D, n < N
    state, real = d * N + n, (d < D) & (n < N)
    h = tl.load(first + sequence * D * N + state, mask=real, other=0.0)
    rates = -LOG2E * tl.exp(load(A + weight * D * N + state, real, h))
    skip = load(D_skip + weight * D + d, real_d, h)
    checkpoints += program * tl.cdiv(T, SEGMENT) * SIZE + own
    for t in range(T):
        if t % SEGMENT == 0:
            tl.store(checkpoints + t // SEGMENT * SIZE, h)
        at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
        value, gate = load(x + at_d, real_d, h), load(z + at_d, real_d, h)
        step = _softplus(load(dt + at_d, real_d, h))
        h = tl.exp2(step * rates) * h + step * value * load(B + at_n, real_n, h)
        read = _sum_states(h * load(C + at_n, real_n, h)) + skip * value
        tl.store(y + at_d, read * gate * sigmoid(gate), mask=real_d)
    tl.store(last + sequence * D * N + state, h, mask=real)


@triton.jit
def _backward(
    x,
    z,
    dt,
    A,
    B,
    C,
    D_skip,
    checkpoints,
    dy,
    dlast,
    states,
    dx,
    dz,
    ddt,
    dA_by_row,
    dB_by_block,
    dC_by_block,
    dD_by_row,
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
    weight = sequence // heads // rows * heads + sequence % heads
    d, n, own = _places(BLOCK, STATES)
    SIZE: tl.constexpr = BLOCK * STATES
    program = sequence * tl.num_programs(1) + tl.program_id(1)
    real_d, real_n = d < D, n < N
    state, real = d * N + n, (d < D) & (n < N)
    dh = tl.load(dlast + sequence * D * N + state, mask=real, other=0.0)
    rates = -LOG2E * tl.exp(load(A + weight * D * N + state, real, dh))
    skip = load(D_skip + weight * D + d, real_d, dh)
    dA, dskip = tl.zeros_like(dh), tl.zeros_like(skip)
    segments = tl.cdiv(T, SEGMENT)
    checkpoints += program * segments * SIZE + own
    states += program * SEGMENT * SIZE + own
    of_block = tl.program_id(1).to(tl.int64) * tl.num_programs(0) * T * N
    for segment in range(segments - 1, -1, -1):
        start = segment * SEGMENT
        end = tl.minimum(start + SEGMENT, T)
        h = tl.load(checkpoints + segment * SIZE)
        for t in range(start, end):
            tl.store(states + (t - start) * SIZE, h)
            at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
            step = _softplus(load(dt + at_d, real_d, h))
            written = step * load(x + at_d, real_d, h)
            h = tl.exp2(step * rates) * h + written * load(B + at_n, real_n, h)
        tl.debug_barrier()  # threads may read what others have stored
        for t in range(end - 1, start - 1, -1):
            at_d, at_n = (sequence * T + t) * D + d, (sequence * T + t) * N + n
            value, raw, gate = load(x + at_d, real_d, h), load(dt + at_d, real_d, h), load(z + at_d, real_d, h)
            key, query, grad = load(B + at_n, real_n, h), load(C + at_n, real_n, h), load(dy + at_d, real_d, h)
            step, opened = _softplus(raw), sigmoid(gate)
            read = _sum_states(h * query) + skip * value
            tl.store(dz + at_d, grad * read * opened * (1.0 + gate * (1.0 - opened)), mask=real_d)
            dread = grad * gate * opened
            tl.store(dC_by_block + of_block + at_n, _sum_channels(dread * h), mask=real_n)
            dh += dread * query
            h = tl.load(states + (t - start) * SIZE)
            dwritten = _sum_states(dh * key)
            tl.store(dB_by_block + of_block + at_n, _sum_channels(dh * (step * value)), mask=real_n)
            dh *= tl.exp2(step * rates)
            dexponent = dh * h
            tl.store(dx + at_d, step * dwritten + skip * dread, mask=real_d)
            dstep = value * dwritten + _sum_states(dexponent * rates) / LOG2E
            tl.store(ddt + at_d, dstep * sigmoid(raw), mask=real_d)
            dA += dexponent * step
            dskip += dread * value
        tl.debug_barrier()
    tl.store(dA_by_row + sequence * D * N + state, dA * rates / LOG2E, mask=real)  # the rate is -exp(A)
    tl.store(dD_by_row + sequence * D + d, dskip, mask=real_d)
    tl.store(dfirst + sequence * D * N + state, dh, mask=real)
