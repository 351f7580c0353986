"""Index lookup by one layer of attention: the frontier between width and precision."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models.attention import Attention
from assay.models.causal import State
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.index_lookup import IndexLookup
from assay.theory.claim import NOTHING, Construction, Examined, Machine, compared
from assay.theory.codes import Code, binary, binary_digits, random_signs, trace_code
from assay.theory.subspaces import Map, Relus, Space, attend, blank, embed, place, say

SYMBOLS, QUERIES = 64, 256
CACHE = 1 << 23  # the largest number of entries in the keys of one batch


class Pointers(NamedTuple):
    """How index tokens point at positions: the blocks of the stream, the query and key, and the vectors they read."""

    stream: Space  # its block `bits` holds the bits of a symbol
    query: Map
    key: Map
    indices: Float[Tensor, "length width"]  # the embedding of each index token
    positions: Float[Tensor, "length width"]  # the vector of each position


class Lookup(Construction):
    """One head attends to the position that the index token names, and the feed-forward part rounds the symbol found
    there to whole bits. The option `alphabet` is the number of symbols."""

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 1"
    length: ClassVar[int] = 2048
    largest: ClassVar[int] = 2048
    small: ClassVar[tuple[int, ...]] = (2, 3, 4)

    def __init__(self, alphabet: int = SYMBOLS) -> None:
        if not 2 <= alphabet <= 2**20:
            raise BadInput(f"a lookup has no alphabet of {alphabet} symbols: 2 to {2**20:,}")
        self.alphabet = alphabet

    def task(self, length: int) -> IndexLookup:
        return IndexLookup(alphabet=self.alphabet if length > max(self.small) else min(8, self.alphabet),
                           positions=length)  # fmt: skip

    def tokens(self, length: int) -> int:
        return length + 1

    def every(self, length: int) -> Tensor:
        letters = self.task(length).alphabet
        strings = torch.cartesian_prod(*[torch.arange(1, letters + 1)] * length).view(-1, length)
        index = torch.arange(letters + 1, letters + 1 + length)
        return torch.cat([strings.repeat_interleave(length, 0), index.repeat(len(strings))[:, None]], dim=1)

    def examine_random(self, machine: Machine, rng: Rng, count: int) -> Examined:
        """Ask for many indices of each string: its keys and values are computed once.

        Every second string has the full length and the others any length, since the same weights serve all. Half of
        the strings are uniform. The other half consists of one symbol and, fifteen times as often, its bitwise
        opposite, so that all attention to other positions pulls towards the wrong answer.
        """
        task, seen, number = self.task(machine.length), NOTHING, 0
        queries = min(QUERIES, max(1, count // 4))  # so that every kind of string is drawn
        while seen.inputs < count:
            draws = rng.child(number)
            n = machine.length
            if number % 2:
                n = 2 + int(draws.child("length").integers(1, n - 1)[0])
            prefix = draws.child("symbols").integers(n, task.alphabet)[None] + 1
            if number % 4 > 1:
                rare = draws.child("rare").integers(n, 16)[None] == 0
                prefix = torch.where(rare, prefix[:, :1], task.alphabet + 1 - prefix[:, :1])
            index = draws.child("index").order(n)[:queries, None] + task.alphabet + 1  # each at most once
            _, state = machine.module(prefix)
            parts = index.split(max(1, CACHE // (machine.width * self.tokens(machine.length))))
            logits = torch.cat([machine.module(part, repeated(state, len(part)))[0] for part in parts])
            seen += compared(logits, task.solve(torch.cat([prefix.expand(len(index), -1), index], dim=1))[:, -1:])
            number += 1
        return seen

    # -- the construction ----------------------------------------------------------------------------------------------

    @abstractmethod
    def pointers(self, length: int, bits: int) -> Pointers:
        """With symbols of so many bits."""

    def build(self, length: int) -> Model:
        task = self.task(length)
        bits = binary_digits(task.alphabet)
        stream, query, key, indices, positions = self.pointers(length, bits.shape[1])
        stack = Stack(name="index-lookup", mixers=(Attention(heads=1),), width=stream.width, ff=4, norm="none",
                      positions="learned", longest=length + 1)  # fmt: skip
        model = blank(stack, task)
        embed(model, torch.cat([stream.vector(bits=bits), indices]))
        place(model, positions)  # the last position, where only an index can stand, adds nothing
        attend(model, 0, query, key, value=stream.read("bits"), into=stream.write("bits"))
        rounding = Relus(model, 0)
        rounding.between(stream.read("bits"), 0.25, stream.write("bits"), high=0.75)
        rounding.clear(stream.read("bits"), stream.write("bits"))
        signs = 2 * bits - 1  # the logit of a symbol is the number of its bits that agree
        dead = torch.full((1,), -float(bits.shape[1]))
        say(model, torch.cat([signs @ stream.read("bits"), torch.zeros(1, stream.width)]),
            torch.cat([-signs.sum(1) / 2, dead]))  # fmt: skip
        return model


def repeated(state: State, rows: int) -> State:
    """The state of one input, for a batch of this many rows."""
    return pytree.tree_map(lambda x: x.expand(rows, *x.shape[1:]) if x.ndim else x, state)


class CodedLookup(Lookup):
    """Positions are the vectors T(i) of a code: the logit is eta <T(p), T(i)>."""

    @abstractmethod
    def code(self, length: int) -> Code: ...

    def pointers(self, length: int, bits: int) -> Pointers:
        code = self.code(length)
        stream = Space(bits=bits, idx=code.k, pos=code.k)
        eta = code.scale(length, eps=1 / 8)
        return Pointers(
            stream,
            query=eta / code.k * stream.read("idx"),
            key=stream.read("pos"),
            indices=stream.vector(idx=code.signs),
            positions=stream.vector(pos=code.signs),
        )


class RandomLookup(CodedLookup):
    """A one-layer Transformer of width O(log N), with vectors of random signs for positions, solves index lookup for
    all lengths up to N.

    These are the published vectors, at gamma = 1/2: 32 ln(2 N) dimensions, which is more than one-hot vectors have
    until N is about 200. Trace codes have far fewer dimensions at every length that fits into a machine.
    """

    length: ClassVar[int] = 256

    def code(self, length: int) -> Code:
        return random_signs(length, 0.5, Rng.seeded(0, "positions"))


class TraceLookup(CodedLookup):
    """A one-layer Transformer of width O((log N / log log N)^2), which is 70 up to N = 2,048, with the vectors of a
    trace code for positions, solves index lookup for all lengths up to N."""

    def code(self, length: int) -> Code:
        return trace_code(length)


class BinaryLookup(CodedLookup):
    """A one-layer Transformer of width ceil(log2 |S|) + 2 ceil(log2 N), with positions in binary digits, solves index
    lookup over the alphabet S for all lengths up to N."""

    source: ClassVar[str] = "own, beside Bhattamishra et al. 2024, Theorem 1"

    def code(self, length: int) -> Code:
        return binary(length)


class QuadraticLookup(Lookup):
    """A one-layer Transformer of width ceil(log2 |S|) + 4, with logits 2 p j - j^2 for index p and position j, solves
    index lookup over the alphabet S, at a precision that grows with N."""

    source: ClassVar[str] = "own, beside Bhattamishra et al. 2024, Theorem 1"
    exact: ClassVar[int] = 2048  # positions whose logits float32 tells apart; for more the machine is in float64
    eta: ClassVar[float] = 4.0  # the two neighbours get e^-4 as much attention each, the next ones e^-16

    def pointers(self, length: int, bits: int) -> Pointers:
        stream = Space(bits=bits, p=1, one=1, j=1, j_squared=1)
        j = torch.arange(1.0, length + 1)[:, None]
        return Pointers(
            stream,
            query=self.eta * stream.read("p", "one"),
            key=stream.read("j", "j_squared") * torch.tensor([[2.0], [-1.0]]),
            indices=stream.vector(p=j, one=1.0),
            positions=stream.vector(j=j, j_squared=j**2),
        )

    def build(self, length: int) -> Model:
        model = super().build(length)
        return model if length <= self.exact else model.double()
