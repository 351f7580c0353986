"""State tracking: flip-flop language modelling, even pairs, cycle navigation, the languages of Tomita, majority."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine, Walks
from assay.tasks.bins import Bin, doubling_bins
from assay.tasks.prefix_tasks import FreeTask
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import DEAD, IGNORE, Task, columns


class FlipFlopLanguage(Task):
    """Flip-flop language modelling (Liu et al. 2023b): instructions `w`, `r`, `i`, each followed by a bit.

    `w` writes its bit, `i` says that its bit is to be ignored, and after `r` comes the bit that was written last: this
    is the question, asked at every `r`. The first instruction is `w` and the last is `r`; the others are `i` with
    probability `ignore`, and else `w` or `r` alike. Bits after `w` and `i` are fair coins. Beside longer inputs, there
    are test bins with fewer instructions that matter (sparse, ignore = 0.98) and with more (dense, ignore = 0.1).

    >>> FlipFlopLanguage().explain("w1i0r1w0r0")
    '....1...0.'
    >>> FlipFlopLanguage().explain("w1r0r")
    '..1!!'
    """

    kind: ClassVar[str] = "flip-flop-language"
    symbols: ClassVar[tuple[str, ...]] = ("w", "r", "i", "0", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", DEAD)
    train_lengths: ClassVar[tuple[int, int]] = (512, 512)
    ignore: Annotated[float, Field(ge=0, le=1, description="the probability of the instruction `i`")] = 0.8

    @cached_property
    def machine(self) -> Machine:
        """States: 0 start, 1 dead, 2 after w, then for each bit: written, after r, after i."""
        moves = torch.ones(9, 5, dtype=torch.int64)
        outputs = torch.tensor([IGNORE, 2, IGNORE, IGNORE, 0, IGNORE, IGNORE, 1, IGNORE])
        moves[0, 0] = 2
        moves[2, 3:] = torch.tensor([3, 6])
        for bit, written in enumerate((3, 6)):
            moves[written, :3] = torch.tensor([2, written + 1, written + 2])
            moves[written + 1, 3 + bit] = written
            moves[written + 2, 3:] = written
        return Machine(moves, outputs)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        count = (width + 1) // 2
        number = torch.arange(count, device=lengths.device)
        uniform = rng.child("instructions").uniform(count)
        writes = torch.where(uniform < self.ignore + (1 - self.ignore) / 2, 0, 1)
        instruction = torch.where(uniform < self.ignore, 2, writes)
        instruction = torch.where(number == 0, 0, torch.where(number == (lengths // 2 - 1)[:, None], 1, instruction))
        bits = rng.child("bits").integers(count, 2)
        last_write = torch.where(instruction == 0, number, 0).cummax(1).values
        bits = torch.where(instruction == 1, bits.gather(1, last_write), bits)
        return torch.stack([instruction + 1, bits + 4], dim=2).flatten(1)[:, :width]

    def log2_inputs(self, length: int) -> float:
        """Of the inputs with `i` alone between the first and the last instruction, or of all if `i` never occurs."""
        between = length // 2 - 2
        if self.ignore == 0:  # all strings of w and r with a bit after each w
            return 1 + between * math.log2(3)
        return 1 + between

    def fits(self, length: int) -> bool:
        return length >= 4 and length % 2 == 0

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        """Beside Bin0 and longer inputs: the sparse and the dense test of the paper, at the longest training length."""
        longest = self.lengths(low, high)[-1]
        bin0, *longer = doubling_bins(low, high)
        return (
            bin0,
            Bin(name="Sparse", low=longest, high=longest, options=(("ignore", 0.98),)),
            Bin(name="Dense", low=longest, high=longest, options=(("ignore", 0.1),)),
            *longer[:1],
        )

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """One bit that is asked for at the end alone, behind bits to ignore; or again and again.

        It is written first; or it overwrites the other bit, in the second instruction or in the last but one.
        """
        once, often, changing, overwritten = [], [], [], []
        for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
            between = length // 2 - 2
            for bit in (4, 5):
                ask = [2, bit]
                once += [[1, bit, *[3, ignored] * between, *ask] for ignored in (4, 5)]
                often.append([1, bit, *ask * (between + 1)])
                changing.append([1, bit, *[1, 9 - bit, 1, bit] * (between // 2), *ask * (1 + between % 2)])
                if between:
                    old, new, ignored = [1, 9 - bit], [1, bit], [3, 9 - bit] * (between - 1)
                    overwritten += [[*old, *new, *ignored, *ask], [*old, *ignored, *new, *ask]]
        named = {
            "one late question": once,
            "questions alone": often,
            "writes alone": changing,
            "overwritten": overwritten,
        }
        return [Probe(name, rows_of(rows)) for name, rows in named.items()]


class EvenPairs(FreeTask):
    """1 if 01 and 10 together occur an even number of times, which means: if the first and the last symbol are equal.

    >>> EvenPairs().explain("0110")
    '1001'
    """

    kind: ClassVar[str] = "even-pairs"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    # The start, then for each first symbol the states in which the last symbol is 0 or 1.
    machine: ClassVar[Machine] = Machine(
        torch.tensor([[1, 4], [1, 2], [1, 2], [3, 4], [3, 4]]), torch.tensor([1, 1, 0, 0, 1])
    )

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, 2).add_(1)


class CycleNavigation(FreeTask):
    """The place on a cycle of n places after steps forwards (`+`), backwards (`-`) or none (`0`); it starts at place 0.

    >>> CycleNavigation().explain("++0-----")
    '12210432'
    """

    kind: ClassVar[str] = "cycle-navigation"
    symbols: ClassVar[tuple[str, ...]] = ("0", "+", "-")
    n: Annotated[int, Field(ge=2, le=1024, description="places on the cycle")] = 5

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.n)))

    @cached_property
    def machine(self) -> Machine:
        place = torch.arange(self.n)
        return Machine(torch.stack([place, (place + 1) % self.n, (place - 1) % self.n], dim=1), place)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, 3).add_(1)


# By grammar: the moves on 0 and 1, and the accepting states.
TOMITA: dict[int, tuple[list[list[int]], list[int]]] = {
    1: ([[1, 0], [1, 1]], [0]),
    2: ([[2, 1], [0, 2], [2, 2]], [0]),
    3: ([[0, 1], [2, 0], [3, 4], [2, 3], [4, 4]], [0, 1, 3]),
    4: ([[1, 0], [2, 0], [3, 0], [3, 3]], [0, 1, 2]),
    5: ([[1, 2], [0, 3], [3, 0], [2, 1]], [0]),
    6: ([[1, 2], [2, 0], [0, 1]], [0]),
    7: ([[0, 1], [2, 1], [2, 3], [4, 3], [4, 4]], [0, 1, 2, 3]),
}
MOST_FLIPS = 3


class Tomita(FreeTask):
    """The seven languages of Tomita 1982: is the prefix in the language?

    1: 1*. 2: (10)*. 3: no odd run of 1s is followed later by an odd run of 0s. 4: without 000. 5: an even number of 0s
    and of 1s. 6: as many 0s as 1s, modulo 3. 7: 0*1*0*1*. An input is a random beginning of words of the language (all
    of a length are equally likely); in every other one, one to three random symbols are flipped.

    >>> Tomita(grammar=4).explain("01001000")
    '11111110'
    """

    kind: ClassVar[str] = "tomita"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    grammar: Annotated[int, Field(ge=1, le=7, description="which of the seven languages")] = 3

    @cached_property
    def machine(self) -> Machine:
        moves, accepting = TOMITA[self.grammar]
        outputs = torch.zeros(len(moves), dtype=torch.int64)
        outputs[accepting] = 1
        return Machine(torch.tensor(moves), outputs)

    @cached_property
    def beginnings(self) -> Walks:
        """Of the words of the language: all strings that do not end in a trap."""
        stays = (self.machine.moves == torch.arange(len(self.machine.moves))[:, None]).all(1)
        return Walks(self.machine, ~(stays & (self.machine.outputs == 0)))

    @cached_property
    def strings_by_answer(self) -> tuple[Walks, Walks]:
        """All strings that are not in the language, and all that are."""
        return Walks(self.machine, self.machine.outputs == 0), Walks(self.machine, self.machine.outputs == 1)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        rows = self.beginnings.draw(lengths, rng.child("words"), width)
        places = rng.child("places").integers(MOST_FLIPS, lengths[:, None])
        flips = rng.child("flips").integers(1, 2) * (1 + rng.child("count").integers(1, MOST_FLIPS))
        places = places.where(torch.arange(MOST_FLIPS, device=lengths.device) < flips, width)  # beyond all columns
        flipped = (columns(rows) == places[:, :, None]).any(1)
        return torch.where(flipped, 3 - rows, rows)

    def log2_inputs(self, length: int) -> float:
        edits = sum(math.comb(length, flips) for flips in range(MOST_FLIPS + 1))
        drawn = max(self.beginnings.log2_count(length), math.log2(edits))
        if self.questions == "everywhere":
            return drawn
        # 1* has a single word of each length, (10)* one of every other length.
        counts = ([walks.log2_count(n) for n in (length, length + 1)] for walks in self.strings_by_answer)
        return min(drawn, *(here if here >= 0 else beside for here, beside in counts))


class Majority(FreeTask):
    """1 if there were more 1s than 0s so far. Not regular: it needs a counter, or attention that takes a mean.

    >>> Majority().explain("1001101")
    '1000101'
    """

    kind: ClassVar[str] = "majority"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return ((inputs == 2).cumsum(1) > (inputs == 1).cumsum(1)).long()

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, 2).add_(1)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Beside lassos and runs: half the input of one symbol, then as many of the other, and one more."""
        half = (longest - 1) // 2
        turns = [[a] * half + [b] * half + [c] for a, b in ((1, 2), (2, 1)) for c in (1, 2)]
        return [*super().probes(trained, longest), Probe("turning at the end", rows_of(turns))]
