"""Counter languages by the linear Transformer: its additive state counts, and a second layer counts mistakes."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from assay.models.linear_attention import LinearAttention
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.counter import AnBn, AnBnCn, EqualCounts
from assay.tasks.dyck import Dyck1, Shuffle
from assay.tasks.task import PAD, Task
from assay.theory.claim import Recurrent
from assay.theory.codes import binary_digits
from assay.theory.subspaces import Map, Relus, Space, attend, blank, embed, first_feature, say


def add_up(model: Model, layer: int, stream: Space, value: Map, into: Map) -> None:
    """Write the sum of `value` x over all positions so far: every key has features 1, and the query reads one of
    them."""
    attend(model, layer, first_feature(stream), torch.zeros(stream.width, stream.width), value, into)


class Counter(Recurrent):
    """Two layers of linear attention. The first counts, and its feed-forward part detects a mistake at this position;
    the second counts mistakes.

    All numbers are integers up to 4 N, and float32 represents all integers up to 2^24.
    """

    source: ClassVar[str] = "own; after Irie et al. 2023"
    N: ClassVar[int] = 2**22

    @property
    def exact_to(self) -> float:
        return self.N

    @abstractmethod
    def stream(self) -> Space:
        """The blocks: `symbol`, `one`, the counts and flags of a subclass, `wrong`, `errors` and `dead`."""

    @abstractmethod
    def count(self, model: Model, stream: Space) -> None:
        """Write the first layer, which sets `wrong`."""

    @abstractmethod
    def alive(self, stream: Space) -> Map:
        """The logits of all answers but dead: 0 for the right answer, at most -1 for the others."""

    def build(self, length: int) -> Model:
        task, stream = self.task(length), self.stream()
        mixers = (LinearAttention(heads=1, features="elu"),) * 2
        model = blank(Stack(name="counter", mixers=mixers, width=stream.width, ff=4, norm="none"), task)
        embed(model, stream.vector(symbol=torch.eye(len(task.symbols)), one=1.0))
        self.count(model, stream)
        add_up(model, 1, stream, stream.read("wrong"), stream.write("errors"))
        Relus(model, 1).between(stream.read("errors"), 0.0, stream.write("dead"))
        say(model, torch.cat([self.alive(stream), 2 * stream.read("dead") - stream.read("one")]))
        return model


# -- the same number of each letter --------------------------------------------------------------------------------


class Letters(Counter):
    """a^n b^n and so on. An `a` is wrong after any other letter. Another letter is wrong before the letter before it is
    complete, and if it then occurs more often than `a`."""

    length: ClassVar[int] = 120
    largest: ClassVar[int] = 30_000
    language: ClassVar[type[EqualCounts]]

    def task(self, length: int) -> EqualCounts:
        return self.language()

    def draw(self, length: int, rows: Rng) -> Tensor:
        """Every second input is a word of any length followed by random letters; the others are drawn as usual."""
        k = len(self.language.letters)
        whole = super().draw(length, rows)
        shorter = self.task(length).inputs((rows.child("n").integers(1, length // k)[:, 0] + 1) * k, rows, length)
        anything = rows.child("letters").integers(length, k) + 1
        mixed = torch.where(shorter == PAD, anything, shorter)
        return torch.where(rows.child("which").integers(1, 2) == 1, mixed, whole)

    def stream(self) -> Space:
        k = len(self.language.letters)
        return Space(symbol=k, one=1, count=k, short=k - 1, wrong=1, errors=1, dead=1)

    def count(self, model: Model, stream: Space) -> None:
        add_up(model, 0, stream, stream.read("symbol"), stream.write("count"))
        flags, wrong = Relus(model, 0), stream.write("wrong")
        letters, counts = stream.read("symbol").split(1), stream.read("count").split(1)
        a, n = letters[0], counts[0]
        # Each comparison is active only at its own letter: elsewhere the N of the letter is missing.
        flags.between(self.N * a + sum(counts[1:]), self.N, wrong)
        later = zip(letters[1:], counts, counts[1:], stream.write("short").split(1, dim=1), strict=False)
        for letter, before, now, short in later:
            flags.between(self.N * letter + n - before, self.N, wrong)
            flags.between(self.N * letter + now - n, self.N, wrong)
            flags.between(self.N * letter + n - now, self.N, short)

    def alive(self, stream: Space) -> Map:
        symbol, short, nothing = stream.read("symbol"), stream.read("short"), torch.zeros(1, stream.width)
        complete = symbol[1:] - short
        answers = torch.cat([symbol[:1], short, nothing]) + torch.cat([nothing, nothing, complete])
        return answers - stream.read("one")


class AnBnCounter(Letters):
    """A linear Transformer with two layers of width 9 solves a^n b^n for all strings up to length 2^22, including
    strings outside the language."""

    language: ClassVar[type[EqualCounts]] = AnBn


class AnBnCnCounter(Letters):
    """A linear Transformer with two layers of width 12 solves a^n b^n c^n for all strings up to length 2^22, including
    strings outside the language."""

    language: ClassVar[type[EqualCounts]] = AnBnCn


# -- brackets ------------------------------------------------------------------------------------------------------


class ShuffleCounter(Counter):
    """A linear Transformer with two layers of width 4 k + 4 solves Shuffle-k for all strings up to length 2^22,
    including strings outside the language.

    It counts the depth of every bracket type; a depth below 0 is a mistake.
    """

    length: ClassVar[int] = 120
    largest: ClassVar[int] = 30_000

    def __init__(self, k: int = 2) -> None:
        self.k = k

    def task(self, length: int) -> Task:
        return Shuffle(k=self.k)

    def draw(self, length: int, rows: Rng) -> Tensor:
        """Every second string opens one type of brackets as often as it can, and closes all of them or all but two."""
        position, top = torch.arange(length), length // 2 + rows.child("short").integers(1, 2)
        opening = 2 * rows.child("type").integers(1, self.k) + 1
        deep = torch.where(position < top, opening, opening + 1)
        return torch.where(rows.child("deep").integers(1, 2) == 1, deep, super().draw(length, rows))

    def stream(self) -> Space:
        return Space(symbol=2 * self.k, one=1, depth=self.k, open=self.k, wrong=1, errors=1, dead=1)

    def count(self, model: Model, stream: Space) -> None:
        brackets = stream.read("symbol")
        add_up(model, 0, stream, brackets[0::2] - brackets[1::2], stream.write("depth"))
        flags = Relus(model, 0)
        flags.between(stream.read("depth"), 0.0, stream.write("open"))
        flags.between(-stream.read("depth"), 0.0, stream.write("wrong").expand(-1, self.k))

    def alive(self, stream: Space) -> Map:
        """Minus the number of types that an answer has wrong; the first digit of an answer is the first type."""
        digits = binary_digits(2**self.k).flip(1)
        return (2 * digits - 1) @ stream.read("open") - digits.sum(1, keepdim=True) * stream.read("one")


class Dyck1Counter(ShuffleCounter):
    """A linear Transformer with two layers of width 8 solves Dyck-1 for all strings up to length 2^22, including
    strings outside the language."""

    def __init__(self) -> None:
        super().__init__(k=1)

    def task(self, length: int) -> Task:
        return Dyck1()
