"""Bracket words as the published code of Irie et al. 2023 draws them: by a grammar, from which their lengths follow.

S -> ( S ) with probability 1/2, S S with 1/4, empty with 1/4. A phrase that is longer than the longest length is
replaced by the empty one. Nothing is rejected here: a word's length is drawn first, then its derivation given the
length. (The published code also ends a phrase at the depth of the longest word; this changes 4 words in 100,000.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from operator import mul
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.task import Task, on_device

Strings = Literal["uniform", "published"]


class PublishedTask(Task):
    """A task whose inputs can also be drawn as the published code does."""

    added: ClassVar[tuple[str, ...]] = ("strings",)
    strings: Annotated[
        Strings, Field(description="published: training and held-out sets are drawn as in the code of Irie et al. 2023")
    ] = "uniform"

    @property
    def is_published(self) -> bool:
        return self.strings == "published"

    def other_strings(self) -> Task:
        return type(self)(**{**self.plain(), "strings": "uniform" if self.is_published else "published"})


# -- sizes of phrases --------------------------------------------------------------------------------------------------


@cache
def size_chances(most: int) -> Float[Tensor, "sizes"]:
    """The probability that a phrase has 0, 1, ..., `most` pairs of brackets."""
    low, high = 0.0, 1.0  # the probability of an empty phrase lies between them, and all probabilities sum to 1
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if math.fsum(_chances(middle, most)) < 1 else (low, middle)
    return torch.tensor(list(_chances(low, most)), dtype=torch.float64)


def _chances(empty: float, most: int) -> Iterator[float]:
    """The probabilities that follow from that of an empty phrase; none after one above 1, since they would overflow.

    A phrase of n pairs is a pair around n - 1, or two phrases: an empty one and the same again, or two smaller ones.
    """
    chances = [empty]
    yield empty
    while len(chances) <= most and chances[-1] <= 1:
        splits = math.fsum(map(mul, chances[1:], reversed(chances[1:])))
        chances.append((chances[-1] / 2 + splits / 4) / (1 - empty / 2))
        yield chances[-1]


@cache
def _first_rules(most: int) -> Float[Tensor, "entries"]:
    """For phrases of n = 0 to `most` pairs, the cumulative probabilities of their first rule, each row plus n.

    Rule 0 is a pair around the rest; rule i splits after i pairs. Splits with an empty part do not change the word.
    """
    chances, size = size_chances(most), torch.arange(most + 1)
    rest = (size[:, None] - size).clamp(min=0)
    weights = torch.where(size == 0, chances[(size - 1).clamp(min=0)][:, None] / 2, chances * chances[rest] / 4)
    total = weights.where(size < size[:, None], 0).cumsum(1)
    return torch.where(size < size[:, None] - 1, total / total[:, -1:], 1.0).add(size[:, None]).flatten()


# -- draws -------------------------------------------------------------------------------------------------------------


def categorical(weights: Float[Tensor, "values"], rng: Rng) -> Int[Tensor, "rows"]:
    """A number per row with these probabilities, up to a factor; the last weight is not 0."""
    total = weights.cumsum(0).to(rng.keys.device)
    return torch.searchsorted(total, rng.uniform(1)[:, 0] * total[-1], right=True).clamp(max=len(total) - 1)


def brackets(sizes: Int[Tensor, "rows"], rng: Rng, most: int) -> Int[Tensor, "rows time"]:
    """A random word of each number of pairs, at most `most`: its derivation from the grammar, given its size.

    A pair that opens at position i is i + 1 there and -(i + 1) where it closes; beyond the word there are zeros.
    """
    rules = on_device(_first_rules(most), sizes.device)
    word = sizes.new_zeros(len(sizes), 2 * most)
    row, start, size = torch.arange(len(sizes), device=sizes.device), torch.zeros_like(sizes), sizes
    while True:
        # All phrases of all rows at once; of one row, no two begin at the same position with the same size.
        row, start, size = (x[size > 0] for x in (row, start, size))
        if not len(row):
            return word
        uniform = Rng(rng.keys[row]).child(start, size).uniform(1)[:, 0]
        rule = torch.searchsorted(rules, uniform + size, right=True) - size * (most + 1)
        rule = torch.minimum(rule, size - 1)
        pair = rule == 0
        first, last = start[pair], start[pair] + 2 * size[pair] - 1
        word[row[pair], first], word[row[pair], last] = first + 1, -first - 1
        row = row.repeat(2)
        start, size = (
            torch.cat([start + pair, start + 2 * rule]),
            torch.cat([torch.where(pair, size - 1, rule), torch.where(pair, 0, size - rule)]),
        )
