"""The selective scan, one program per row, head and block of channels.

A program takes eight time steps at once, a segment, and one state of all its channels after the other. All that belongs
to a channel lies in one thread, at all steps of the segment: a scan over time and the sums over states need no exchange
between threads. The states between segments are kept for the backward pass, which computes those within again.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from assay.ops.gpu.common import MULTIPROCESSORS, load, sigmoid, state_type
from assay.ops.grouped import group_sum, or_zeros

Tensors = tuple[Tensor, ...]
SEGMENT = 8  # _lane_sums takes as many vectors, twice


def outputs(x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor) -> Tensors:
    segments = triton.cdiv(x.shape[2], SEGMENT)
    return torch.empty_like(x), torch.empty_like(h), h.new_empty(*h.shape[:2], segments + 1, *h.shape[:1:-1])


def forward(
    outputs: Tensors, x: Tensor, z: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, h: Tensor
) -> None:
    y, last, states = outputs
    states[:, :, 0].copy_(h.mT)
    _launch(_forward, x, z, dt, _rates(A, h), B, C, D, states, y)
    last.copy_(states[:, :, -1].mT)


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
    dx, dz, ddt, rates = torch.empty_like(x), torch.empty_like(z), torch.empty_like(dt), _rates(A, h)
    dh = or_zeros(grads[1], h).mT.clone(memory_format=torch.contiguous_format)
    drates, dD = torch.zeros_like(dh), h.new_empty(h.shape[:3])
    shape = triton.cdiv(x.shape[3], _block(x)), *B.shape[:2], B.shape[3], B.shape[2]
    dB, dC = (h.new_empty(shape) for _ in range(2))
    _launch(_backward, x, z, dt, rates, B, C, D, outputs[2], grads[0], dx, dz, ddt, drates, dB, dC, dD, dh)
    dA = group_sum(drates, len(A)) * rates * math.log(2)
    dB, dC = (d.sum(0).mT.to(B.dtype) for d in (dB, dC))
    return dx, dz, ddt, dA.mT.to(A.dtype), dB, dC, group_sum(dD, len(D)).to(D.dtype), dh.mT


def _rates(A: Tensor, h: Tensor) -> Tensor:
    """[groups, heads, state, dim], such that a decay is exp2(step rate)."""
    return A.mT.to(h.dtype).contiguous().exp() * -math.log2(math.e)


def _block(x: Tensor) -> int:
    """How many channels a program takes: two per thread, if that leaves enough programs and registers."""
    batch, heads, _, size = x.shape
    return 64 if batch * heads * size >= 64 * 8 * MULTIPROCESSORS and x.dtype != torch.float64 else 32


def _launch(kernel: triton.JITFunction, x: Tensor, z: Tensor, dt: Tensor, rates: Tensor, *others: Tensor) -> None:
    batch, heads, time, size = x.shape
    block = _block(x)
    grid = (batch * heads, triton.cdiv(size, block))
    sizes = (batch // len(rates), heads, time, size)
    settings = {"N": rates.shape[2], "SEGMENT": SEGMENT, "BLOCK": block, "REAL": state_type(x)}
    kernel[grid](x, z, dt, rates, *others, *sizes, **settings, num_warps=1)


@triton.jit
def _channels(BLOCK: tl.constexpr):
    """The channels of a program, [BLOCK / 32, 32]: the last axis are the lanes of a warp."""
    return tl.program_id(1) * BLOCK + tl.arange(0, BLOCK // 32)[:, None] * 32 + tl.arange(0, 32)[None, :]


@triton.jit
def _softplus(x):
    """max(x, 0) + log(1 + e) with e = exp(-|x|); log(u) e / (u - 1) corrects for the rounding of u = 1 + e."""
    e = tl.exp(-tl.abs(x))
    u = 1.0 + e
    return tl.maximum(x, 0.0) + tl.where(u == 1.0, e, tl.log(u) * e / tl.where(u == 1.0, 1.0, u - 1.0))


@triton.jit
def _steps(x, dt, at, t, T, D, real, like, SEGMENT: tl.constexpr):
    """The step softplus(dt) and what is written, step x, at every time of a segment; zero after the last."""
    steps, writes = (), ()
    for i in tl.static_range(SEGMENT):
        present = tl.where(t + i < T, real, False)
        step = tl.where(present, _softplus(load(dt + at + i * D, present, like)), 0.0)
        steps, writes = steps + (step,), writes + (step * load(x + at + i * D, present, like),)
    return steps, writes


@triton.jit
def _halve(values, COUNT: tl.constexpr, upper, AXIS: tl.constexpr):
    """Sums over two neighbours, of the first COUNT values, or of the others where `upper` is true: neighbours trade."""
    sums = ()
    for i in tl.static_range(COUNT):
        p, q = tl.reshape(values[i], upper.shape), tl.reshape(values[COUNT + i], upper.shape)
        bits = tl.where(upper, p, q).to(tl.int64 if p.dtype == tl.float64 else tl.int32, bitcast=True)
        received = (bits ^ tl.xor_sum(bits, AXIS, keep_dims=True)).to(p.dtype, bitcast=True)
        sums = sums + (tl.where(upper, q, p) + received,)
    return sums


@triton.jit
def _lane_sums(values, lane):
    """The sums of sixteen vectors over 32 lanes, the sum of vector i in the lanes 2i and 2i + 1.

    Every vector by itself would take five exchanges between lanes; here 16 are enough for all.
    """
    eight = _halve(values, 8, lane // 16 == 1, 0)
    four = _halve(eight, 4, lane // 8 % 2 == 1, 1)
    two = _halve(four, 2, lane // 4 % 2 == 1, 2)
    one = _halve(two, 1, lane // 2 % 2 == 1, 3)
    return tl.broadcast_to(tl.sum(one[0], 4, keep_dims=True), lane.shape)


@triton.jit
def _repeat(x, COUNT: tl.constexpr):
    values = ()
    for _ in tl.static_range(COUNT):
        values = values + (x,)
    return values


@triton.jit(do_not_specialize=("rows", "T"))
def _forward(
    x,
    z,
    dt,
    rates,
    B,
    C,
    D_skip,
    states,
    y,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    weight = sequence // heads // rows * heads + sequence % heads
    d = _channels(BLOCK)
    real, nothing = d < D, tl.zeros([BLOCK // 32, 32], REAL)
    skip = load(D_skip + weight * D + d, real, nothing)
    states += sequence * (tl.cdiv(T, SEGMENT) + 1) * N * D + d
    rates += weight * N * D + d
    for t in range(0, T, SEGMENT):
        at = (sequence * T + t) * D + d
        steps, writes = _steps(x, dt, at, t, T, D, real, nothing, SEGMENT)
        reads = _repeat(nothing, SEGMENT)
        for n in range(N):
            rate, h = load(rates + n * D, real, nothing), tl.load(states + n * D, mask=real, other=0.0)
            totals, at_n = (), (sequence * T + t) * N + n
            for i in tl.static_range(SEGMENT):
                key, query = load(B + at_n + i * N, t + i < T, h), load(C + at_n + i * N, t + i < T, h)
                h = tl.exp2(steps[i] * rate) * h + writes[i] * key
                totals = totals + (reads[i] + h * query,)
            reads = totals
            tl.store(states + (N + n) * D, h, mask=real)
        states += N * D
        for i in tl.static_range(SEGMENT):
            present = tl.where(t + i < T, real, False)
            value, gate = load(x + at + i * D, present, nothing), load(z + at + i * D, present, nothing)
            tl.store(y + at + i * D, (reads[i] + skip * value) * gate * sigmoid(gate), mask=present)


@triton.jit(do_not_specialize=("rows", "T"))
def _backward(
    x,
    z,
    dt,
    rates,
    B,
    C,
    D_skip,
    states,
    dy,
    dx,
    dz,
    ddt,
    drates,
    dB_by_block,
    dC_by_block,
    dD_by_row,
    dstate,
    rows,
    heads,
    T,
    D,
    N: tl.constexpr,
    SEGMENT: tl.constexpr,
    BLOCK: tl.constexpr,
    REAL: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    weight = sequence // heads // rows * heads + sequence % heads
    d, lane = _channels(BLOCK), tl.reshape(tl.arange(0, 32), [2, 2, 2, 2, 2])
    real, nothing = d < D, tl.zeros([BLOCK // 32, 32], REAL)
    skip, dskip = load(D_skip + weight * D + d, real, nothing), nothing
    segments = tl.cdiv(T, SEGMENT)
    states += sequence * (segments + 1) * N * D + d
    rates += weight * N * D + d
    drates += sequence * N * D + d
    dstate += sequence * N * D + d
    of_block = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + sequence) * N * T + lane // 2 % SEGMENT
    sums = tl.where(lane // 2 < SEGMENT, dB_by_block + of_block, dC_by_block + of_block)
    for segment in range(segments - 1, -1, -1):
        t = segment * SEGMENT
        at = (sequence * T + t) * D + d
        steps, writes = _steps(x, dt, at, t, T, D, real, nothing, SEGMENT)
        dreads = ()
        for i in tl.static_range(SEGMENT):
            present = tl.where(t + i < T, real, False)
            gate = load(z + at + i * D, present, nothing)
            dreads = dreads + (load(dy + at + i * D, present, nothing) * gate * sigmoid(gate),)
        reads = _repeat(nothing, SEGMENT)
        dwrites, dsteps = reads, reads
        for n in range(N):
            rate, dh = load(rates + n * D, real, nothing), tl.load(dstate + n * D, mask=real, other=0.0)
            h = tl.load(states + (segment * N + n) * D, mask=real, other=0.0)
            keys, queries, decays, kept, totals, at_n = (), (), (), (), (), (sequence * T + t) * N + n
            for i in tl.static_range(SEGMENT):
                keys = keys + (load(B + at_n + i * N, t + i < T, h),)
                queries = queries + (load(C + at_n + i * N, t + i < T, h),)
                decays = decays + (tl.exp2(steps[i] * rate),)
                kept = kept + (decays[i] * h,)
                h = kept[i] + writes[i] * keys[i]
                totals = totals + (reads[i] + h * queries[i],)
            reads = totals
            drate, dB, dC, by_write, by_step = nothing, (), (), (), ()
            for i in tl.static_range(SEGMENT - 1, -1, -1):
                dC = (tl.sum((kept[i] + writes[i] * keys[i]) * dreads[i], 0),) + dC
                dh += dreads[i] * queries[i]
                dB = (tl.sum(dh * writes[i], 0),) + dB
                by_write = (dwrites[i] + dh * keys[i],) + by_write
                dexponent = dh * kept[i]
                by_step = (dsteps[i] + dexponent * rate,) + by_step
                drate += dexponent * steps[i]
                dh *= decays[i]
            dwrites, dsteps = by_write, by_step
            own = (lane % 2 == 0) & (t + lane // 2 % SEGMENT < T)
            tl.store(sums + n * T + t, _lane_sums(dB + dC, lane), mask=own)
            tl.store(drates + n * D, tl.load(drates + n * D, mask=real, other=0.0) + drate, mask=real)
            tl.store(dstate + n * D, dh, mask=real)
        for i in tl.static_range(SEGMENT):
            present = tl.where(t + i < T, real, False)
            value, raw = load(x + at + i * D, present, nothing), load(dt + at + i * D, present, nothing)
            gate, grad = load(z + at + i * D, present, nothing), load(dy + at + i * D, present, nothing)
            opened = sigmoid(gate)
            dgate = grad * (reads[i] + skip * value) * opened * (1.0 + gate * (1.0 - opened))
            dstep = value * dwrites[i] + 0.6931471805599453 * dsteps[i]
            tl.store(dx + at + i * D, steps[i] * dwrites[i] + skip * dreads[i], mask=present)
            tl.store(dz + at + i * D, dgate, mask=present)
            tl.store(ddt + at + i * D, dstep * sigmoid(raw), mask=present)
            dskip += dreads[i] * value
    tl.store(dD_by_row + sequence * D + d, dskip, mask=real)
