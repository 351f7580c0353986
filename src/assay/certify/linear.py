"""Linear recurrences: given the token, the state changes by an affine map, so the state after u w^n is computed.

A common Lyapunov matrix, which would bound what the far past can do, is not computed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.certify.machine import StateMachine, wrong
from assay.certify.search import Limits, OnStatus, SearchStatus
from assay.certify.table import TaskTable
from assay.errors import BadInput
from assay.rng import Rng
from assay.tasks.words import Lasso

AFFINE = 1e-9  # the largest relative error of the affine map in float64
REPETITIONS = 1 << 14  # of a loop, that are computed one by one
DOUBLINGS = 30  # after them, only 2^15, 2^16, ... 2^30 repetitions
ONE = 1e-7  # an eigenvalue whose absolute value is as near to 1 counts as 1


class NotLinear(BadInput):
    """The state is not an affine function of the state before."""


@dataclass(frozen=True)
class LinearOutcome:
    """The lasso whose computed first wrong length is the least, and what decides it."""

    lassos: int
    numbers: int  # in a state
    lasso: Lasso | None = None
    length: int | None = None  # the computed first wrong length; beyond the repetitions that are listed, about
    eigenvalue: float | None = None  # the largest absolute value below 1 of the loop's map


class AffineMaps:
    """The maps of all tokens as matrices [A b; 0 1] in float64, that act on states with a last number 1."""

    def __init__(self, model: nn.Module, symbols: int) -> None:
        self.machine = StateMachine(model, "fixed:6.4")  # its steps, before they are rounded, are in float64
        size = self.machine.width
        points = torch.cat([torch.zeros(1, size), torch.eye(size), _random(size)]).double()
        self.matrices = []
        for token in range(1, symbols + 1):
            images = self._images(points, token)
            offset, linear = images[0], images[1 : size + 1] - images[0]
            predicted = points[size + 1 :] @ linear + offset
            if not torch.allclose(predicted, images[size + 1 :], rtol=AFFINE, atol=AFFINE):
                raise NotLinear(
                    "the state of the model is not an affine function of the state before: method linear is for one "
                    "layer of a linear recurrence, as delta-net with layers=1"
                )
            self.matrices.append(torch.block_diag(linear, torch.ones(1, 1, dtype=torch.float64)))
            self.matrices[-1][-1, :-1] = offset

    def _images(self, states: Float[Tensor, "rows numbers"], token: int) -> Float[Tensor, "rows numbers"]:
        return self.machine.unrounded_step(states, torch.full((len(states),), token))[1]

    def start(self) -> Float[Tensor, "1 numbers_and_one"]:
        numbers = self.machine._flat(self.machine.model.initial_state(1), 1)
        return torch.cat([numbers, torch.ones(1, 1, dtype=torch.float64)], dim=1)

    def of(self, word: tuple[int, ...]) -> Float[Tensor, "numbers_and_one numbers_and_one"]:
        """The map of a word; rows are states, so that it acts from the right."""
        identity = torch.eye(len(self.matrices[0]), dtype=torch.float64)
        return reduce(torch.matmul, (self.matrices[token - 1] for token in word), identity)


def _random(size: int) -> Float[Tensor, "4 size"]:
    return 2 * Rng.seeded(0, "certify", "affine").rows(4).normal(size)


def first_wrong_lengths(
    model: nn.Module, table: TaskTable, limits: Limits, on_status: OnStatus = lambda _: None
) -> LinearOutcome:
    """Compute, for every short lasso, the first length with a wrong answer; returns the least of them."""
    begin, maps = time.perf_counter(), AffineMaps(model, table.moves.shape[1])
    lassos = table.lassos()
    best = LinearOutcome(len(lassos), maps.machine.width)
    for number, lasso in enumerate(lassos):
        if time.perf_counter() - begin > limits.seconds:
            break
        on_status(SearchStatus(best.length or 0, number, len(lassos) - number, time.perf_counter() - begin))
        length = _first_wrong(maps, table, lasso)
        if length is not None and (best.length is None or length < best.length):
            absolute = torch.linalg.eigvals(maps.of(lasso.loop)[:-1, :-1]).abs()
            decaying = absolute[absolute < 1 - ONE]
            eigenvalue = float(decaying.max()) if len(decaying) else None
            best = LinearOutcome(len(lassos), maps.machine.width, lasso, length, eigenvalue)
    return best


def run_lasso(model: nn.Module, table: TaskTable, lasso: Lasso, longest: int, seconds: float) -> int | None:
    """The first wrong length of a lasso when the float32 model itself runs it; None if there is none to `longest`."""
    machine, begin, state = StateMachine(model, "float32"), time.perf_counter(), 0
    codes = machine.start()
    for length, token in enumerate(lasso.word(longest), start=1):
        state = int(table.moves[state, token - 1])
        logits, codes = machine.step(codes, torch.tensor([token]))
        if bool(wrong(logits, table.answers[[state]]).any()):
            return length
        if time.perf_counter() - begin > seconds:
            break
    return None


def _first_wrong(maps: AffineMaps, table: TaskTable, lasso: Lasso) -> int | None:
    """The first wrong length of a lasso after its access word; repetitions above the listed ones are bisected."""
    loop = maps.of(lasso.loop)
    states, power = maps.start() @ maps.of(lasso.access), loop
    while len(states) < REPETITIONS:
        states, power = torch.cat([states, states @ power]), power @ power
    task_states = _task_states(table, lasso, REPETITIONS)
    is_wrong = _wrong(maps, table, lasso, states, task_states)
    if is_wrong.any():
        repetition, place = (int(i) for i in is_wrong.nonzero()[0])
        return len(lasso.access) + repetition * len(lasso.loop) + place + 1
    low, high = REPETITIONS - 1, None
    for exponent in range(REPETITIONS.bit_length(), DOUBLINGS + 1):
        if _wrong_at(maps, table, lasso, states[:1], 1 << exponent):
            high = 1 << exponent
            break
        low = 1 << exponent
    if high is None:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _wrong_at(maps, table, lasso, states[:1], middle) else (middle, high)
    return len(lasso.access) + (high + 1) * len(lasso.loop)


def _wrong_at(maps: AffineMaps, table: TaskTable, lasso: Lasso, first: Tensor, repetitions: int) -> bool:
    """Whether an answer is wrong in the loop after so many repetitions."""
    state = first @ torch.linalg.matrix_power(maps.of(lasso.loop), repetitions)
    task_state = _task_states(table, lasso, repetitions + 1, last_only=True)
    return bool(_wrong(maps, table, lasso, state, task_state).any())


def _task_states(table: TaskTable, lasso: Lasso, count: int, last_only: bool = False) -> Tensor:
    """The task's states at the beginning of repetitions 0 to count - 1 of the loop, or of the last of them alone."""
    place: dict[int, int] = {}
    states: list[int] = []
    state = table.walk(lasso.access)
    while state not in place:
        place[state] = len(states)
        states.append(state)
        for token in lasso.loop:
            state = int(table.moves[state, token - 1])
    lead = place[state]
    numbers = torch.tensor([count - 1]) if last_only else torch.arange(count)
    places = torch.where(numbers < lead, numbers, lead + (numbers - lead) % (len(states) - lead))
    return torch.tensor(states)[places]


def _wrong(maps: AffineMaps, table: TaskTable, lasso: Lasso, states: Tensor, task_states: Tensor) -> Tensor:
    """Where the answers in the loop are wrong, from states at its beginning: [repetitions, places]."""
    columns, numbers = [], states[:, :-1]
    for token in lasso.loop:
        task_states = table.moves[task_states, token - 1]
        parts = [maps.machine.unrounded_step(x, torch.full((len(x),), token)) for x in numbers.split(4096)]
        columns.append(wrong(torch.cat([y for y, _ in parts]), table.answers[task_states]))
        numbers = torch.cat([x for _, x in parts])
    return torch.stack(columns, dim=1)
