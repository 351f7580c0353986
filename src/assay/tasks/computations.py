"""The result of a computation on a string, symbol by symbol: operations on a stack, and binary addition."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe
from assay.tasks.task import DEAD, columns
from assay.tasks.transductions import Result, Transduction


class StackManipulation(Transduction):
    """A stack of bits from the bottom to the top, then operations on it; the answers are the stack from the top down.

    `a` pushes 0, `b` pushes 1, `-` pops (an empty stack stays empty). After the last bit the answer is the end, `T`;
    then there are no more questions. From Delétang et al. 2023: the first part has a uniform size, actions are uniform.

    >>> StackManipulation().explain("0110b--________")
    '.......110T....'
    >>> StackManipulation().explain("1--a____")
    '....0T..'
    """

    kind: ClassVar[str] = "stack-manipulation"
    letters: ClassVar[tuple[str, ...]] = ("0", "1", "a", "b", "-")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", "T", DEAD)
    train_lengths: ClassVar[tuple[int, int]] = (3, 41)
    more_blanks: ClassVar[int] = 1

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        pops, pushes = string == 5, (string > 0) & (string < 5)
        height = (pushes.long() - pops.long()).cumsum(1)
        depth = height - height.cummin(1).values.clamp(max=0)  # a pop of the empty stack does not count
        # At each depth, the last push there is the one that counts, if it is still there.
        time, slots = columns(string), string.new_zeros(len(string), string.shape[1] + 1)
        last = slots.scatter_reduce(1, depth.where(pushes, 0), time.expand_as(depth), "amax")
        top = depth.gather(1, (size - 1).clamp(min=0)).where(size > 0, 0)
        level = top - time
        bit = (string.gather(1, last.gather(1, level.clamp(min=0))) - 1) % 2
        answers = torch.where(level > 0, bit, 2)
        acts = (string > 2).cumsum(1) > 0
        return Result(answers, top + 1, acts & (string > 0) & (string < 3))

    def string(self, sizes: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        bits = 1 + rng.child("size").integers(1, (sizes - 1).clamp(min=1)[:, None])
        first = rng.child("bits").integers(width, 2) + 1
        actions = rng.child("actions").integers(width, 3) + 3
        return torch.where(columns(first) < bits, first, actions)

    def log2_inputs(self, length: int) -> float:
        size = self.size(length)
        return math.log2(sum(2**bits * 3 ** (size - bits) for bits in range(1, size))) if size > 1 else 1.0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The bottom of a deep stack; a stack that empties again and again; bits alone."""
        deep, empty, bits = [], [], []
        for size in sorted({self.size(self.lengths(trained[0], longest)[i]) for i in (0, -1)}):
            for bit in (1, 2):
                other, pushes = 3 - bit, (size - 1) // 2
                deep.append([bit, *[other + 2] * pushes, *[5] * pushes, *[bit + 2] * ((size - 1) % 2)])
                empty.append([bit, *[5, other + 2, 5, bit + 2] * size][:size])
                bits.append([bit, *[other] * (size - 1)])
        named = {"pushed and popped": deep, "emptied": empty, "bits alone": bits}
        return [self.probe(name, strings) for name, strings in named.items()]


class BinaryAddition(Transduction):
    """a + b in binary, the lowest bit first; the answers are the sum without leading zeros, then the end, `T`.

    From Delétang et al. 2023. The place of + is uniform, and so are the bits; a number may have zeros in front.

    >>> BinaryAddition().explain("01+11______")
    '.....101T..'
    """

    kind: ClassVar[str] = "binary-addition"
    letters: ClassVar[tuple[str, ...]] = ("0", "1", "+")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", "T", DEAD)
    train_lengths: ClassVar[tuple[int, int]] = (7, 41)
    more_blanks: ClassVar[int] = 1

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        time, width = columns(string), string.shape[1]
        plus = torch.where(string == 3, time, width).amin(1, keepdim=True)
        first = ((string == 2) & (time < plus)).long()
        place = plus + 1 + time
        second = ((string.gather(1, place.clamp(max=width - 1)) == 2) & (place < size)).long()
        # A carry is made or ended where both bits are equal, and passed on elsewhere.
        decides = torch.where(first == second, time, -1).cummax(1).values
        carry = torch.where(decides >= 0, first.gather(1, decides.clamp(min=0)), 0)
        total = first ^ second ^ torch.nn.functional.pad(carry[:, :-1], (1, 0))
        count = torch.where(total == 1, time + 1, 1).amax(1, keepdim=True)
        wrong = (string == 3).cumsum(1) > 1
        missing = (plus == 0) | (plus >= size - 1)  # a number without bits, or no + at all
        malformed = wrong | (missing & (time >= size)) | ((plus == 0) & (string == 3))
        return Result(torch.where(time == count, 2, total), count + 1, malformed)

    def string(self, sizes: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        plus = 1 + rng.child("plus").integers(1, (sizes - 2)[:, None])
        bits = rng.child("bits").integers(width, 2) + 1
        return torch.where(columns(bits) == plus, 3, bits)

    def fits(self, length: int) -> bool:
        return length >= 7 and length % 2 == 1

    def log2_inputs(self, length: int) -> float:
        size = self.size(length)
        return size - 1 + math.log2(size - 2)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Carries that run through all bits, and sums without a carry."""
        carries, plain = [], []
        for size in sorted({self.size(self.lengths(trained[0], longest)[i]) for i in (0, -1)}):
            for bits in sorted({1, (size - 1) // 2, size - 2}):
                rest = size - 1 - bits
                one = [2] + [1] * (rest - 1)
                carries += [[*[2] * bits, 3, *one], [*[2] * bits, 3, *[2] * rest]]
                plain += [[*[1] * bits, 3, *[1] * rest], [*[2] * bits, 3, *[1] * rest], [*[1] * bits, 3, *one]]
        return [self.probe("carries", carries), self.probe("no carries", plain)]
