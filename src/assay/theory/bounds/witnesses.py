"""Witnesses of lower bounds: sets of inputs that the oracle shows to be distinct, so that few bits cannot hold them.

A member is a row of digits, each digit with its own base, so a set can be as large as the bound without being written
out. `check` asks the oracle about random pairs of members, `check_all` about every pair.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.equality import Disjointness, Equality
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.recall import MultiQueryRecall, Recall
from assay.tasks.task import IGNORE, Task
from assay.theory.bounds.tables import every_other
from assay.theory.claim import NOTHING, Examined
from assay.theory.codes import trace_code

Digits = Int[Tensor, "rows places"]
PAIRS = 1000  # in one batch


@dataclass(frozen=True, eq=False)
class Witness(ABC):
    """A set of members, and a test that two of them cannot be confused."""

    asks: ClassVar[int]  # the number of inputs that the oracle answers for one pair
    task: Task
    bases: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.bases)

    @abstractmethod
    def confused(self, i: Digits, j: Digits) -> Bool[Tensor, "rows"]:
        """For each pair of members, whether the answers fail to show that they differ."""

    def check(self, rng: Rng, inputs: int) -> Examined:
        """Check random pairs; in every second pair the members differ in one digit only."""
        seen, pairs = NOTHING, inputs // self.asks
        for first in range(0, pairs, PAIRS):
            rows = rng.rows(min(PAIRS, pairs - first), first)
            seen += self._examined(*self._pairs(rows))
        return seen

    def check_all(self) -> Examined:
        members = torch.cartesian_prod(*map(torch.arange, self.bases)).view(self.size, -1)
        i, j = torch.triu_indices(self.size, self.size, offset=1)
        parts = zip(members[i].split(PAIRS), members[j].split(PAIRS), strict=True)
        return sum((self._examined(*part) for part in parts), NOTHING)

    def _pairs(self, rng: Rng) -> tuple[Digits, Digits]:
        bases, places = torch.tensor(self.bases), len(self.bases)
        one, other = (rng.child(name).integers(places, bases) for name in ("one", "other"))
        place = rng.child("place").integers(1, places)
        shift = rng.child("shift").integers(1, bases[place] - 1) + 1
        near = one.scatter(1, place, (one.gather(1, place) + shift) % bases[place])
        far = (rng.child("near").integers(1, 2) == 0) & (one != other).any(1, keepdim=True)
        return one, torch.where(far, other, near)

    def _examined(self, i: Digits, j: Digits) -> Examined:
        return Examined(len(i) * self.asks, int(self.confused(i, j).sum()), math.inf)


@dataclass(frozen=True, eq=False)
class Prefixes(Witness):
    """Prefixes, and for any two of them a suffix whose answers differ: a recurrent machine must carry log2 of their
    number in bits."""

    asks: ClassVar[int] = 2
    prefix: Callable[[Digits], Tensor]
    suffix: Callable[[Digits, Digits], Tensor]

    def confused(self, i: Digits, j: Digits) -> Bool[Tensor, "rows"]:
        suffix, cut = self.suffix(i, j), self.prefix(i).shape[1]
        one, other = (self.task.solve(torch.cat([self.prefix(x), suffix], dim=1))[:, cut:] for x in (i, j))
        return ~((one != other) & (one != IGNORE) & (other != IGNORE)).any(1)


@dataclass(frozen=True, eq=False)
class Fooling(Witness):
    """A fooling set: inputs with the same answer such that for any two of them, exchanging one party's positions
    between them changes the answer of at least one. So two parties must exchange log2 of their number in bits."""

    asks: ClassVar[int] = 4
    member: Callable[[Digits], Tensor]
    first: Bool[Tensor, "tokens"]  # the positions of one party
    answer: int

    def confused(self, i: Digits, j: Digits) -> Bool[Tensor, "rows"]:
        one, other = self.member(i), self.member(j)
        kept = self._answered(one) & self._answered(other)
        crossed = (torch.where(self.first, a, b) for a, b in ((one, other), (other, one)))
        agree = self._answered(next(crossed)) & self._answered(next(crossed))
        return ~kept | agree

    def _answered(self, inputs: Tensor) -> Bool[Tensor, "rows"]:
        return self.task.solve(inputs)[:, -1] == self.answer


# -- prefixes ------------------------------------------------------------------------------------------------------


def first_difference(i: Digits, j: Digits) -> Int[Tensor, "rows 1"]:
    return (i != j).long().argmax(1, keepdim=True)


def strings_looked_up(task: IndexLookup, length: int) -> Prefixes:
    """Every string; the index of the first difference tells two apart."""

    def index(i: Digits, j: Digits) -> Tensor:
        return task.alphabet + 1 + first_difference(i, j)

    return Prefixes(task, (task.alphabet,) * length, lambda i: i + 1, index)


def values_recalled(task: Recall | MultiQueryRecall, pairs: int) -> Prefixes:
    """The first keys in order, with any values; the first key with different values tells two apart."""
    keys = torch.arange(1, pairs + 1)

    def bound(i: Digits) -> Tensor:
        return torch.stack([keys.expand_as(i), task.keys + 1 + i], dim=2).flatten(1)

    return Prefixes(task, (task.keys,) * pairs, bound, lambda i, j: keys[first_difference(i, j)])


def neighbours(task: NearestNeighbour, points: int) -> Prefixes:
    """Points far from each other, with any labels; the first point with different labels tells two apart."""
    code, d = trace_code(points, gamma=1 - task.margin), task.dimension
    point = torch.nn.functional.pad(code.signs / code.k**0.5, (0, d + 2 - code.k))
    label = torch.eye(d + 2)[d:]

    def labelled(i: Digits) -> Tensor:
        return torch.stack([point.expand(len(i), -1, -1), label[i]], dim=2).flatten(1, 2)

    return Prefixes(task, (2,) * points, labelled, lambda i, j: point[first_difference(i, j)])


def first_halves(task: Equality, length: int) -> Prefixes:
    """Every string; as the second half it tells itself from all others."""
    n, mark = length // 2, task.alphabet + 1
    return Prefixes(
        task, (task.alphabet,) * n, lambda i: i + 1, lambda i, j: torch.nn.functional.pad(i + 1, (1, 0), value=mark)
    )


# -- fooling sets --------------------------------------------------------------------------------------------------


def halves(task: Equality | Disjointness, length: int, second: Callable[[Digits], Digits]) -> Fooling:
    """x # y, where y is x itself for equality and the complement of x for disjointness."""
    n = length // 2

    def joined(i: Digits) -> Tensor:
        return torch.cat([i + 1, torch.full_like(i[:, :1], task.alphabet + 1), second(i) + 1], dim=1)

    return Fooling(task, (task.alphabet,) * n, joined, torch.arange(2 * n + 1) < n, answer=1)


