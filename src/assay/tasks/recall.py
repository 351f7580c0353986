"""Associative recall: keys are bound to values, and later keys are queries for their values."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bins import Bin, doubling_bins
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import IGNORE, Task, columns, symbols_named


class Bindings(Task):
    """A key is bound to the value after its first occurrence with one. A later occurrence of it is a query."""

    vocabulary: Annotated[
        int, Field(ge=4, le=2**20, multiple_of=2, description="number of symbols; half are keys, half values")
    ]
    latest: ClassVar[bool] = False  # whether a key's last binding counts, not its first

    @property
    def keys(self) -> int:
        return self.vocabulary // 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_named("k", self.keys) + symbols_named("v", self.keys)

    @property
    def answers(self) -> tuple[str, ...]:
        return symbols_named("v", self.keys)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        key = torch.where(inputs <= self.keys, inputs, 0)
        follower = torch.nn.functional.pad(inputs[:, 1:], (0, 1))
        bound = bound_at(key, (key > 0) & (follower > self.keys), latest=self.latest)
        return torch.where(bound >= 0, follower.gather(1, bound.clamp(min=0)) - self.keys - 1, IGNORE)

    def log2_pairs(self, count: int) -> float:
        """The logarithm of the number of ways to bind `count` keys."""
        orders = math.lgamma(self.keys + 1) - math.lgamma(self.keys - count + 1)
        return orders / math.log(2) + count * math.log2(self.keys)

    def pairs(self, count: int, rng: Rng) -> Int[Tensor, "rows twice_count"]:
        """Distinct uniform keys, each followed by a uniform value: k v k v ..."""
        keys = distinct(count, self.keys, rng.child("keys")) + 1
        values = rng.child("values").integers(count, self.keys) + 1 + self.keys
        return torch.stack([keys, values], dim=2).flatten(1)


def bound_at(
    keys: Int[Tensor, "rows time"], binds: Bool[Tensor, "rows time"], latest: bool = False
) -> Int[Tensor, "rows time"]:
    """The position at which each position's key was bound first (or last) before it; -1 if it was not.

    >>> bound_at(torch.tensor([[5, 5, 7, 5]]), torch.tensor([[True, True, False, True]]), latest=True).tolist()
    [[-1, 0, -1, 1]]
    """
    ordered, order = keys.sort(dim=1, stable=True)
    place, binding = columns(keys), binds.gather(1, order)
    begins = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    group = torch.where(begins, place, 0).cummax(1).values

    def last_before(flags: Bool[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        flagged = torch.nn.functional.pad(torch.where(flags, place, -1)[:, :-1], (1, 0), value=-1)
        last = flagged.cummax(1).values
        return torch.where(last >= group, last, -1)

    found = last_before(binding)
    if not latest:
        found = last_before(binding & (found < 0))
    return torch.zeros_like(order).scatter(1, order, order.gather(1, found.clamp(min=0)).where(found >= 0, -1))


def distinct(count: int, high: int, rng: Rng) -> Int[Tensor, "rows count"]:
    """Different integers in [0, high), every ordered choice equally likely; the first ones do not depend on `count`.

    These are the first `count` different numbers of many draws. If no reasonable number of draws is certain to suffice,
    a random permutation of all numbers follows them.
    """
    expected = count + 8 * math.sqrt(count) + 16  # 8 standard deviations more than needed
    certain = expected < 0.9 * high
    drawn = rng.child("draws").integers(math.ceil(-high * math.log1p(-expected / high)) if certain else 2 * high, high)
    if not certain:
        drawn = torch.cat([drawn, rng.child("rest").order(high)], dim=1)
    ascending, order = drawn.sort(dim=1, stable=True)
    repeats = torch.nn.functional.pad(ascending[:, 1:] == ascending[:, :-1], (1, 0))
    repeats = torch.zeros_like(repeats).scatter(1, order, repeats)
    return drawn.gather(1, repeats.long().argsort(dim=1, stable=True))[:, :count]


class Recall(Bindings):
    """k v k v ... k: one query at the end, uniformly chosen from the keys bound before it.

    >>> Recall(vocabulary=8).explain("k2 v0 k1 v3 k2")
    '. . . . v0'
    """

    kind: ClassVar[str] = "recall"
    vocabulary: Annotated[
        int, Field(ge=4, le=2**20, multiple_of=2, description="number of symbols; half are keys, half values")
    ] = 512

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return 3, min(51, 2 * self.keys - 1)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        tokens = self.pairs(min((width + 1) // 2, self.keys), rng)
        tokens = torch.nn.functional.pad(tokens, (0, max(0, width - tokens.shape[1])))[:, :width]
        query = 2 * rng.child("query").integers(1, (lengths // 2)[:, None])
        return tokens.scatter(1, (lengths - 1)[:, None], tokens.gather(1, query))

    def log2_inputs(self, length: int) -> float:
        return self.log2_pairs(length // 2) + math.log2(length // 2)

    def fits(self, length: int) -> bool:
        return length % 2 == 1 and 3 <= length <= 2 * self.keys - 1

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Queries of the first, second and last key; and pairs in which only the asked key has another value."""
        random, lonely = [], []
        for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
            count = length // 2
            pairs = self.pairs(count, Rng.seeded(0, "probes").rows(1))[0].tolist()
            for asked in sorted({0, 1, count - 2, count - 1} & set(range(count))):
                random.append([*pairs, pairs[2 * asked]])
                same = [[key, self.keys + (2 if i == asked else 1)] for i, key in enumerate(pairs[::2])]
                lonely.append([*(token for pair in same for token in pair), pairs[2 * asked]])
        return [Probe("extreme positions", rows_of(random)), Probe("one different value", rows_of(lonely))]

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        return doubling_bins(low, high, longest=max(high, 2 * self.keys - 1))


