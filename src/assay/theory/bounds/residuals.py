"""How many prefixes must be told apart at a cut: finite automata and counters, in closed form or nearly so.

Two prefixes of the same length must be told apart where some suffix gets two different answers behind them. What is
answered at the prefix itself does not count: a machine that sees the last symbol beside its state may say that already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, singledispatch
from itertools import count
from math import comb

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.tasks.automaton import Machine, RegularTask
from assay.tasks.counter import EqualCounts
from assay.tasks.dyck import BoundedDyck, Dyck1, ResetDyck1, Shuffle
from assay.tasks.groups import WordProblem
from assay.tasks.regular import FLIP_FLOP, FlipFlop
from assay.tasks.task import Task


@singledispatch
def told_apart(task: Task, before: int, after: int) -> int:
    """Classes of the strings of `before` symbols with regard to those of `after` more; both at least 1."""
    raise NotImplementedError


# -- counters ------------------------------------------------------------------------------------------------------


@told_apart.register
def _(task: Dyck1, before: int, after: int) -> int:
    """A depth is told from a greater one by closing all that is open: those beyond `after` are one class."""
    return _depths(1, before, after) + 1  # and the dead


@told_apart.register
def _(task: Shuffle, before: int, after: int) -> int:
    return _depths(task.k, before, after) + 1


@told_apart.register
def _(task: ResetDyck1, before: int, after: int) -> int:
    """A reset earlier or later gives any depth, even or odd."""
    return min(before, after + 1) + 1 + 1


def _depths(k: int, before: int, after: int) -> int:
    """Depths of k bracket types whose sum is `before`, less an even number, each counted up to `after` + 1.

    Where some are beyond `after`, these make up for any sum, even or odd.
    """
    one = after + 1
    beyond = (comb(k, some) * _small(_up_to, k - some, one, before - some * one) for some in range(1, k + 1))
    return _small(_every_other, k, one, before) + sum(beyond)


def _up_to(k: int, total: int) -> int:
    """How many rows of k whole numbers sum to at most this."""
    return comb(total + k, k)


def _every_other(k: int, total: int) -> int:
    """How many rows of k whole numbers sum to this, or an even number less: x^total of 1 / ((1 - x)^k (1 - x^2)).

    >>> _every_other(1, 4), _every_other(2, 3)
    (3, 6)
    """
    return (sum(comb(total + m, m) << m for m in range(k + 1)) + (1 - total % 2 * 2)) >> (k + 1)


def _small(rows: Callable[[int, int], int], k: int, below: int, total: int) -> int:
    """The same with every number below a bound, by inclusion and exclusion of those that are not."""
    over = range(min(k, total // below) + 1)
    return sum((1 - i % 2 * 2) * comb(k, i) * rows(k, total - i * below) for i in over)


@told_apart.register
def _(task: EqualCounts, before: int, after: int) -> int:
    """Besides a^t and the dead (whom the complete word joins): how many of the current letter are still to come.

    Letter number p stands in a prefix of t = p n + l symbols, and r = n - l = (p + 1) n - t more must follow. Two such
    r are told apart by the smaller; those beyond `after` are one class.
    """
    classes = 2
    for p in range(1, len(task.letters)):
        least, most = before // (p + 1) + 1, (before - (p == 1)) // p  # n with r >= 1, and l >= 0 (>= 1 behind a^n)
        seen = (before + after) // (p + 1)  # n with r <= after
        classes += max(0, min(most, seen) - least + 1) + (most > max(seen, least - 1))
    return classes


# -- automata ------------------------------------------------------------------------------------------------------


@told_apart.register
def _(task: RegularTask | WordProblem | BoundedDyck | FlipFlop, before: int, after: int) -> int:
    return automaton(task).told_apart(before, after)


@cache
def automaton(task: RegularTask | WordProblem | BoundedDyck | FlipFlop) -> Automaton:
    machine = FLIP_FLOP if isinstance(task, FlipFlop) else task.machine
    return Automaton(machine, at_the_end=task.answer_positions == "at the end")


class Automaton:
    """The states of a Moore machine, and when they are told apart."""

    def __init__(self, machine: Machine, at_the_end: bool) -> None:
        self.moves = moves = machine.moves
        next_said = machine.outputs[moves]
        first = _numbered(next_said)
        self.reached = Unrolled(torch.arange(len(moves)) == machine.start, self._step)
        self.within = Unrolled(first, lambda told: _numbered(torch.cat([next_said, told[moves]], dim=1)))
        self.exactly = Unrolled(first, lambda told: _numbered(told[moves])) if at_the_end else self.within

    def _step(self, reached: Bool[Tensor, "states"]) -> Bool[Tensor, "states"]:
        return torch.zeros_like(reached).index_fill(0, self.moves[reached].flatten(), value=True)

    def told_apart(self, before: int, after: int) -> int:
        return len(self.exactly(after - 1)[self.reached(before)].unique())

    @cached_property
    def minimal(self) -> tuple[int, int]:
        """How many states strings of any length tell apart, and the length from which on they all are.

        These are the states of the minimal automaton that answers on its moves.
        """
        ever = torch.zeros(len(self.moves), dtype=torch.bool)
        for before in count():
            if (self.reached(before) <= ever).all():
                break
            ever |= self.reached(before)
        settled = next(s for s in count() if torch.equal(self.within(s), self.within(s + 1)))
        return len(self.within(settled)[ever].unique()), before + settled


class Unrolled:
    """start, step(start), step(step(start)), ...: once it has come back to itself, nothing new is computed.

    >>> Unrolled(torch.tensor(0), lambda x: (x + 1) % 3)(10**6)
    tensor(1)
    """

    def __init__(self, start: Tensor, step: Callable[[Tensor], Tensor]) -> None:
        self.step, self.seen, self.places = step, [start], {start.numpy().tobytes(): 0}
        self.period = 0

    def __call__(self, n: int) -> Tensor:
        while n >= len(self.seen) and not self.period:
            new = self.step(self.seen[-1])
            place = self.places.setdefault(new.numpy().tobytes(), len(self.seen))
            if place == len(self.seen):
                self.seen.append(new)
            else:
                self.period = len(self.seen) - place
        if n >= len(self.seen):
            n = len(self.seen) - self.period + (n - len(self.seen)) % self.period
        return self.seen[n]


def _numbered(rows: Int[Tensor, "states columns"]) -> Int[Tensor, "states"]:
    """Equal rows get equal numbers, in the order in which they first come."""
    number: dict[bytes, int] = {}
    return torch.tensor([number.setdefault(row.tobytes(), len(number)) for row in rows.numpy()])
