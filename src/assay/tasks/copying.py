"""Copying: x # x with repeated or with distinct symbols; the one symbol that is missing in a string and its copy."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bins import Bin, doubling_bins
from assay.tasks.equality import EqualityNcp
from assay.tasks.probes import Probe, rows_of
from assay.tasks.recall import distinct
from assay.tasks.task import DEAD, Task, columns, symbols_named, unpadded


class Copy(EqualityNcp):
    """x # x over few symbols, which occur repeatedly (Zhou et al. 2024): from # on, the answer is the next symbol.

    The last symbols that were read do not say where in x the copy has arrived.

    >>> Copy().explain("0010#0010")
    '....0010.'
    """

    kind: ClassVar[str] = "copy"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 2


class UniqueCopy(EqualityNcp):
    """x # x in which no symbol occurs twice in x: the last symbol read says which one is next (Zhou et al. 2024).

    >>> UniqueCopy(alphabet=8).explain("s7 s2 s5 # s7 s2 s5")
    '. . . s7 s2 s5 .'
    """

    kind: ClassVar[str] = "unique-copy"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 512

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return 3, min(51, 2 * self.alphabet + 1)

    def half(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows half"]:
        size = width // 2
        half = distinct(min(size, self.alphabet), self.alphabet, rng) + 1
        return torch.nn.functional.pad(half, (0, size - half.shape[1]))

    def fits(self, length: int) -> bool:
        return super().fits(length) and length // 2 <= self.alphabet

    def log2_inputs(self, length: int) -> float:
        return (math.lgamma(self.alphabet + 1) - math.lgamma(self.alphabet - length // 2 + 1)) / math.log(2)

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        return doubling_bins(low, high, longest=max(high, 2 * self.alphabet + 1))

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Symbols in ascending and in descending order, and a random order."""
        orders = []
        for size in sorted({self.lengths(trained[0], longest)[i] // 2 for i in (0, -1)}):
            up = list(range(1, size + 1))
            orders += [up, up[::-1], [self.alphabet + 1 - symbol for symbol in up]]
            orders.append((distinct(size, self.alphabet, Rng.seeded(0, "probes").rows(1))[0] + 1).tolist())
        return [self.pairs_of("copies", ((x, x) for x in orders))]


class MissingDuplicate(Task):
    """x x with one symbol replaced by a blank: which one? (Delétang et al. 2023)

    The answer to strings of any other form is `dead`.

    >>> MissingDuplicate().explain("011001_0")
    '.......1'
    >>> MissingDuplicate().explain("011011_0")
    '.......!'
    """

    kind: ClassVar[str] = "missing-duplicate"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    train_lengths: ClassVar[tuple[int, int]] = (2, 40)
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 2

    @property
    def letters(self) -> tuple[str, ...]:
        return ("0", "1") if self.alphabet == 2 else symbols_named("s", self.alphabet)

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*self.letters, "_")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.letters, DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """The answer to the whole input, at every position."""
        inside, time = unpadded(inputs), columns(inputs)
        length = inside.sum(1, keepdim=True)
        half = length // 2
        partner = inputs.gather(1, torch.where(time < half, time + half, time - half).clamp(0, inputs.shape[1] - 1))
        blank = (inputs == self.alphabet + 1) & inside
        differs = ((inputs != partner) & inside).sum(1, keepdim=True)  # both at the blank and at its partner
        proper = (length % 2 == 0) & (blank.sum(1, keepdim=True) == 1) & (differs == 2)
        missing = partner.where(blank, 0).sum(1, keepdim=True) - 1
        return torch.where(proper, missing, self.alphabet).expand_as(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        x = rng.child("symbols").integers(max(1, width // 2), self.alphabet) + 1
        time = torch.arange(width, device=lengths.device)
        rows = x.gather(1, (time % (lengths // 2)[:, None]).clamp(max=x.shape[1] - 1))
        return rows.scatter(1, rng.child("place").integers(1, lengths[:, None]), self.alphabet + 1)

    def fits(self, length: int) -> bool:
        return length >= 2 and length % 2 == 0

    def log2_inputs(self, length: int) -> float:
        """Of all inputs; each symbol is missing in as many of them."""
        return (length // 2 - 1) * math.log2(self.alphabet) + math.log2(length)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The first, last and middle place; strings of one symbol, with and without another one at that place."""
        rows = []
        for size in sorted({self.lengths(trained[0], longest)[i] // 2 for i in (0, -1)}):
            for place in sorted({0, size // 2, size - 1}):
                for symbol, other in ((1, 1), (1, 2), (2, 1)):
                    x = [other if i == place else symbol for i in range(size)]
                    masked = [*x[:place], self.alphabet + 1, *x[place + 1 :]]
                    rows += [[*masked, *x], [*x, *masked]]
        return [Probe("one different symbol", rows_of(rows))]