class MultiQueryRecall(Bindings):
    """MQAR (Arora et al. 2023): first the pairs, then every key again at power-law gaps among uniformly random tokens.

    There is a question at every key that was bound before, also if it is one of the random tokens.

    >>> MultiQueryRecall(vocabulary=8, pairs_bound=2).explain("k2 v0 k1 v3 v1 k1 k3 k2")
    '. . . . . v3 . v0'
    """

    kind: ClassVar[str] = "multi-query-recall"
    vocabulary: Annotated[
        int, Field(ge=4, le=2**20, multiple_of=2, description="number of symbols; half are keys, half values")
    ] = 8192
    pairs_bound: Annotated[int, Field(ge=1, le=25_000, description="pairs of a key and a value at the start")] = 8
    power: Annotated[
        float, Field(gt=0, description="a query comes after a gap of n slots with weight n^(power - 1)")
    ] = 0.01

    query_tokens: ClassVar[int] = 1

    @property
    def context_tokens(self) -> int:
        """The length of the part in which keys are bound."""
        return 2 * self.pairs_bound

    def context(self, rng: Rng) -> tuple[Int[Tensor, "rows context"], Int[Tensor, "rows pairs query"]]:
        """The part in which keys are bound, and the tokens of each query."""
        pairs = self.pairs(self.pairs_bound, rng)
        return pairs, pairs[:, ::2, None]

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        slots = max(self.pairs_bound, -(-(64 - self.context_tokens) // (self.query_tokens + 1)))
        length = self.context_tokens + slots * (self.query_tokens + 1)
        return length, length

    @model_validator(mode="after")
    def _enough_keys(self) -> MultiQueryRecall:
        if self.pairs_bound > self.keys:
            raise ValueError(
                f"{self.kind}: {self.pairs_bound} pairs need as many keys, and a vocabulary of "
                f"{self.vocabulary} has {self.keys}"
            )
        return self

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        context, queries = self.context(rng)
        begin, size = context.shape[1], self.query_tokens + 1
        noise = rng.child("noise").integers(max(width - begin, 0), self.vocabulary) + 1
        slots = max(width - begin, 0) // size
        # Sorting exponential times with these rates gives weighted draws without replacement.
        rates = _power_law(slots, self.power, lengths.device)
        clocks = -torch.log1p(-rng.child("gaps").uniform(slots)) / rates
        open_slots = torch.arange(slots, device=lengths.device) < ((lengths - begin) // size)[:, None]
        chosen = clocks.where(open_slots, torch.inf).argsort(dim=1, stable=True)[:, : self.pairs_bound]
        for i in range(self.query_tokens):
            noise.scatter_(1, size * chosen + i, queries[:, :, i])
        return torch.cat([context, noise], dim=1)

    def log2_inputs(self, length: int) -> float:
        return self.log2_pairs(self.pairs_bound)

    def fits(self, length: int) -> bool:
        slots, rest = divmod(length - self.context_tokens, self.query_tokens + 1)
        return slots >= self.pairs_bound and rest == 0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """All queries as early or as late as possible, in either order; and one key asked in every slot."""
        early, late, repeated = [], [], []
        context, keys = (x[0].tolist() for x in self.context(Rng.seeded(0, "probes").rows(1)))
        noise = len(self.symbols) - len(self.answers) + 1  # a value: no query
        for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
            free = (length - len(context)) // (self.query_tokens + 1)
            for order in (keys, keys[::-1]):
                queries = [token for key in order for token in (*key, noise)]
                gap = [noise] * (length - len(context) - len(queries))
                early.append([*context, *queries, *gap])
                late.append([*context, *gap, *queries])
            repeated += [[*context, *[*key, noise] * free] for key in (keys[0], keys[-1])]
        named = {"early queries": early, "late queries": late, "repeated keys": repeated}
        return [Probe(name, rows_of(rows)) for name, rows in named.items()]

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        return self.doubled_bins(low, high)


@cache
def _power_law(slots: int, power: float, device: torch.device) -> Float[Tensor, "slots"]:
    return torch.arange(1, slots + 1, dtype=torch.float64).pow(power - 1).to(device)
