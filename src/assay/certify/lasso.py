"""Lassos to a cycle: the infinite words u w w w ..., run until the machine's bits repeat at the same place of w."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.certify.machine import StateMachine, wrong
from assay.certify.search import Limits, OnStatus, SearchStatus
from assay.certify.table import LEFT_OUT, TaskTable
from assay.tasks.words import Lasso


@dataclass(frozen=True)
class LassoOutcome:
    """How many lassos are settled for every number of repetitions, and how many are still open after `length` tokens.

    `word` is the shortest wrong word among their prefixes.
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
    lassos = table.lassos()
    tokens = _tokens(lassos)
    access = torch.tensor([len(lasso.access) for lasso in lassos])
    loop = torch.tensor([len(lasso.loop) for lasso in lassos])
    rows = torch.arange(len(lassos))
    codes, states = machine.start().expand(len(lassos), -1), torch.zeros(len(lassos), dtype=torch.int64)
    saved, saved_states = codes.clone(), torch.full((len(lassos),), LEFT_OUT)
    length, settled, wrong_lassos, shortest = 0, 0, 0, None
    while len(rows) and time.perf_counter() - begin < limits.seconds:
        place = torch.where(length < access, length, access + (length - access) % loop)
        token = tokens[rows, place]
        states = table.moves[states, token - 1]
        logits, codes = machine.step(codes, token)
        is_wrong = wrong(logits, table.answers[states])
        length += 1
        if is_wrong.any():
            shortest = shortest or lassos[int(rows[is_wrong][0])].word(length)
        at_end = (length >= access + loop) & ((length - access) % loop == 0)
        repeated = at_end & ~is_wrong & (codes == saved).all(1) & (states == saved_states)
        wrong_lassos += int(is_wrong.sum())
        settled += int(repeated.sum())
        repetition = torch.where(at_end, (length - access) // loop, 0)
        is_power = at_end & ((repetition & (repetition - 1)) == 0)
        saved = torch.where(is_power[:, None], codes, saved)
        saved_states = torch.where(is_power, states, saved_states)
        is_open = ~is_wrong & ~repeated
        rows, codes, states, access, loop, saved, saved_states = (
            x[is_open] for x in (rows, codes, states, access, loop, saved, saved_states)
        )
        if length % 64 == 0:
            on_status(SearchStatus(length, settled, len(rows), time.perf_counter() - begin))
    return LassoOutcome(len(lassos), settled, wrong_lassos, len(rows), length, shortest)


def _tokens(lassos: list[Lasso]) -> Tensor:
    """The tokens of every lasso, access word then loop, filled up with 1."""
    width = max((len(lasso.access) + len(lasso.loop) for lasso in lassos), default=1)
    return torch.tensor([[*lasso.access, *lasso.loop, *[1] * width][:width] for lasso in lassos]).view(-1, width)
