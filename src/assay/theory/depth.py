"""One layer of attention against two, on equality: the least widths found, beside the bound for one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from assay.models.attention import Attention
from assay.models.skeleton import Model, Stack
from assay.tasks.equality import EqualityRandom
from assay.theory.bounds.information import one_layer, two_way
from assay.theory.claim import Construction
from assay.theory.constructions.equality import EqualityClaim, EqualityTwoLayers
from assay.theory.subspaces import Relus, Space, attend, blank, embed, place, say

WEIGHTS = (1.0, 2.0, 4.0)  # in parts of attention, of the symbols 0, 1 and #


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
        digits, parts = self.digits(length), torch.tensor(WEIGHTS)[:, None]
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


def compare(lengths: Iterable[int], precision: int = 32) -> list[dict[str, Any]]:
    """The widths of explicit machines for equality, and the least that one layer may have with numbers of `precision`
    bits: as the lean protocol has it, and with the source's constant, 3 m (p + log2 N) H >= N / 2."""
    rows = []
    for length in lengths:
        split = two_way(EqualityRandom(), length)
        assert split is not None
        bound = one_layer(split.bits, split.tokens, precision)
        widths = {
            "one layer, 1 symbol a number": _width(OneBitEach(), length),
            f"one layer, {EqualityOneLayer.packed} symbols a number": _width(EqualityOneLayer(), length),
            "two layers": _width(EqualityTwoLayers(), length),
            "bound for one layer": max(1, bound.lean),
            "bound for one layer, as published": bound.paper,
        }
        rows += [{"length": length, "which": which, "width": width} for which, width in widths.items()]
    return rows


def _width(claim: Construction, length: int) -> int:
    return claim.build(length).read_out.in_features
