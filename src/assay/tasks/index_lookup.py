"""Index lookup (Bhattamishra et al. 2024): the symbol at a given position."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bins import Bin
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import DEAD, Task, columns, symbols_named, unpadded


class IndexLookup(Task):
    """x_1 ... x_k p: the answer at the index token @p is x_p. The answer to strings of any other form is `dead`.

    Symbols and index are uniform. Training uses up to `positions` symbols, Bin1 exactly that many.

    >>> IndexLookup(alphabet=3, positions=5).explain("s2 s0 s1 s1 @2")
    '. . . . s0'
    >>> IndexLookup(alphabet=3, positions=5).explain("s2 s0 @3")
    '. . !'
    """

    kind: ClassVar[str] = "index-lookup"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 64
    positions: Annotated[int, Field(ge=2, le=2**16, description="the most symbols before an index in training")] = 100

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*symbols_named("s", self.alphabet), *(f"@{p}" for p in range(1, self.positions + 1)))

    @property
    def answers(self) -> tuple[str, ...]:
        return (*symbols_named("s", self.alphabet), DEAD)

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return min(11, self.positions), self.positions + 1

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        index = inputs - self.alphabet - 1  # the position in the token, counted from 0; negative for symbols
        target = inputs.gather(1, index.clamp(0, inputs.shape[1] - 1)) - 1
        points_back = (index >= 0) & (index < columns(inputs))
        only_index = (index >= 0).cumsum(1) == 1
        return torch.where(points_back & only_index & unpadded(inputs), target, self.alphabet)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        symbols = rng.child("symbols").integers(width, self.alphabet) + 1
        index = rng.child("index").integers(1, (lengths - 1)[:, None]) + 1 + self.alphabet
        return symbols.scatter(1, (lengths - 1)[:, None], index)

    def log2_inputs(self, length: int) -> float:
        return (length - 1) * math.log2(self.alphabet) + math.log2(length - 1)

    def fits(self, length: int) -> bool:
        return 2 <= length <= self.positions + 1

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The first, last and other extreme positions; and strings of one symbol with another one at the index."""
        random, lonely = [], []
        drawn = Rng.seeded(0, "probes").integers(longest, self.alphabet).tolist()
        for length in sorted({n for n in (trained[0], (trained[0] + longest) // 2, longest) if self.fits(n)}):
            k = length - 1
            for p in sorted({1, 2, (k + 1) // 2, k - 1, k} & set(range(1, k + 1))):
                index = self.alphabet + p
                random.append([*(symbol + 1 for symbol in drawn[:k]), index])
                lonely += [[*(2 if i == p else 1 for i in range(1, k + 1)), index]]
                lonely += [[*(self.alphabet - (i == p) for i in range(1, k + 1)), index]]
        return [Probe("extreme positions", rows_of(random)), Probe("one different symbol", rows_of(lonely))]

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        longest = self.positions + 1
        return Bin(name="Bin0", low=low, high=high), Bin(name="Bin1", low=longest, high=longest)
