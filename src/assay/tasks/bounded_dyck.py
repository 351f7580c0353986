"""Dyck languages of bounded depth."""

from __future__ import annotations

import math
from functools import cache, cached_property
from itertools import product
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.dyck import CLOSING, OPENING, at_last
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import Task, on_device


class BoundedDyck(Task):
    """Dyck-(k, D): well-nested brackets of k types, at most D deep. The answer, accept or reject, is at the end.

    Half of the inputs are words: a random walk on depths 0 to D that ends at 0, with uniform types. The other half are
    negatives: `corrupted` changes 1 to length/10 positions of a word (half of them to another type, half from open to
    close or back); `count-balanced` exchanges two closing brackets of different types, or the first and the last
    bracket if there are none, so that counts of symbols do not tell them from words.

    >>> BoundedDyck(k=2, depth=2).explain("([])[]")
    '.....1'
    >>> BoundedDyck(k=2, depth=2).explain("([)]")
    '...0'
    >>> BoundedDyck(k=2, depth=2).explain("([()])")
    '.....0'
    """

    kind: ClassVar[str] = "bounded-dyck"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    train_lengths: ClassVar[tuple[int, int]] = (20, 100)
    k: Annotated[int, Field(ge=1, le=4, description="bracket types")] = 2
    depth: Annotated[int, Field(ge=1, le=8, description="the largest depth D of a word")] = 2
    negatives: Annotated[
        Literal["corrupted", "count-balanced"],
        Field(description="how inputs that are not words are made: corrupted or count-balanced"),
    ] = "corrupted"

    @model_validator(mode="after")
    def _small(self) -> BoundedDyck:
        if self.k**self.depth > 4096:
            raise ValueError(f"bounded-dyck: k^depth = {self.k**self.depth} is too many stacks; at most 4096")
        return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(bracket for pair in zip(OPENING, CLOSING, strict=True) for bracket in pair)[: 2 * self.k]

    @cached_property
    def machine(self) -> Machine:
        """One state per stack, and a last state that rejects."""
        stacks = [stack for d in range(self.depth + 1) for stack in product(range(self.k), repeat=d)]
        number = {stack: i for i, stack in enumerate(stacks)}
        reject = len(stacks)
        moves = torch.full((reject + 1, 2 * self.k), reject)
        for stack, i in number.items():
            for kind in range(self.k):
                moves[i, 2 * kind] = number.get((*stack, kind), reject)
                if stack and stack[-1] == kind:
                    moves[i, 2 * kind + 1] = number[stack[:-1]]
        outputs = torch.zeros(reject + 1, dtype=torch.int64)
        outputs[number[()]] = 1
        return Machine(moves, outputs)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        words = self._words(lengths, rng.child("words"), width)
        make_negatives = self._corrupt if self.negatives == "corrupted" else self._exchange
        negatives = make_negatives(words, lengths, rng.child("negatives"))
        return torch.where(rng.child("label").integers(1, 2) == 1, words, negatives)

    def _words(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        remaining = (lengths - torch.arange(width, device=lengths.device)[:, None]).clamp_(0, self.depth)
        choices = remaining * 2 + rng.child("walk").integers(width, 2).T
        table = on_device(self._walk, lengths.device).flatten()
        depth = torch.zeros_like(lengths)
        walk = []
        for choice in choices:
            depth = table[choice * (self.depth + 1) + depth]
            walk.append(depth)
        depths = torch.stack(walk, dim=1)
        up = depths > torch.nn.functional.pad(depths[:, :-1], (1, 0))
        types = rng.child("types").integers(width, self.k)
        # A closing bracket has the type of the last bracket opened at its level.
        for level in range(1, self.depth + 1):
            at_level = depths + (~up).long() == level
            types = torch.where(at_level, at_last(at_level & up, types), types)
        return 2 * types + torch.where(up, 1, 2)

    @cached_property
    def _walk(self) -> Int[Tensor, "remaining coin depths"]:
        """The next depth, indexed by the number of remaining tokens (up to `depth`), a coin and the current depth."""
        depth = torch.arange(self.depth + 1)
        remaining, coin = depth[:, None, None], torch.arange(2)[:, None]
        may_open = (depth < self.depth) & (depth < remaining)
        return torch.where((depth == 0) | (may_open & (coin == 1)), depth + 1, depth - 1)

    def _corrupt(self, words: Tensor, lengths: Tensor, rng: Rng) -> Int[Tensor, "rows time"]:
        width = words.shape[1]
        time = torch.arange(width, device=words.device).expand_as(words)
        inside = time < lengths[:, None]
        count = rng.child("count").integers(1, (lengths // 10).clamp(min=1)[:, None]) + 1
        order = rng.child("places").words(width).where(inside, torch.iinfo(torch.int64).max)
        rank = torch.zeros_like(words).scatter(1, order.argsort(dim=1, stable=True), time)
        flipped = (words - 1) // 2 * 2 + (words % 2) + 1
        swapped = flipped
        if self.k > 1:
            other = ((words - 1) // 2 + 1 + rng.child("types").integers(width, self.k - 1)) % self.k
            swapped = 2 * other + 2 - words % 2
        change = torch.where(rng.child("how").integers(width, 2) == 1, swapped, flipped)
        changed = torch.where(rank < count, change, words)
        # Several changes can cancel, but a word with one change is never a word.
        still_words = self.solve(changed.where(inside, 0)).amax(1, keepdim=True) == 1
        return torch.where((rank < 1) | ((rank < count) & ~still_words), change, words)

    def _exchange(self, words: Tensor, lengths: Tensor, rng: Rng) -> Int[Tensor, "rows time"]:
        width = words.shape[1]
        closing = (words % 2 == 0) & (torch.arange(width, device=words.device) < lengths[:, None])
        priority = rng.words(width)
        lowest = torch.iinfo(torch.int64).min
        first = torch.where(closing, priority, lowest).argmax(dim=1, keepdim=True)
        other_type = closing & (words != words.gather(1, first))
        second = torch.where(other_type, priority, lowest).argmax(dim=1, keepdim=True)
        one_type = ~other_type.any(1, keepdim=True)
        first, second = first.where(~one_type, 0), torch.where(one_type, lengths[:, None] - 1, second)
        exchanged = words.scatter(1, first, words.gather(1, second))
        return exchanged.scatter(1, second, words.gather(1, first))

    def log2_inputs(self, length: int) -> float:
        """Counts the words, which are fewer than the negatives: closed walks, and a type for every pair."""
        return math.log2(_closed_walks(self.depth, 1 << length.bit_length())[length]) + length // 2 * math.log2(self.k)

    def fits(self, length: int) -> bool:
        return length >= 2 and length % 2 == 0

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Words that random ones hardly ever resemble, the same with one mistake, and count-balanced negatives."""
        lengths = self.lengths(trained[0], longest)
        lengths = sorted({*lengths[::8][:8], lengths[-1]})
        words = [word for length in lengths for word in self._adverse(length // 2)]
        wrong = [twin for word in words for twin in self._mistakes(word)]
        probes = [Probe("adverse words", rows_of(words)), Probe("one mistake", rows_of(wrong))]
        if self.negatives != "count-balanced":
            rows = torch.tensor(lengths).repeat(8)
            twin = BoundedDyck(k=self.k, depth=self.depth, negatives="count-balanced")
            probes.append(Probe("count-balanced", twin.inputs(rows, Rng.seeded(0, "count-balanced").rows(len(rows)))))
        return probes

    def _adverse(self, pairs: int) -> list[list[int]]:
        """Words with this many pairs: flat, as deep as allowed again and again, and one pair around all others."""
        words, deep = [], min(self.depth, pairs)
        for kind in range(self.k):
            opening, closing, other = 2 * kind + 1, 2 * kind + 2, 2 * ((kind + 1) % self.k)
            flat = [opening, closing] * pairs
            peaks = [*[opening] * deep, *[closing] * deep] * (pairs // deep) + [opening, closing] * (pairs % deep)
            words += [flat, peaks]
            if self.depth > 1 and pairs > 1:
                words.append([opening, *[other + 1, other + 2] * (pairs - 1), closing])
        return [list(word) for word in dict.fromkeys(map(tuple, words))]

    def _mistakes(self, word: list[int]) -> list[list[int]]:
        """The word with another type of bracket, or an opening for a closing one, at its first or last closing."""
        closings = [i for i, token in enumerate(word) if token % 2 == 0]
        twins = []
        for i in (closings[0], closings[-1]):
            changes = [word[i] - 1] + ([word[i] % (2 * self.k) + 2] if self.k > 1 else [])
            twins += [[*word[:i], change, *word[i + 1 :]] for change in changes]
        return twins


@cache
def _closed_walks(depth: int, longest: int) -> list[int]:
    """The number of walks of each length from 0 to 0 that stay between 0 and the depth."""
    walks, closed = [1, *[0] * depth], [1]
    for _ in range(longest):
        walks = [below + above for below, above in zip([0, *walks[:-1]], [*walks[1:], 0], strict=True)]
        closed.append(walks[0])
    return closed
