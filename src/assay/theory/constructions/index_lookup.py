"""Index lookup by one layer of attention: the frontier between width and precision."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.models.attention import Attention
from assay.models.causal import State
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.index_lookup import IndexLookup
from assay.theory.claim import NOTHING, Change, Construction, Examined, compared
from assay.theory.codes import Code, binary, binary_digits, random_signs, trace_code
from assay.theory.subspaces import Map, Relus, Space, attend, blank, embed, place, say

SYMBOLS, QUERIES = 64, 256


class Lookup(Construction):
    """One head looks where the index token points, and the feed-forward part rounds what it brings to whole bits."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 1"
    length: ClassVar[int] = 2048
    largest: ClassVar[int] = 2048
    small: ClassVar[tuple[int, ...]] = (2, 3, 4)

    def task(self, length: int) -> IndexLookup:
        return IndexLookup(alphabet=SYMBOLS if length > max(self.small) else 8, positions=length)

    def tokens(self, length: int) -> int:
        return length + 1

    def every(self, length: int) -> Tensor:
        letters = self.task(length).alphabet
        strings = torch.cartesian_prod(*[torch.arange(1, letters + 1)] * length).view(-1, length)
        index = torch.arange(letters + 1, letters + 1 + length)
        return torch.cat([strings.repeat_interleave(length, 0), index.repeat(len(strings))[:, None]], dim=1)

    def examine_random(self, length: int, rng: Rng, count: int, change: Change | None) -> Examined:
        """Many strings, and many indices into each: what a string leaves behind is computed once.

        Every second string has the full length, the others any: the same weights serve them all. Half of the strings
        are uniform; the others are made of one symbol and, fifteen times as often, its opposite in every bit, so that
        what leaks from other places all pulls the wrong way.
        """
        machine, task, seen, number = self.changed(length, change), self.task(length), NOTHING, 0
        queries = min(QUERIES, max(1, count // 4))  # so that every kind of string is drawn
        while seen.inputs < count:
            own = rng.child(number)
            n = length if number % 2 == 0 else 2 + int(own.child("length").integers(1, length - 1)[0])
            prefix = own.child("symbols").integers(n, task.alphabet)[None] + 1
            if number % 4 > 1:
                rare = own.child("rare").integers(n, 16)[None] == 0
                prefix = torch.where(rare, prefix[:, :1], task.alphabet + 1 - prefix[:, :1])
            index = own.child("index").order(n)[:queries, None] + task.alphabet + 1  # each at most once
            whole = torch.cat([prefix.expand(len(index), -1), index], dim=1)
            logits, _ = machine(index, repeated(machine(prefix)[1], len(index)))
            seen += compared(logits, task.solve(whole)[:, -1:])
            number += 1
        return seen

    # -- the construction ----------------------------------------------------------------------------------------------

    @abstractmethod
    def stream(self, length: int) -> tuple[Space, Map, Map]:
        """Blocks for symbols (`bits`) and whatever the positions need; the query and the key."""

    @abstractmethod
    def index(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        """What each index token says."""

    @abstractmethod
    def position(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        """What each position adds to its token."""

    def build(self, length: int) -> Model:
        task = self.task(length)
        stream, query, key = self.stream(length)
        stack = Stack(name="index-lookup", mixers=(Attention(heads=1),), width=stream.width, ff=4, norm="none",
                      positions="learned", longest=length + 1)  # fmt: skip
        model, bits = blank(stack, task), binary_digits(task.alphabet)
        embed(model, torch.cat([stream.vector(bits=bits), self.index(stream, length)]))
        place(model, self.position(stream, length))  # at the last, where only an index can stand, nothing
        attend(model, 0, query, key, value=stream.read("bits"), into=stream.write("bits"))
        rounding = Relus(model, 0)
        rounding.between(stream.read("bits"), 0.25, stream.write("bits"), high=0.75)
        rounding.clear(stream.read("bits"), stream.write("bits"))
        signs = 2 * bits - 1  # a symbol's logit: how many of its bits agree
        dead = torch.full((1,), -float(bits.shape[1]))
        say(model, torch.cat([signs @ stream.read("bits"), torch.zeros(1, stream.width)]),
            torch.cat([-signs.sum(1) / 2, dead]))  # fmt: skip
        return model


def repeated(state: State, rows: int) -> State:
    """The state of one input for many."""
    return pytree.tree_map(lambda x: x.expand(rows, *x.shape[1:]) if x.ndim else x, state)


class CodedLookup(Lookup):
    """Positions as the vectors of a code: the logit is eta <T(p), T(i)>."""

    @abstractmethod
    def code(self, length: int) -> Code: ...

    def stream(self, length: int) -> tuple[Space, Map, Map]:
        code, bits = self.code(length), binary_digits(self.task(length).alphabet).shape[1]
        stream = Space(bits=bits, idx=code.k, pos=code.k)
        eta = code.scale(length, eps=1 / 8)
        return stream, eta / code.k * stream.read("idx"), stream.read("pos")

    def index(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        return stream.vector(idx=self.code(length).signs)

    def position(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        return stream.vector(pos=self.code(length).signs)


class RandomLookup(CodedLookup):
    """A one-layer Transformer of width O(log N) does index lookup for all lengths up to N, with random signs as
    positions.

    These are the published vectors, at gamma = 1/2: 32 ln(2 N) dimensions, more than one-hot vectors have until N is
    about 200. Trace codes take far fewer at every length that fits into a machine.
    """

    length: ClassVar[int] = 256

    def code(self, length: int) -> Code:
        return random_signs(length, 0.5, Rng.seeded(0, "positions"))


class TraceLookup(CodedLookup):
    """A one-layer Transformer of width O((log N / log log N)^2), which is 70 up to N = 2,048, does index lookup for all
    lengths up to N, with positions from a trace code."""

    def code(self, length: int) -> Code:
        return trace_code(length)


class BinaryLookup(CodedLookup):
    """With positions in binary digits, one layer of width ceil(log2 |S|) + 2 ceil(log2 N) does index lookup."""

    source: ClassVar[str] = "own, beside Bhattamishra et al. 2024, Theorem 1"

    def code(self, length: int) -> Code:
        return binary(length)


class QuadraticLookup(Lookup):
    """With logits 2 p j - j^2, one layer of width ceil(log2 |S|) + 4 does index lookup, at a precision that grows
    with N."""

    source: ClassVar[str] = "own, beside Bhattamishra et al. 2024, Theorem 1"
    exact: ClassVar[int] = 2048  # up to so many places float32 tells its logits apart; beyond, float64
    eta: ClassVar[float] = 4.0  # the two neighbours get e^-4 as much each, and those behind them e^-16

    def stream(self, length: int) -> tuple[Space, Map, Map]:
        bits = binary_digits(self.task(length).alphabet).shape[1]
        stream = Space(bits=bits, p=1, one=1, j=1, j_squared=1)
        return stream, self.eta * stream.read("p", "one"), stream.read("j", "j_squared") * torch.tensor([[2.0], [-1.0]])

    def index(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        return stream.vector(p=torch.arange(1.0, length + 1)[:, None], one=1.0)

    def position(self, stream: Space, length: int) -> Float[Tensor, "length width"]:
        j = torch.arange(1.0, length + 1)[:, None]
        return stream.vector(j=j, j_squared=j**2)

    def build(self, length: int) -> Model:
        model = super().build(length)
        return model if length <= self.exact else model.double()
