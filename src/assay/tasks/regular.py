"""The regular languages of Irie et al. 2023, flip-flop, and arithmetic without brackets."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Annotated, ClassVar

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine, RegularTask, Walks
from assay.tasks.bins import Bin
from assay.tasks.prefix_tasks import FreeTask, PrefixTask
from assay.tasks.task import DEAD, IGNORE


class Parity(FreeTask, RegularTask):
    """The answer at every position is 1 if the number of 1s so far is even, and 0 otherwise.

    >>> Parity().explain("11110101")
    '01011001'
    """

    kind: ClassVar[str] = "parity"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1")
    moves: ClassVar[tuple[tuple[int, ...], ...]] = ((0, 1), (1, 0))
    accepting: ClassVar[tuple[int, ...]] = (0,)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        if self.questions == "at the end":  # the words of the language would all have the same answer
            return rng.integers(width, 2).add_(1)
        return super().draw(lengths, rng, width)


class Periodic(RegularTask):
    """A language with one word per length. Its test bins begin after 1, 2 and 4 times the longest training length."""

    train_lengths: ClassVar[tuple[int, int]] = (2, 500)

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        starts = enumerate((high, 2 * high, 4 * high), 1)
        longer = (Bin(name=f"Bin{i}", low=start + 1, high=start * 6 // 5) for i, start in starts if start >= 5)
        return Bin(name="Bin0", low=low, high=high), *longer


class EvenAs(Periodic):
    """(aa)*: 1 if the prefix has an even number of a.

    >>> EvenAs().explain("aaaa")
    '0101'
    """

    kind: ClassVar[str] = "even-a"
    symbols: ClassVar[tuple[str, ...]] = ("a",)
    moves: ClassVar[tuple[tuple[int, ...], ...]] = ((1,), (0,))
    accepting: ClassVar[tuple[int, ...]] = (0,)


class Abab(Periodic):
    """(abab)*: 1 if the prefix is in the language.

    >>> Abab().explain("abababab")
    '00010001'
    >>> Abab().explain("abba")
    '00!!'
    """

    kind: ClassVar[str] = "abab"
    symbols: ClassVar[tuple[str, ...]] = ("a", "b")
    moves: ClassVar[tuple[tuple[int, ...], ...]] = ((1, 4), (4, 2), (3, 4), (4, 0), (4, 4))
    accepting: ClassVar[tuple[int, ...]] = (0,)
    train_lengths: ClassVar[tuple[int, int]] = (4, 500)


class FlipFlop(FreeTask):
    """One bit that `s` sets, `r` resets and `-` keeps; it starts reset. Four tokens in five keep it.

    >>> FlipFlop().explain("-s--r-s")
    '0111001'
    """

    kind: ClassVar[str] = "flip-flop"
    symbols: ClassVar[tuple[str, ...]] = ("s", "r", "-")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    machine: ClassVar[Machine] = Machine(torch.tensor([[1, 0, 0], [1, 0, 1]]), torch.tensor([0, 1]))

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, 10).clamp_(max=2).add_(1)


class ModularArithmetic(PrefixTask):
    """The value modulo n of an expression over + - * with the usual precedence, after every number.

    Digits and operators alternate; every well-formed expression of a length is equally likely.

    >>> ModularArithmetic(n=5).explain("3-2*4+1")
    '3.1.0.1'
    >>> ModularArithmetic(n=5).explain("3+*")
    '3.!'
    """

    kind: ClassVar[str] = "modular-arithmetic"
    n: Annotated[int, Field(ge=2, le=10, description="the modulus; the digits are 0 to n - 1")] = 5
    train_lengths: ClassVar[tuple[int, int]] = (3, 49)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*map(str, range(self.n)), "+", "-", "*")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*map(str, range(self.n)), DEAD)

    @cached_property
    def machine(self) -> Machine:
        """States: 0 start, 1 dead, then (sum of the finished terms, current term, last operator or none)."""
        n = self.n
        none, plus, minus, times = range(4)

        def state(total: int, term: int, operator: int) -> int:
            return 2 + (total * n + term) * 4 + operator

        moves = torch.ones(state(n - 1, n - 1, times) + 1, n + 3, dtype=torch.int64)
        outputs = torch.full((len(moves),), IGNORE)
        outputs[1] = n
        for digit in range(n):
            moves[0, digit] = state(0, digit, none)
        for total, term, digit in product(range(n), repeat=3):
            value = (total + term) % n
            outputs[state(total, term, none)] = value
            for operator in (plus, minus, times):
                moves[state(total, term, none), n + operator - 1] = state(total, term, operator)
            moves[state(total, term, plus), digit] = state(value, digit, none)
            moves[state(total, term, minus), digit] = state(value, -digit % n, none)
            moves[state(total, term, times), digit] = state(total, term * digit % n, none)
        return Machine(moves, outputs)

    @cached_property
    def words(self) -> Walks:
        return Walks(self.machine, (self.machine.outputs >= 0) & (self.machine.outputs < self.n))

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return self.words.draw(lengths, rng, width)

    def log2_inputs(self, length: int) -> float:
        return self.words.log2_count(length)

    def fits(self, length: int) -> bool:
        return length >= 1 and length % 2 == 1
