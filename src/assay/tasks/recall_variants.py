"""Associative recall made harder: values that change, keys of several tokens, noise, and recall in several hops."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.prefix_tasks import FreeTask
from assay.tasks.probes import Probe, rows_of
from assay.tasks.recall import MultiQueryRecall, Recall, bound_at, distinct
from assay.tasks.task import IGNORE, columns, symbols_named


class ForgettingRecall(MultiQueryRecall):
    """Forgetting MQAR: the pairs, new values for some of the keys, then every key again; the last value counts.

    A question at a key asks for the value of its last binding before. Chance pairs among the random tokens bind, too,
    and the answers follow them (in the code of Arora et al. 2023 they do not).

    >>> ForgettingRecall(vocabulary=8, pairs_bound=2, updates=1).explain("k2 v0 k1 v3 k2 v1 k1 v0 k2")
    '. . . . v0 . v3 . v1'
    """

    kind: ClassVar[str] = "forgetting-recall"
    latest: ClassVar[bool] = True
    updates: Annotated[int, Field(ge=1, description="keys that get a new value")] = 4

    @model_validator(mode="after")
    def _enough_pairs(self) -> ForgettingRecall:
        if self.updates > self.pairs_bound:
            raise ValueError(
                f"forgetting-recall: {self.updates} updates need as many pairs_bound, not {self.pairs_bound}"
            )
        return self

    @property
    def context_tokens(self) -> int:
        return 2 * (self.pairs_bound + self.updates)

    def context(self, rng: Rng) -> tuple[Int[Tensor, "rows context"], Int[Tensor, "rows pairs query"]]:
        pairs = self.pairs(self.pairs_bound, rng)
        changed = 2 * distinct(self.updates, self.pairs_bound, rng.child("updated"))
        old = pairs.gather(1, changed + 1) - self.keys - 1
        new = (old + 1 + rng.child("new values").integers(self.updates, self.keys - 1)) % self.keys + self.keys + 1
        updates = torch.stack([pairs.gather(1, changed), new], dim=2).flatten(1)
        return torch.cat([pairs, updates], dim=1), pairs[:, ::2, None]


class CompositionalRecall(MultiQueryRecall):
    """Compositional MQAR: a key is two tokens, and all combinations of some first and some second tokens are bound.

    So neither token alone says what the value is. First `a b v` for every combination, in random order, then every key
    again; a question stands at the second token of a key that was bound before. The first binding counts.

    >>> CompositionalRecall(vocabulary=12, pairs_bound=1).explain("a2 b0 v3 b0 a2 b1 a2 b0")
    '. . . . . . . v3'
    """

    kind: ClassVar[str] = "compositional-recall"
    vocabulary: Annotated[
        int,
        Field(
            ge=6,
            le=2**20 - 1,
            multiple_of=3,
            description="number of symbols; thirds are first tokens, second ones and values",
        ),
    ] = 8190
    pairs_bound: Annotated[int, Field(ge=1, le=129**2, description="keys that are bound; a square number")] = 4
    query_tokens: ClassVar[int] = 2

    @model_validator(mode="after")
    def _enough_keys(self) -> CompositionalRecall:
        if self.side**2 != self.pairs_bound:
            raise ValueError(
                f"compositional-recall: pairs_bound = {self.pairs_bound} is not a square number; "
                f"{self.side**2} and {(self.side + 1) ** 2} are"
            )
        if self.side > self.keys:
            raise ValueError(
                f"compositional-recall: {self.pairs_bound} keys need {self.side} first tokens, and a vocabulary of "
                f"{self.vocabulary} has {self.keys}"
            )
        return self

    @property
    def side(self) -> int:
        return math.isqrt(self.pairs_bound)

    @property
    def keys(self) -> int:
        return self.vocabulary // 3

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_named("a", self.keys) + symbols_named("b", self.keys) + symbols_named("v", self.keys)

    @property
    def context_tokens(self) -> int:
        return 3 * self.pairs_bound

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        n = self.keys
        previous, follower = (torch.nn.functional.pad(inputs, pad) for pad in ((1, 0), (0, 1)))
        previous, follower = previous[:, :-1], follower[:, 1:]
        is_key = (previous > 0) & (previous <= n) & (inputs > n) & (inputs <= 2 * n)
        key = torch.where(is_key, (previous - 1) * n + inputs - n, 0)
        bound = bound_at(key, is_key & (follower > 2 * n))
        return torch.where(bound >= 0, follower.gather(1, bound.clamp(min=0)) - 2 * n - 1, IGNORE)

    def context(self, rng: Rng) -> tuple[Int[Tensor, "rows context"], Int[Tensor, "rows pairs query"]]:
        side, count, n = self.side, self.pairs_bound, self.keys
        first, second = (distinct(side, n, rng.child(name)) for name in ("first", "second"))
        order = rng.child("order").order(count)
        keys = torch.stack([first.gather(1, order // side) + 1, second.gather(1, order % side) + n + 1], dim=2)
        values = rng.child("values").integers(count, n) + 2 * n + 1
        return torch.cat([keys, values[..., None]], dim=2).flatten(1), keys

    def log2_inputs(self, length: int) -> float:
        n, side, count = self.keys, self.side, self.pairs_bound
        return 2 * math.log2(math.comb(n, side)) + math.lgamma(count + 1) / math.log(2) + count * math.log2(n)


class NoisyRecall(Recall):
    """Recall with noise: some pairs of `k v k v ... k` are two noise tokens instead (Poli et al. 2024).

    Noise is what the oracle strikes out, wherever it stands. Keys are distinct, as in `recall`.

    >>> NoisyRecall(vocabulary=8, noise_symbols=2).explain("k2 v0 x1 x0 k1 x1 v3 k1")
    '. . . . . . . v3'
    """

    kind: ClassVar[str] = "noisy-recall"
    noise_symbols: Annotated[int, Field(ge=1, le=2**16, description="noise symbols, beside the vocabulary")] = 16
    share: Annotated[float, Field(ge=0, le=0.9, description="the share of pairs that are noise instead")] = 0.2

    @property
    def symbols(self) -> tuple[str, ...]:
        return super().symbols + symbols_named("x", self.noise_symbols)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        noise = inputs > self.vocabulary
        order = noise.long().argsort(dim=1, stable=True)
        answers = super().answer(inputs.masked_fill(noise, 0).gather(1, order))
        return torch.empty_like(answers).scatter(1, order, answers)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        tokens = super().draw(lengths, rng, width)
        slots = torch.arange(width, device=lengths.device) // 2
        asked = rng.child("query").integers(1, (lengths // 2)[:, None])
        noisy = rng.child("noisy").uniform((width + 1) // 2)[:, slots] < self.share
        noise = rng.child("noise").integers(width, self.noise_symbols) + 1 + self.vocabulary
        before_query = columns(tokens) < (lengths - 1)[:, None]
        return torch.where(noisy & (slots != asked) & before_query, noise, tokens)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Those of recall, and one pair among noise alone: first, last or in the middle."""
        alone, pair, noise = [], [1, self.keys + 2], self.vocabulary + 1
        for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
            slots = length // 2
            for place in sorted({0, slots // 2, slots - 1} if self.share else ()):
                alone.append([*[noise] * (2 * place), *pair, *[noise] * (2 * (slots - 1 - place)), pair[0]])
        return [*super().probes(trained, longest), Probe("one pair among noise", rows_of(alone))]


class KHop(FreeTask):
    """k-hop induction (Sanford et al. 2024): the symbol where k hops end.

    A hop leads from a position to the one after the last earlier position with the same symbol. If there is none, the
    answer is `none`. All strings are equally likely.

    >>> KHop(k=1).explain("s0 s2 s1 s0")
    'none none none s2'
    >>> KHop(k=2).explain("s1 s3 s0 s1 s2 s0")
    'none none none none none s3'
    """

    kind: ClassVar[str] = "k-hop"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 4
    k: Annotated[int, Field(ge=1, le=64, description="hops")] = 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_named("s", self.alphabet)

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.symbols, "none")

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        hop = bound_at(inputs, torch.ones_like(inputs, dtype=torch.bool), latest=True) + 1  # 0: none
        place, found = columns(inputs).expand_as(inputs), torch.ones_like(inputs, dtype=torch.bool)
        for _ in range(self.k):
            place = hop.gather(1, place)
            found = found & (place > 0)
        return torch.where(found, inputs.gather(1, place) - 1, self.alphabet)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, self.alphabet).add_(1)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Beside lassos and runs: a last symbol that occurred only once before, first, late or in the middle.

        And hops that are all as far as possible: as many as there are symbols for, beside one that fills the gaps.
        """
        drawn = (Rng.seeded(0, "probes").integers(longest, self.alphabet - 1) + 1).tolist()
        once, far, hops = [], [], min(self.k, self.alphabet - 2)
        for length in sorted({min(trained[1], longest), longest}):
            for place in sorted({0, (length - 2) // 2, length - 2} if length > 1 else ()):
                once.append([*drawn[:place], self.alphabet, *drawn[place : length - 2], self.alphabet])
            if 0 < hops < (length + 1) // 2:
                gap, rest = divmod(length - 2 * hops - 1, hops)
                pairs = ([hop + 1, hop + 2, *[1] * gap] for hop in range(hops, 0, -1))
                far.append([*[1] * rest, *(token for pair in pairs for token in pair), 2])
        named = {"one earlier occurrence": once, "far hops": far}
        return [*super().probes(trained, longest), *(Probe(name, rows_of(rows)) for name, rows in named.items())]
