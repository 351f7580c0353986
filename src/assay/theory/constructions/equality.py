"""Equality of two strings, by two layers of attention and by one."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from assay.models.attention import Attention
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.equality import EqualityOne, EqualityRandom
from assay.theory.claim import Construction
from assay.theory.codes import Code, trace_code
from assay.theory.subspaces import Relus, Space, attend, average, blank, embed, place, say

PARTS = (1.0, 2.0, 4.0)  # how many parts of the attention a position with the symbol 0, 1 or # gets


class EqualityClaim(Construction):
    """Equality of two strings with N symbols together; answers every string of N + 1 tokens."""

    any_string: ClassVar[bool] = True
    small: ClassVar[tuple[int, ...]] = (2, 4, 6, 8)

    def task(self, length: int) -> EqualityRandom:
        return EqualityRandom()

    def tokens(self, length: int) -> int:
        return length + 1

    def draw(self, length: int, rows: Rng) -> Tensor:
        """In every second one the halves differ in one symbol or not at all, the hard case."""
        lengths = torch.full(rows.keys.shape, self.tokens(length))
        close = EqualityOne(alphabet=2).inputs(lengths, rows.child("close"))
        return torch.where(rows.child("which").integers(1, 2) == 1, close, super().draw(length, rows))


class EqualityTwoLayers(EqualityClaim):
    """Two layers of width O(log^2 N), 68 up to N = 1,024, with one head each, tell whether x = y for all x # y with N
    symbols in both halves together.

    The first layer copies to every symbol of y its partner in x, and four units tell whether the two differ (XOR).
    The second layer takes the mean s of that over all positions: (N + 1) s counts the places where the halves differ,
    and INEQ = R((N + 1) s) - R((N + 1) s - 1). Inequality is the same machine with its two answers exchanged, so this
    one settles both.

    Positions know N: the machine is one for inputs of exactly N + 1 tokens. Of these it answers every string: a # out
    of its place counts as a difference.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 6"
    length: ClassVar[int] = 48
    largest: ClassVar[int] = 1024

    # -- the construction ----------------------------------------------------------------------------------------------

    def code(self, length: int) -> Code:
        return trace_code(self.tokens(length))

    def build(self, length: int) -> Model:
        n, code = length // 2, self.code(length)
        stream = Space(x=1, copy=1, differs=1, unequal=1, pos=code.k, ptr=code.k)
        stack = Stack(name="equality", mixers=(Attention(heads=1), Attention(heads=1)), width=stream.width, ff=1,
                      norm="none", positions="learned", longest=self.tokens(length))  # fmt: skip
        model, T = blank(stack, self.task(length)), code.signs
        to_partner = torch.cat([T[: n + 1], T[:n]])  # x and # have none, and point at themselves
        middle = torch.arange(self.tokens(length))[:, None] == n  # there, and only there, a # makes no difference
        embed(model, stream.vector(x=[[-1.0], [1.0], [0.0]], differs=[[0.0], [0.0], [1.0]]))
        place(model, stream.vector(pos=T, ptr=to_partner, differs=-middle.float()))

        eta = code.scale(length, eps=1 / 4)  # so a copy of 1 is at least 1/2, and one of -1 at most -1/2
        attend(model, 0, query=eta / code.k * stream.read("ptr"), key=stream.read("pos"),
               value=stream.read("x"), into=stream.write("copy"))  # fmt: skip
        xor, unlike = Relus(model, 0), 4 * stream.read("x") - 2 * stream.read("copy")
        xor.between(unlike, 3, stream.write("differs"), high=5)
        xor.between(-unlike, 3, stream.write("differs"), high=5)
        xor.unit(-stream.read("differs"), 0, 2 * stream.write("differs"))  # a # that is missing: -1 becomes 1

        average(model, 1, value=stream.read("differs"), into=stream.write("unequal"))
        inequality = Relus(model, 1)
        inequality.between(self.tokens(length) * stream.read("unequal"), 0, stream.write("unequal"))
        inequality.clear(stream.read("unequal"), stream.write("unequal"))
        say(model, torch.cat([stream.read("unequal"), -stream.read("unequal")]), torch.tensor([-0.5, 0.5]))
        return model


class EqualityOneLayer(EqualityClaim):
    """One layer and one head of width ceil(N / 2b) + 4 tell whether x = y for all x # y with N symbols in both halves
    together, with b symbols in each number: up to a constant, the bound m p H = Omega(N) for one layer is tight.

    A symbol says how much attention its position gets (1, 2 or 4 parts), and a position what that counts for: place i
    of x adds 2^(i mod b) to coordinate i / b, and the same place of y takes it away. So a coordinate is the difference
    of two numbers of b digits, divided by the sum of all parts, which is at most 2 N + 4 in strings with one #.
    `form` is 4 parts for every # less those of the middle: 0 where the only # stands there. The feed-forward part adds
    up the absolute values.

    Positions know N: the machine is one for inputs of exactly N + 1 tokens. Of these it answers every string.
    """

    source: ClassVar[str] = "own; beside Bhattamishra et al. 2024, Theorem 12"
    length: ClassVar[int] = 64
    largest: ClassVar[int] = 512
    packed: ClassVar[int] = 16  # b: sums of float32 have 24 bits, and their errors stay below 1/2

    # -- the construction ----------------------------------------------------------------------------------------------

    def digits(self, length: int) -> Float[Tensor, "half numbers"]:
        """What each place of a half counts for in each number."""
        place, b = torch.arange(length // 2)[:, None], self.packed
        number = torch.arange(math.ceil(length / 2 / b))
        return torch.where(place // b == number, 2.0 ** (place % b), 0.0)

    def build(self, length: int) -> Model:
        digits, parts = self.digits(length), torch.tensor(PARTS)[:, None]
        stream = Space(numbers=digits.shape[1], form=1, log_parts=1, one=1, unequal=1)
        stack = Stack(name="equality-one-layer", mixers=(Attention(heads=1),), width=stream.width, ff=2, norm="none",
                      positions="learned", longest=self.tokens(length))  # fmt: skip
        model, middle = blank(stack, self.task(length)), stream.vector(form=-1.0)[None]
        embed(model, stream.vector(log_parts=parts.log(), form=[[0.0], [0.0], [1.0]], one=1.0))
        halves = stream.vector(numbers=digits), stream.vector(numbers=-digits)
        place(model, torch.cat([halves[0], middle, halves[1]]))

        most = 2 * length + 4  # parts in all
        gathered = stream.read("numbers", "form")
        attend(model, 0, query=stream.read("one"), key=stream.read("log_parts"), value=gathered,
               into=most * stream.write("numbers", "form"))  # fmt: skip
        own = gathered @ halves[1][-1:].T @ stream.read("one")  # what the last position had there before
        absolute, into = Relus(model, 0), stream.write("unequal").expand(-1, len(gathered))
        absolute.unit(gathered - own, 0, into)
        absolute.unit(own - gathered, 0, into)
        say(model, torch.cat([stream.read("unequal"), -stream.read("unequal")]), torch.tensor([-0.5, 0.5]))
        return model


class OneBitEach(EqualityOneLayer):
    """With one symbol in each number, one layer of width N / 2 + 4 tells whether x = y."""

    packed: ClassVar[int] = 1