def equal_halves(task: Equality, length: int) -> Fooling:
    return halves(task, length, lambda i: i)


def complements(task: Disjointness, length: int) -> Fooling:
    return halves(task, length, lambda i: 1 - i)


def in_turn(task: BoundedDyck, length: int) -> Fooling:
    """Words of depth 1: a bracket opens at every odd position and closes at the next."""

    def word(i: Digits) -> Tensor:
        return torch.stack([2 * i + 1, 2 * i + 2], dim=2).flatten(1)

    return Fooling(task, (task.k,) * (length // 2), word, every_other(length), answer=1)


def nested(task: BoundedDyck, length: int) -> Fooling:
    """Every word of depth 2 or less: after each odd position exactly one bracket is open.

    First a bracket opens. Then each pair of positions opens and closes a bracket inside it, or closes it and opens the
    next: 2 k ways. At the end it closes. The odd positions determine the word, and so do the even positions.
    """
    k, pairs = task.k, length // 2 - 1

    def word(i: Digits) -> Tensor:
        outer, tokens = i[:, 0], [2 * i[:, 0] + 1]
        for way in i[:, 1:].T:
            kind, inside = way % k, way < k
            tokens += [torch.where(inside, 2 * kind + 1, 2 * outer + 2), 2 * kind + torch.where(inside, 2, 1)]
            outer = torch.where(inside, outer, kind)
        return torch.stack([*tokens, 2 * outer + 2], dim=1)

    return Fooling(task, (k,) + (2 * k,) * pairs, word, every_other(length), answer=1)
