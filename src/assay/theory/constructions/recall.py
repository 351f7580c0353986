"""Associative recall by two layers of attention: layer 1 copies keys onto values, layer 2 finds the first value."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from assay.models.attention import Attention
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.recall import Bindings, MultiQueryRecall, Recall
from assay.theory.claim import Construction
from assay.theory.codes import binary, binary_digits
from assay.theory.subspaces import Map, Relus, Space, attend, blank, embed, place, say

EXACT = 4096  # positions whose `previous` logits float32 tells apart; for more the machine is in float64


class RecallByTwo(Construction):
    """A machine for every string over keys and values, including strings that bind a key twice or not at all.

    Keys are vectors of signs, so <key, key'> = b for equal keys and at most b - 2 for different keys; a value has zeros
    there. The logit of layer 2 is eta (<key, copied> - [is a key]) - c j: it finds the first value after this key.
    """

    source: ClassVar[str] = "own, after Olsson et al. 2022"
    any_string: ClassVar[bool] = True
    sharp: ClassVar[float] = 4.0  # the neighbours of the previous token get the weight e^-sharp
    c: ClassVar[float] = 2.0  # two bindings of a key are at least two positions apart

    def __init__(self, vocabulary: int = 256) -> None:
        self.vocabulary = vocabulary

    @abstractmethod
    def task(self, length: int) -> Bindings: ...

    def draw(self, length: int, rows: Rng) -> Tensor:
        """Every second string is drawn by the task, perhaps with one symbol replaced; the others are uniform."""
        drawn = super().draw(length, rows)
        uniform = rows.child("uniform").integers(drawn.shape[1], len(self.task(length).symbols)) + 1
        return torch.where(rows.child("which").integers(1, 2) == 1, drawn, uniform)

    def build(self, length: int) -> Model:
        keys, N = self.task(length).keys, self.tokens(length)
        signs, bits = binary(keys).signs, binary_digits(keys)
        b = signs.shape[1]
        stream = Space(key=b, is_key=1, value=b, copied=b, j=1, j_squared=1, one=1)
        stack = Stack(name="recall", mixers=(Attention(heads=1),) * 2, width=stream.width, ff=2, norm="none",
                      positions="learned", longest=N)  # fmt: skip
        model = blank(stack, self.task(length))
        embed(model, torch.cat([stream.vector(key=signs, is_key=1.0), stream.vector(value=bits)]))
        place(model, parabola(stream, N))

        query, key = previous(stream, self.sharp)
        copied, into = stream.read("copied"), stream.write("copied")
        attend(model, 0, query, key, value=stream.read("key"), into=into)
        to_signs = Relus(model, 0)  # -1, 0 or 1
        to_signs.between(copied, 0.25, into, high=0.75)
        to_signs.between(-copied, 0.25, -into, high=0.75)
        to_signs.clear(copied, into)

        eta = self.c * N + math.log(16 * N)  # one bit outweighs all positions
        query = torch.cat([eta * stream.read("key"), -eta * stream.read("one"), -self.c * stream.read("one")])
        value, into = stream.read("value"), stream.write("value")  # zeros at a key
        attend(model, 1, query, key=stream.read("copied", "is_key", "j"), value=value, into=into)
        to_bits = Relus(model, 1)
        to_bits.between(value, 0.25, into, high=0.75)
        to_bits.clear(value, into)
        agree = 2 * bits - 1  # the logit of a value is the number of its bits that agree
        say(model, agree @ value, -agree.sum(1) / 2)
        return model if N <= EXACT else model.double()


class PairRecall(RecallByTwo):
    """A two-layer Transformer of width 3 ceil(log2 |K|) + 4, for keys K, recalls the value of any of N pairs.

    It does so in every string over the vocabulary, at every key that was bound before.
    """

    length: ClassVar[int] = 20
    largest: ClassVar[int] = 127
    small: ClassVar[tuple[int, ...]] = (1, 2)

    def task(self, length: int) -> Recall:
        return Recall(vocabulary=self.vocabulary if length > max(self.small) else 6)

    def tokens(self, length: int) -> int:
        return 2 * length + 1


class MultiQuery(RecallByTwo):
    """A two-layer Transformer of width 3 ceil(log2 |K|) + 4, for keys K, recalls the value at every key that was bound
    before, in every string of N tokens."""

    length: ClassVar[int] = 40
    largest: ClassVar[int] = 200
    small: ClassVar[tuple[int, ...]] = (4, 6, 8)

    def task(self, length: int) -> MultiQueryRecall:
        vocabulary = self.vocabulary if length > max(self.small) else 4
        return MultiQueryRecall(vocabulary=vocabulary, pairs_bound=min(max(1, length // 4), vocabulary // 2))


# -- the previous token --------------------------------------------------------------------------------------------


def parabola(stream: Space, count: int) -> Float[Tensor, "count width"]:
    """Positions for `previous`: j, j^2 and 1, with j counted from the middle, which saves two bits of j^2."""
    j = torch.arange(float(count))[:, None] - count // 2
    return stream.vector(j=j, j_squared=j**2, one=1.0)


def previous(stream: Space, eta: float) -> tuple[Map, Map]:
    """The query and key of the logit eta (2 (i - 1) j - j^2), largest at j = i - 1. The first token finds itself."""
    j, one = stream.read("j"), stream.read("one")
    return eta * torch.cat([2 * (j - one), -one]), stream.read("j", "j_squared")
