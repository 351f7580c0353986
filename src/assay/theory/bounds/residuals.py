"""The number of prefixes that must be told apart at a cut, for finite automata and counters.

Two prefixes of the same length must be told apart if some suffix gets different answers after them. The answers at the
prefix itself do not count, since a machine may compute them from its state and the last symbol.
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
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.counter import EqualCounts
from assay.tasks.dyck import Dyck1, ResetDyck1, Shuffle
from assay.tasks.groups import WordProblem
from assay.tasks.regular import FlipFlop
from assay.tasks.task import Task


@singledispatch
def told_apart(task: Task, before: int, after: int) -> int:
    """The number of classes of strings of `before` symbols that suffixes of `after` symbols tell apart; both at least
    1."""
    raise NotImplementedError


# -- counters ------------------------------------------------------------------------------------------------------


@told_apart.register
def _(task: Dyck1, before: int, after: int) -> int:
    """Closing all open brackets tells a depth from greater depths, so all depths beyond `after` are one class."""
    return _depths(1, before, after) + 1  # one more class: dead


@told_apart.register
def _(task: Shuffle, before: int, after: int) -> int:
    return _depths(task.k, before, after) + 1


@told_apart.register
def _(task: ResetDyck1, before: int, after: int) -> int:
    """A reset can come at any position, so a depth may be even or odd."""
    return min(before, after + 1) + 1 + 1


def _depths(k: int, before: int, after: int) -> int:
    """The number of tuples of depths of k bracket types that sum to `before` minus an even number, each depth capped at
    `after` + 1.

    If some depths are capped, the sum may be even or odd.
    """
    cap = after + 1
    capped = (comb(k, count) * _small(_up_to, k - count, cap, before - count * cap) for count in range(1, k + 1))
    return _small(_every_other, k, cap, before) + sum(capped)


def _up_to(k: int, total: int) -> int:
    """The number of k-tuples of natural numbers with a sum of at most `total`."""
    return comb(total + k, k)


def _every_other(k: int, total: int) -> int:
    """The number of k-tuples of natural numbers with the sum `total` minus an even number: the coefficient of x^total
    in 1 / ((1 - x)^k (1 - x^2)).

    >>> _every_other(1, 4), _every_other(2, 3)
    (3, 6)
    """
    return (sum(comb(total + m, m) << m for m in range(k + 1)) + (1 - total % 2 * 2)) >> (k + 1)


def _small(rows: Callable[[int, int], int], k: int, below: int, total: int) -> int:
    """The same count with every number below a bound, by inclusion and exclusion."""
    over = range(min(k, total // below) + 1)
    return sum((1 - i % 2 * 2) * comb(k, i) * rows(k, total - i * below) for i in over)


@told_apart.register
def _(task: EqualCounts, before: int, after: int) -> int:
    """The classes are a^t, dead (with the complete word), and the number r of current letters that must still follow.

    A prefix of t = p n + l symbols ends in letter number p, and r = n - l = (p + 1) n - t. The smaller of two numbers r
    tells them apart; all r beyond `after` are one class.
    """
    classes = 2
    for p in range(1, len(task.letters)):
        least, most = before // (p + 1) + 1, (before - (p == 1)) // p  # n with r >= 1, and l >= 0 (>= 1 after a^n)
        seen = (before + after) // (p + 1)  # n with r <= after
        classes += max(0, min(most, seen) - least + 1) + (most > max(seen, least - 1))
    return classes


# -- automata ------------------------------------------------------------------------------------------------------


@told_apart.register
def _(task: RegularTask | WordProblem | BoundedDyck | FlipFlop, before: int, after: int) -> int:
    return automaton(task).told_apart(before, after)


@cache
def automaton(task: RegularTask | WordProblem | BoundedDyck | FlipFlop) -> Automaton:
    return Automaton(task.machine, at_the_end=task.answer_positions == "at the end")


class Automaton:
    """The states of a Moore machine, and the lengths at which they are told apart."""

    def __init__(self, machine: Machine, at_the_end: bool) -> None:
        self.moves = moves = machine.moves
        next_answers = machine.outputs[moves]
        first = _numbered(next_answers)
        self.reached = Unrolled(torch.arange(len(moves)) == machine.start, self._step)
        self.within = Unrolled(first, lambda classes: _numbered(torch.cat([next_answers, classes[moves]], dim=1)))
        self.exactly = Unrolled(first, lambda classes: _numbered(classes[moves])) if at_the_end else self.within

    def _step(self, reached: Bool[Tensor, "states"]) -> Bool[Tensor, "states"]:
        return torch.zeros_like(reached).index_fill(0, self.moves[reached].flatten(), value=True)

    def told_apart(self, before: int, after: int) -> int:
        return len(self.exactly(after - 1)[self.reached(before)].unique())

    @cached_property
    def minimal(self) -> tuple[int, int]:
        """The number of states that strings of any length tell apart, and the least length that tells all apart.

        These are the states of the minimal Mealy machine, which answers on its moves.
        """
        ever = torch.zeros(len(self.moves), dtype=torch.bool)
        for before in count():
            if (self.reached(before) <= ever).all():
                break
            ever |= self.reached(before)
        settled = next(s for s in count() if torch.equal(self.within(s), self.within(s + 1)))
        return len(self.within(settled)[ever].unique()), before + settled


class Unrolled:
    """The sequence start, step(start), step(step(start)), ...; nothing is computed once it repeats.

    >>> Unrolled(torch.tensor(0), lambda x: (x + 1) % 3)(10**6)
    tensor(1)
    """

    def __init__(self, start: Tensor, step: Callable[[Tensor], Tensor]) -> None:
        self.step, self.seen, self.index = step, [start], {start.numpy().tobytes(): 0}
        self.period = 0

    def __call__(self, n: int) -> Tensor:
        while n >= len(self.seen) and not self.period:
            new = self.step(self.seen[-1])
            first = self.index.setdefault(new.numpy().tobytes(), len(self.seen))
            if first == len(self.seen):
                self.seen.append(new)
            else:
                self.period = len(self.seen) - first
        if n >= len(self.seen):
            n = len(self.seen) - self.period + (n - len(self.seen)) % self.period
        return self.seen[n]


def _numbered(rows: Int[Tensor, "states columns"]) -> Int[Tensor, "states"]:
    """Number the distinct rows in the order of their first occurrence."""
    number: dict[bytes, int] = {}
    return torch.tensor([number.setdefault(row.tobytes(), len(number)) for row in rows.numpy()])
