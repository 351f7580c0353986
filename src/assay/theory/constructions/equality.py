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
    """Equality of two strings with N symbols together. The machines answer every string of N + 1 tokens."""

    any_string: ClassVar[bool] = True
    small: ClassVar[tuple[int, ...]] = (2, 4, 6, 8)

    def task(self, length: int) -> EqualityRandom:
        return EqualityRandom()

    def tokens(self, length: int) -> int:
        return length + 1

    def draw(self, length: int, rows: Rng) -> Tensor:
        """In every second input the halves differ in at most one symbol, which is the hard case."""
        lengths = torch.full(rows.keys.shape, self.tokens(length))
        close = EqualityOne(alphabet=2).inputs(lengths, rows.child("close"))
        return torch.where(rows.child("which").integers(1, 2) == 1, close, super().draw(length, rows))


class EqualityTwoLayers(EqualityClaim):
    """Two layers of attention of width O(log^2 N), 68 up to N = 1,024, with one head each, decide whether x = y for all
    x # y with N symbols in both halves together.

    The first layer copies to every symbol of y its partner in x, and four units compute whether they differ (XOR).
    The second layer takes the mean s of these over all positions: (N + 1) s is the number of positions where the halves
    differ, and INEQ = R((N + 1) s) - R((N + 1) s - 1) with R = relu. The same machine with its two answers exchanged
    decides inequality.

    The positions depend on N, so the machine is for inputs of exactly N + 1 tokens. Among these it answers every
    string: a # at a wrong position counts as a difference.
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
        to_partner = torch.cat([T[: n + 1], T[:n]])  # x and # have no partner and point at themselves
        middle = torch.arange(self.tokens(length))[:, None] == n  # only there a # is no difference
        embed(model, stream.vector(x=[[-1.0], [1.0], [0.0]], differs=[[0.0], [0.0], [1.0]]))
        place(model, stream.vector(pos=T, ptr=to_partner, differs=-middle.float()))

        eta = code.scale(length, eps=1 / 4)  # so the copy of a 1 is at least 1/2, and of a -1 at most -1/2
        attend(model, 0, query=eta / code.k * stream.read("ptr"), key=stream.read("pos"),
               value=stream.read("x"), into=stream.write("copy"))  # fmt: skip
        xor, unlike = Relus(model, 0), 4 * stream.read("x") - 2 * stream.read("copy")
        xor.between(unlike, 3, stream.write("differs"), high=5)
        xor.between(-unlike, 3, stream.write("differs"), high=5)
        xor.unit(-stream.read("differs"), 0, 2 * stream.write("differs"))  # a missing #: -1 becomes 1

        average(model, 1, value=stream.read("differs"), into=stream.write("unequal"))
        inequality = Relus(model, 1)
        inequality.between(self.tokens(length) * stream.read("unequal"), 0, stream.write("unequal"))
        inequality.clear(stream.read("unequal"), stream.write("unequal"))
        say(model, torch.cat([stream.read("unequal"), -stream.read("unequal")]), torch.tensor([-0.5, 0.5]))
        return model


class EqualityOneLayer(EqualityClaim):
    """One layer of attention with one head of width ceil(N / 2b) + 4 decides whether x = y for all x # y with N symbols
    in both halves together, with b symbols packed into each number: up to a constant, the bound m p H = Omega(N) for
    one layer is tight.

    The symbol decides how much attention its position gets (1, 2 or 4 parts), and the position decides where it counts:
    position i of x adds 2^(i mod b) to coordinate i / b, and the same position of y subtracts it. So a coordinate is
    the difference of two numbers of b digits, divided by the sum of all parts, which is at most 2 N + 4 in strings with
    one #. `form` is 4 parts for every # minus the parts of the middle: 0 if the only # is there. The feed-forward part
    sums the absolute values.

    The positions depend on N, so the machine is for inputs of exactly N + 1 tokens. Among these it answers every
    string.
    """

    source: ClassVar[str] = "own; beside Bhattamishra et al. 2024, Theorem 12"
    length: ClassVar[int] = 64
    largest: ClassVar[int] = 512
    packed: ClassVar[int] = 16  # b: with the 24 bits of float32 the errors of the sums stay below 1/2

    # -- the construction ----------------------------------------------------------------------------------------------

    def digits(self, length: int) -> Float[Tensor, "half numbers"]:
        """The weight of each position of a half in each number."""
        position, b = torch.arange(length // 2)[:, None], self.packed
        number = torch.arange(math.ceil(length / 2 / b))
        return torch.where(position // b == number, 2.0 ** (position % b), 0.0)

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
        initial = gathered @ halves[1][-1:].T @ stream.read("one")  # the values of the last position before attention
        absolute, into = Relus(model, 0), stream.write("unequal").expand(-1, len(gathered))
        absolute.unit(gathered - initial, 0, into)
        absolute.unit(initial - gathered, 0, into)
        say(model, torch.cat([stream.read("unequal"), -stream.read("unequal")]), torch.tensor([-0.5, 0.5]))
        return model


class OneBitEach(EqualityOneLayer):
    """With one symbol in each number, one layer of width N / 2 + 4 decides whether x = y."""

    packed: ClassVar[int] = 1
