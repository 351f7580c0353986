"""Lassos to a cycle: the infinite words u w w w ..., run until the machine's bits repeat at the same place of w."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.certify.machine import StateMachine, wrong
from assay.certify.search import Limits, OnStatus, SearchStatus
from assay.certify.table import LEFT_OUT, TaskTable
from assay.tasks.probes import short_lassos
from assay.tasks.words import Lasso

LOOK_AHEAD = 16  # tokens within which a lasso must not leave the task's domain


@dataclass(frozen=True)
class LassoOutcome:
    """How many lassos are settled for every number of repetitions, and how many are still open after `length` tokens.

    `word` is the shortest wrong word among their prefixes. A lasso that leaves the task's domain is settled there.
    """

    lassos: int
    settled: int
    wrong: int
    open: int
    length: int
    word: tuple[int, ...] | None


def run_lassos(
    machine: StateMachine, table: TaskTable, limits: Limits | None = None, on_status: OnStatus = lambda _: None
) -> LassoOutcome:
    """Run every lasso until it is settled, wrong, or the time is over.

    Bits are compared with those saved at repetitions 1, 2, 4, 8, ... of the loop (Brent's algorithm): a period is found
    however long it takes to begin.
    """
    limits, begin = limits or Limits(), time.perf_counter()
    words = short_lassos(table.moves.shape[1], lambda found: [lasso for lasso in found if _inside(lasso, table)])
    tokens = _tables(words)
    access = torch.tensor([len(lasso.access) for lasso in words])
    loop = torch.tensor([len(lasso.loop) for lasso in words])
    rows = torch.arange(len(words))
    codes, states = machine.start().expand(len(words), -1), torch.zeros(len(words), dtype=torch.int64)
    saved, saved_states = codes.clone(), torch.full((len(words),), LEFT_OUT)
    length, settled, bad, shortest = 0, 0, 0, None
    while len(rows) and time.perf_counter() - begin < limits.seconds:
        place = torch.where(length < access, length, access + (length - access) % loop)
        token = tokens[rows, place]
        states = table.moves[states, token - 1]
        inside = states != LEFT_OUT
        logits, codes = machine.step(codes, token)
        is_wrong = inside & wrong(logits, table.answers[states.clamp(min=0)])
        length += 1
        if is_wrong.any():
            shortest = shortest or words[int(rows[is_wrong][0])].word(length)
        at_end = (length >= access + loop) & ((length - access) % loop == 0)
        repeated = at_end & inside & ~is_wrong & (codes == saved).all(1) & (states == saved_states)
        bad += int(is_wrong.sum())
        settled += int((repeated | ~inside).sum())
        repetition = torch.where(at_end, (length - access) // loop, 0)
        saves = at_end & ((repetition & (repetition - 1)) == 0)
        saved = torch.where(saves[:, None], codes, saved)
        saved_states = torch.where(saves, states, saved_states)
        kept = inside & ~is_wrong & ~repeated
        rows, codes, states, access, loop = rows[kept], codes[kept], states[kept], access[kept], loop[kept]
        saved, saved_states = saved[kept], saved_states[kept]
        if length % 64 == 0:
            on_status(SearchStatus(length, settled, len(rows), time.perf_counter() - begin))
    return LassoOutcome(len(words), settled, bad, len(rows), length, shortest)


def _inside(lasso: Lasso, table: TaskTable) -> bool:
    return table.walk(lasso.word(LOOK_AHEAD)) != LEFT_OUT


def _tables(words: list[Lasso]) -> Tensor:
    """The tokens of every lasso, access word then loop, filled up with 1."""
    width = max((len(lasso.access) + len(lasso.loop) for lasso in words), default=1)
    return torch.tensor([[*lasso.access, *lasso.loop, *[1] * width][:width] for lasso in words]).view(-1, width)
