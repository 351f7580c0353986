"""Questions about two strings x # y: equal, copied, disjoint (Bhattamishra et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import DEAD, IGNORE, Task, columns, symbols_named, unpadded


class TwoStrings(Task):
    """x # y with x and y of equal length. Symbols are tokens 1 to `alphabet`, # is token `alphabet` + 1."""

    alphabet: int
    train_lengths: ClassVar[tuple[int, int]] = (3, 51)

    @property
    def symbols(self) -> tuple[str, ...]:
        letters = ("0", "1") if self.alphabet == 2 else symbols_named("s", self.alphabet)
        return (*letters, "#")

    def marks(self, inputs: Int[Tensor, "rows time"]) -> Bool[Tensor, "rows time"]:
        return inputs == self.alphabet + 1

    def partner(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """After the first #, the symbol of x at the same position; 0 if there is none."""
        middle = torch.where(self.marks(inputs), columns(inputs), inputs.shape[1]).amin(1, keepdim=True)
        position = columns(inputs) - middle - 1
        return inputs.gather(1, position.clamp(min=0)).where((position >= 0) & (position < middle), 0)

    def well_formed(self, inputs: Int[Tensor, "rows time"]) -> Bool[Tensor, "rows time"]:
        """Whether the prefix is x # y with one # and halves of equal length."""
        marks = self.marks(inputs).cumsum(1)
        behind = ((marks == 1) & unpadded(inputs)).cumsum(1)
        return (marks == 1) & (columns(inputs) + 1 == 2 * behind - 1)

    def fits(self, length: int) -> bool:
        return length >= 3 and length % 2 == 1

    def log2_inputs(self, length: int) -> float:
        return length // 2 * math.log2(self.alphabet)  # x # x

    def half(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows half"]:
        return rng.integers(width // 2, self.alphabet) + 1

    def join(self, lengths: Tensor, x: Tensor, y: Tensor, width: int) -> Int[Tensor, "rows time"]:
        """x # y, with halves that fit each row's length."""
        n = (lengths // 2)[:, None]
        time = torch.arange(width, device=lengths.device)
        first = x.gather(1, time.clamp(max=x.shape[1] - 1).expand(len(x), -1))
        second = y.gather(1, (time - n - 1).clamp(0, y.shape[1] - 1))
        return torch.where(time < n, first, torch.where(time == n, self.alphabet + 1, second))

    def first_halves(self, shortest: int, longest: int) -> list[list[int]]:
        """Constant, alternating and random strings, of the smallest and the largest size."""
        sizes = sorted({self.lengths(shortest, longest)[i] // 2 for i in (0, -1)})
        drawn = (Rng.seeded(0, "probes").integers(max(sizes), self.alphabet) + 1).tolist()
        return [
            half
            for n in sizes
            for half in ([1] * n, [self.alphabet] * n, ([1, 2] * n)[:n], [1] * (n - 1) + [2], drawn[:n])
        ]

    def pairs_of(self, name: str, pairs: Iterable[tuple[list[int], list[int]]]) -> Probe:
        return Probe(name, rows_of([*x, self.alphabet + 1, *y] for x, y in pairs))


def changed(x: list[int], position: int, alphabet: int) -> list[int]:
    """x with the next symbol of the alphabet at one position."""
    return [symbol % alphabet + 1 if i == position else symbol for i, symbol in enumerate(x)]


class Decision(TwoStrings):
    """A yes/no question about the two strings, answered at the end; half of the inputs are positives."""

    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    answers: ClassVar[tuple[str, ...]] = ("0", "1")


class Equality(Decision):
    """1 if both halves are the same string."""

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        partner = self.partner(inputs)
        differs = ((partner > 0) & (partner != inputs)).cumsum(1) > 0
        return (self.well_formed(inputs) & ~differs).long()

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Equal strings, and strings that differ in their first, middle or last symbol alone."""
        halves = self.first_halves(trained[0], longest)
        places = [(x, i) for x in halves for i in sorted({0, len(x) // 2, len(x) - 1})]
        return [
            self.pairs_of("equal", ((x, x) for x in halves)),
            self.pairs_of("one different symbol", ((x, changed(x, i, self.alphabet)) for x, i in places)),
        ]


class EqualityRandom(Equality):
    """x # y: is y = x? If not, y is another random string (if it equals x by chance, one symbol is changed).

    >>> EqualityRandom().explain("0110#0110")
    '........1'
    >>> EqualityRandom().explain("0110#0111")
    '........0'
    """

    kind: ClassVar[str] = "equality-random"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 2

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        x, y = (self.half(lengths, rng.child(name), width) for name in "xy")
        inside = torch.arange(width // 2, device=x.device) < (lengths // 2)[:, None]
        same = ((x == y) | ~inside).all(1, keepdim=True)
        y = torch.where(same, change_one(y, lengths // 2, self.alphabet, rng), y)
        equal = rng.child("label").integers(1, 2) == 1
        return self.join(lengths, x, torch.where(equal, x, y), width)


class EqualityOne(Equality):
    """x # y: is y = x? If not, exactly one symbol of y differs.

    >>> EqualityOne(alphabet=8).explain("s7 s2 # s7 s2")
    '. . . . 1'
    """

    kind: ClassVar[str] = "equality-one"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 1024

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        x = self.half(lengths, rng.child("x"), width)
        equal = rng.child("label").integers(1, 2) == 1
        y = torch.where(equal, x, change_one(x, lengths // 2, self.alphabet, rng))
        return self.join(lengths, x, y, width)


def change_one(x: Int[Tensor, "rows n"], lengths: Tensor, alphabet: int, rng: Rng) -> Int[Tensor, "rows n"]:
    """x with one uniformly chosen symbol of each row replaced by another uniformly chosen symbol."""
    position = rng.child("place").integers(1, lengths[:, None])
    shift = rng.child("shift").integers(1, alphabet - 1) + 1
    return x.scatter(1, position, (x.gather(1, position) - 1 + shift) % alphabet + 1)


class EqualityNcp(TwoStrings):
    """x # x as next-character prediction, which is copying: from # on, the answer is the next symbol.

    >>> EqualityNcp(alphabet=8).explain("s7 s2 s5 # s7 s2 s5")
    '. . . s7 s2 s5 .'
    >>> EqualityNcp(alphabet=8).explain("s7 s2 s5 # s7 s4 s5")
    '. . . s7 s2 ! .'
    """

    kind: ClassVar[str] = "equality-ncp"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 1024

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.symbols[:-1], DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        partner = self.partner(inputs)
        wrong = ((partner > 0) & (partner != inputs)).cumsum(1) > 0
        upcoming = self.partner(torch.nn.functional.pad(inputs, (0, 1)))[:, 1:]
        return torch.where(upcoming == 0, IGNORE, torch.where(wrong, self.alphabet, upcoming - 1))

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        x = self.half(lengths, rng, width)
        return self.join(lengths, x, x, width)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Strings in which the next symbol does not follow from the last few."""
        return [self.pairs_of("copies", ((x, x) for x in self.first_halves(trained[0], longest)))]


class Disjointness(Decision):
    """x # y, two sets as bit strings: 1 if no position has a 1 in both.

    In a positive every position is uniform over 00, 01, 10; in a negative one uniformly chosen position becomes 11.

    >>> Disjointness().explain("0110#1001")
    '........1'
    >>> Disjointness().explain("0110#0011")
    '........0'
    """

    kind: ClassVar[str] = "disjointness"
    alphabet: Annotated[Literal[2], Field(description="number of symbols; always 2")] = 2

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        meets = ((self.partner(inputs) == 2) & (inputs == 2)).cumsum(1) > 0
        return (self.well_formed(inputs) & ~meets).long()

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        pair = rng.child("pairs").integers(width // 2, 3)
        position = rng.child("place").integers(1, (lengths // 2)[:, None])
        meets = rng.child("label").integers(1, 2) == 0
        pair = torch.where(meets, pair.scatter(1, position, 3), pair)
        return self.join(lengths, (pair >= 2).long() + 1, pair % 2 + 1, width)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Complements, which are disjoint and full, and complements that meet in their first, middle or last place."""
        halves = self.first_halves(trained[0], longest)
        full = [(x, [3 - bit for bit in x]) for x in halves]
        meeting = [
            ([2 if j == i else bit for j, bit in enumerate(x)], [2 if j == i else bit for j, bit in enumerate(y)])
            for x, y in full
            for i in sorted({0, len(x) // 2, len(x) - 1})
        ]
        return [self.pairs_of("complements", full), self.pairs_of("one meeting", meeting)]

    def log2_inputs(self, length: int) -> float:
        """3^n disjoint pairs, n 3^(n-1) that meet in one position."""
        n = length // 2
        return (n - 1) * math.log2(3) + math.log2(min(3, n))
