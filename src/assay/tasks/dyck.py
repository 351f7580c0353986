"""Bracket languages of unbounded depth: Dyck-1, shuffles of Dyck-1, and Dyck-1 with resets."""

from __future__ import annotations

import math
from itertools import product
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe, powers, rows_of
from assay.tasks.published import PublishedTask, brackets, categorical, size_chances
from assay.tasks.task import DEAD, PAD

OPENING, CLOSING = "([{<", ")]}>"


def dyck_steps(lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
    """Steps +1 and -1 of a uniformly random Dyck word of each (even) length.

    The cycle lemma: of the 2n + 1 rotations of a sequence of n ups and n + 1 downs, exactly one is a Dyck word followed
    by a down. So shuffle, rotate so that the sequence begins after its first minimum, and drop the last down.
    """
    time = torch.arange(width + 1, device=lengths.device)
    inside = time <= lengths[:, None]
    order = rng.words(width + 1).where(inside, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
    ups = (time < (lengths // 2)[:, None]).long() * 2 - 1
    steps = torch.zeros_like(order).scatter(1, order, ups)
    # argmin may return any of several minima: positions break ties, so that every device returns the first.
    heights = steps.cumsum(1).where(inside, width) * (width + 1) + time
    after_minimum = heights.argmin(dim=1, keepdim=True) + 1
    rotated = (after_minimum + time[:-1]) % (lengths[:, None] + 1)
    return steps.gather(1, rotated)


def _brackets(word: str, kind: int = 0) -> list[int]:
    """The tokens of a word of round brackets, as brackets of one type."""
    return [2 * kind + "()".index(bracket) + 1 for bracket in word]


def log2_catalan(n: int) -> float:
    """The logarithm of the number of Dyck words of length 2n."""
    return (math.lgamma(2 * n + 1) - math.lgamma(n + 1) - math.lgamma(n + 2)) / math.log(2)


def adverse_words(longest: int) -> dict[str, list[str]]:
    """Dyck words of at most this length that random ones hardly ever resemble."""
    n = longest // 2
    depths = [d for d in powers(n) if d < n]
    return {
        "deepest": ["(" * d + ")" * d for d in powers(n)],
        "kept open": ["(" * d + "()" * (n - d) + ")" * d for d in depths],
        "deep late": ["()" * (n - d) + "(" * d + ")" * d for d in depths],
        "flattest": ["()" * n],
    }


def published_brackets(low: int, high: int, rng: Rng) -> Int[Tensor, "rows time"]:
    """Published Dyck words of lengths low to high, as `brackets` writes them."""
    fewest, most = max(1, (low + 1) // 2), high // 2
    sizes = fewest + categorical(size_chances(most)[fewest:], rng.child("size"))
    return torch.nn.functional.pad(brackets(sizes, rng.child("word"), most), (0, high - 2 * most))


class Dyck1(PublishedTask):
    """Well-nested brackets of one type: 1 if a bracket is open. All Dyck words of a length are equally likely.

    Published strings come from the grammar S -> ( S ) with probability 1/2, S S with 1/4, empty with 1/4. Most of them
    are very short; a set has none of them twice.

    >>> Dyck1().explain("(())")
    '1110'
    >>> Dyck1().explain("())(")
    '10!!'
    """

    kind: ClassVar[str] = "dyck-1"
    symbols: ClassVar[tuple[str, ...]] = ("(", ")")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        depth = ((inputs == 1).long() - (inputs == 2).long()).cumsum(1)
        return torch.where(depth.cummin(1).values < 0, 2, (depth > 0).long())

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return torch.where(dyck_steps(lengths, rng, width) > 0, 1, 2)

    def published(self, low: int, high: int, rng: Rng) -> Int[Tensor, "rows time"]:
        word = published_brackets(low, high, rng)
        return torch.where(word > 0, 1, torch.where(word < 0, 2, PAD))

    def log2_inputs(self, length: int) -> float:
        return log2_catalan(length // 2)

    def fits(self, length: int) -> bool:
        return length > 0 and length % 2 == 0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        return [Probe(name, rows_of(map(_brackets, words))) for name, words in adverse_words(longest).items()]


class Shuffle(PublishedTask):
    """Interleaved Dyck-1 words of k bracket types: one bit per type, 1 if a bracket of that type is open.

    Each of the length / 2 pairs gets a uniform type, the types are shuffled over the positions, and the brackets of
    each type are a uniformly random Dyck word. So `([)]` occurs.

    Published strings (k = 2 only) are those of Dyck-1 with a random type for each pair. So all of them are well nested,
    and `([)]` does not occur: a defect of the published code.

    >>> Shuffle(k=2).explain("[[([])]]")
    '01 01 11 11 11 01 01 00'
    """

    kind: ClassVar[str] = "shuffle"
    k: Annotated[int, Field(ge=1, le=4, description="bracket types")] = 2

    @model_validator(mode="after")
    def _published_for_two(self) -> Shuffle:
        if self.is_published and self.k != 2:
            raise ValueError(f"shuffle: k = {self.k} has no published strings; k = 2 has")
        return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(bracket for pair in zip(OPENING, CLOSING, strict=True) for bracket in pair)[: 2 * self.k]

    @property
    def answers(self) -> tuple[str, ...]:
        return (*map("".join, product("01", repeat=self.k)), DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        bits = torch.zeros_like(inputs)
        dead = torch.zeros_like(inputs, dtype=torch.bool)
        for i in range(self.k):
            depth = ((inputs == 2 * i + 1).long() - (inputs == 2 * i + 2).long()).cumsum(1)
            dead |= depth.cummin(1).values < 0
            bits = 2 * bits + (depth > 0)
        return torch.where(dead, 2**self.k, bits)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        inside = torch.arange(width, device=lengths.device) < lengths[:, None]
        pairs = rng.child("types").integers((width + 1) // 2, self.k)
        order = rng.child("order").words(width).where(inside, torch.iinfo(torch.int64).max)
        order = order.argsort(dim=1, stable=True)
        types = torch.zeros_like(order).scatter(1, order, pairs.repeat_interleave(2, dim=1)[:, :width])
        tokens = torch.zeros_like(order)
        for i in range(self.k):
            of_type = (types == i) & inside
            steps = dyck_steps(of_type.sum(1), rng.child("word", i), width)
            step = steps.gather(1, (of_type.cumsum(1) - 1).clamp(min=0))
            tokens = torch.where(of_type, torch.where(step > 0, 2 * i + 1, 2 * i + 2), tokens)
        return tokens

    def published(self, low: int, high: int, rng: Rng) -> Int[Tensor, "rows time"]:
        word = published_brackets(low, high, rng)
        types = rng.child("types").integers(word.shape[1], self.k).gather(1, (word.abs() - 1).clamp(min=0))
        return torch.where(word > 0, 2 * types + 1, torch.where(word < 0, 2 * types + 2, PAD))

    def log2_inputs(self, length: int) -> float:
        """C(n) inputs for one type, C(n) C(n + 1) for two, and more for more types (C: the Catalan numbers)."""
        n = length // 2
        return log2_catalan(n) + (log2_catalan(n + 1) if self.k > 1 else 0.0)

    def fits(self, length: int) -> bool:
        return length > 0 and length % 2 == 0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Adverse Dyck words of each type alone, and two types that are nested or that cross."""
        words = adverse_words(longest)
        probes = [
            Probe(name, rows_of(_brackets(word, kind) for word in words[name] for kind in range(self.k)))
            for name in words
        ]
        if self.k > 1 and longest >= 4:
            sizes, (a, z, b, y) = powers(longest // 4), (1, 2, 3, 4)
            crossing = [[a] * n + [b] * n + last for n in sizes for last in ([z] * n + [y] * n, [y] * n + [z] * n)]
            kept = [[a, *[b, y] * (longest // 2 - 1), z], [b, *[a, z] * (longest // 2 - 1), y]]
            probes.append(Probe("two types", rows_of(crossing + kept)))
        return probes


class ResetDyck1(PublishedTask):
    """Dyck-1 in which the symbol 1 is a reset: everything before it is forgotten, also a mistake.

    Every token is a reset with probability 1/10. Between resets the depth is a random walk reflected at 0; the rest
    after the last reset is a uniformly random Dyck word (if its length is odd, its first token is a reset too). With
    growing excursions the probability is 5 / length for words of more than 50 tokens, so that they have about 5 resets.

    Published strings are a random beginning of a published Dyck word, one reset, and another such word, which may be
    empty. Each word is at most as long as the longest length, so that a string can have twice this length and one more.

    >>> ResetDyck1().explain("(((1()")
    '111010'
    >>> ResetDyck1().explain("())1(")
    '10!01'
    """

    kind: ClassVar[str] = "reset-dyck-1"
    symbols: ClassVar[tuple[str, ...]] = ("(", ")", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", DEAD)
    added: ClassVar[tuple[str, ...]] = (*PublishedTask.added, "excursions")
    excursions: Annotated[
        Literal["short", "growing"],
        Field(description="short: a token resets with 1/10; growing: with 5 / length in words of more than 50 tokens"),
    ] = "short"

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        resets = inputs == 3
        height = ((inputs == 1).long() - (inputs == 2).long()).cumsum(1)
        base = at_last(resets, height)
        # Each segment between resets is shifted far below the one before it: one running minimum serves all segments.
        shift = 2 * inputs.shape[1] * resets.cumsum(1)
        lowest = (height - shift).cummin(1).values + shift
        return torch.where(lowest < base, 2, (height > base).long())

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        time = torch.arange(width, device=lengths.device)
        span = lengths.clamp(min=50)[:, None] if self.excursions == "growing" else 50  # of about 5 resets
        resets = (rng.child("resets").integers(width, span) < 5) & (time < lengths[:, None])
        last = torch.where(resets, time + 1, 0).amax(1)  # the beginning of the last segment
        odd = (lengths - last) % 2
        resets |= (time == last[:, None]) & (odd == 1)[:, None]
        last = (last + odd)[:, None]
        # The distance of a random walk from its start is a walk reflected at 0.
        coins = torch.where(resets, 0, rng.child("walk").integers(width, 2) * 2 - 1)
        heights = coins.cumsum(1)
        depth = (heights - at_last(resets, heights)).abs()
        up = depth > torch.nn.functional.pad(depth[:, :-1], (1, 0))
        word = dyck_steps(lengths - last[:, 0], rng.child("word"), width)
        up_last = word.gather(1, (time - last).clamp(min=0)) > 0
        return torch.where(resets, 3, torch.where(torch.where(time < last, up, up_last), 1, 2))

    def published(self, low: int, high: int, rng: Rng) -> Int[Tensor, "rows time"]:
        most, time = high // 2, torch.arange(self.width(high), device=rng.keys.device)
        # Both sizes at once, weighted with the share of beginnings that make the string long enough.
        chances, lengths = size_chances(most), 2 * torch.arange(most + 1)
        shortest = (low - 1 - lengths[:, None]).clamp(min=0)  # beginning, by the length of the second word
        shares = (lengths + 1 - shortest).clamp(min=0) / (lengths + 1)
        sizes = categorical((chances[:, None] * chances * shares).flatten(), rng.child("sizes"))
        second, first = sizes // (most + 1), sizes % (most + 1)
        shortest = (low - 1 - 2 * second).clamp(min=0)
        reset = (shortest + rng.child("reset").integers(1, (2 * first + 1 - shortest)[:, None])[:, 0])[:, None]
        before, after = (
            torch.nn.functional.pad(brackets(size, rng.child("word", number), most), (0, len(time) - 2 * most))
            for number, size in enumerate((first, second))
        )
        word = torch.where(time < reset, before, after.gather(1, (time - reset - 1).clamp(min=0)))
        return torch.where(time == reset, 3, torch.where(word > 0, 1, torch.where(word < 0, 2, PAD)))

    def width(self, high: int) -> int:
        return 2 * high + 1 if self.is_published else high

    def log2_inputs(self, length: int) -> float:
        return length - 1.0  # a reset or a bracket at every position, and a reset at the end

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Lassos, runs, adverse Dyck words, and resets at every depth."""
        if longest < 4:
            return []
        probes = self.lasso_probes(longest) + self.run_probes(trained[1], longest)
        probes += [Probe(name, rows_of(map(_brackets, words))) for name, words in adverse_words(longest).items()]
        depths = [d for d in powers(longest) if d + 3 <= longest]
        resets = [[1] * d + [3] + [1, 2] * ((longest - d - 1) // 2) for d in depths]
        return [*probes, Probe("resets", rows_of(resets))]


def at_last(marks: Bool[Tensor, "rows time"], values: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
    """At every position the value at the last mark up to it, 0 before the first mark."""
    time = torch.arange(marks.shape[1], device=marks.device)
    last = torch.where(marks, time, -1).cummax(1).values
    return torch.where(last >= 0, values.gather(1, last.clamp(min=0)), 0)
