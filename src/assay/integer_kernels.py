"""Finite automata and the hash of the random generator, each in one kernel: the same integers as in plain operations.

`assay.tasks.automaton` and `assay.rng` have the plain operations. A program follows a tile of rows through all of time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 128
BLOCK = 1024


def states(table: Tensor, inputs: Tensor, columns: int, start: int) -> Tensor:
    """The state after every token of inputs [rows, time], by a table of the next states [states * columns]."""
    rows, time = inputs.shape
    visited = torch.empty_like(inputs)
    if rows:
        _states[(triton.cdiv(rows, ROWS),)](table, inputs.contiguous(), visited, rows, time, columns, start, ROWS=ROWS)
    return visited


def walk(choices: Tensor, moves: Tensor, uniform: Tensor, lengths: Tensor, start: int) -> Tensor:
    """Tokens [rows, time] of random walks: the next symbol is the number of thresholds that a uniform number reaches.

    choices [lengths, states, symbols] holds the thresholds by the number of symbols that follow, moves [states,
    symbols] the next states.
    """
    rows, time = uniform.shape
    tokens = torch.empty(rows, time, dtype=torch.int64, device=uniform.device)
    if rows:
        grid, (count, symbols) = (triton.cdiv(rows, ROWS),), moves.shape
        arguments = choices.contiguous(), moves.contiguous(), uniform.contiguous(), lengths.contiguous(), tokens
        _walk[grid](*arguments, rows, time, count, symbols, start, ROWS=ROWS)
    return tokens


def mix(z: Tensor) -> Tensor:
    """The bijection of 64-bit words of `assay.rng.mix`."""
    z = z.contiguous()
    mixed = torch.empty_like(z)
    if z.numel():
        _mix[(triton.cdiv(z.numel(), BLOCK),)](z, mixed, z.numel(), BLOCK=BLOCK)
    return mixed


@triton.jit
def _states(table, inputs, visited, rows, time, columns, start, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    state = tl.zeros([ROWS], tl.int64) + start
    for t in range(time):
        token = tl.load(inputs + row * time + t, mask=real, other=0)
        state = tl.load(table + state * columns + token, mask=real, other=0)
        tl.store(visited + row * time + t, state, mask=real)


@triton.jit
def _walk(choices, moves, uniform, lengths, tokens, rows, time, count, symbols, start, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    real = row < rows
    length = tl.load(lengths + row, mask=real, other=0)
    state = tl.zeros([ROWS], tl.int64) + start
    for t in range(time):
        number = tl.load(uniform + row * time + t, mask=real, other=0.0)
        thresholds = choices + (tl.maximum(length - (t + 1), 0) * count + state) * symbols
        symbol = tl.zeros([ROWS], tl.int64)
        for s in range(symbols):
            symbol += (number >= tl.load(thresholds + s, mask=real, other=0.0)).to(tl.int64)
        symbol = tl.minimum(symbol, symbols - 1)
        state = tl.load(moves + state * symbols + symbol, mask=real, other=0)
        tl.store(tokens + row * time + t, symbol + 1, mask=real)


@triton.jit
def _shift(z, BITS: tl.constexpr):
    """Logical right shift."""
    return (z.to(tl.uint64, bitcast=True) >> BITS).to(tl.int64, bitcast=True)


@triton.jit
def _mix(z_in, mixed, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(z_in + at, mask=at < count, other=0)
    z = (z ^ _shift(z, 30)) * -4658895280553007687
    z = (z ^ _shift(z, 27)) * -7723592293110705685
    tl.store(mixed + at, z ^ _shift(z, 31), mask=at < count)
