"""Bracket languages: Dyck-1, shuffles of it, Dyck-1 with resets, and Dyck of bounded depth."""

from __future__ import annotations

import math
from functools import cache, cached_property
from itertools import product
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.task import DEAD, Task, placed

OPENING, CLOSING = "([{<", ")]}>"


def dyck_steps(lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
    """Steps +1 and -1 of a uniformly random Dyck word of each (even) length.

    The cycle lemma: of the 2n + 1 rotations of a sequence of n ups and n + 1 downs, exactly one is a Dyck word and a
    last down. So shuffle, rotate to behind the first minimum, and drop that last down.
    """
    places = torch.arange(width + 1, device=lengths.device)
    inside = places <= lengths[:, None]
    order = rng.words(width + 1).where(inside, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
    ups = (places < (lengths // 2)[:, None]).long() * 2 - 1
    steps = torch.zeros_like(order).scatter(1, order, ups)
    # argmin may return any of several minima: weigh ties by place, so that it is the first on every device.
    heights = steps.cumsum(1).where(inside, width) * (width + 1) + places
    behind_minimum = heights.argmin(dim=1, keepdim=True) + 1
    turned = (behind_minimum + places[:-1]) % (lengths[:, None] + 1)
    return steps.gather(1, turned)


def log2_catalan(n: int) -> float:
    """The logarithm of the number of Dyck words of length 2n."""
    return (math.lgamma(2 * n + 1) - math.lgamma(n + 1) - math.lgamma(n + 2)) / math.log(2)


class Dyck1(Task):
    """Well-nested brackets of one type: 1 where a bracket is open. Every Dyck word of a length is equally likely.

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

    def log2_inputs(self, length: int) -> float:
        return log2_catalan(length // 2)

    def fits(self, length: int) -> bool:
        return length > 0 and length % 2 == 0


class Shuffle(Task):
    """Interleaved Dyck-1 words of k bracket types: one bit per type, 1 where one of it is open (the first type first).

    Each of the length / 2 pairs gets a uniform type, the types are shuffled over the positions, and every type's own
    brackets are a uniformly random Dyck word. So `([)]` occurs.

    >>> Shuffle(k=2).explain("[[([])]]")
    '01 01 11 11 11 01 01 00'
    """

    kind: ClassVar[str] = "shuffle"
    k: Annotated[int, Field(ge=1, le=4)] = 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(bracket for pair in zip(OPENING, CLOSING, strict=True) for bracket in pair)[: 2 * self.k]

    @property
    def answers(self) -> tuple[str, ...]:
        return (*map("".join, product("01", repeat=self.k)), DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        said = torch.zeros_like(inputs)
        dead = torch.zeros_like(inputs, dtype=torch.bool)
        for i in range(self.k):
            depth = ((inputs == 2 * i + 1).long() - (inputs == 2 * i + 2).long()).cumsum(1)
            dead |= depth.cummin(1).values < 0
            said = 2 * said + (depth > 0)
        return torch.where(dead, 2**self.k, said)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        places = torch.arange(width, device=lengths.device)
        inside = places < lengths[:, None]
        pairs = rng.child("types").integers((width + 1) // 2, self.k)
        order = rng.child("order").words(width).where(inside, torch.iinfo(torch.int64).max)
        order = order.argsort(dim=1, stable=True)
        types = torch.zeros_like(order).scatter(1, order, pairs.repeat_interleave(2, dim=1)[:, :width])
        tokens = torch.zeros_like(order)
        for i in range(self.k):
            mine = (types == i) & inside
            steps = dyck_steps(mine.sum(1), rng.child("word", i), width)
            step = steps.gather(1, (mine.cumsum(1) - 1).clamp(min=0))
            tokens = torch.where(mine, torch.where(step > 0, 2 * i + 1, 2 * i + 2), tokens)
        return tokens

    def log2_inputs(self, length: int) -> float:
        """C(n) for one type; C(n) C(n + 1) for two, and more for more (C: the Catalan numbers)."""
        n = length // 2
        return log2_catalan(n) + (log2_catalan(n + 1) if self.k > 1 else 0.0)

    def fits(self, length: int) -> bool:
        return length > 0 and length % 2 == 0


class ResetDyck1(Task):
    """Dyck-1 in which the symbol 1 forgets all that came before it (also a mistake).

    Every token is a reset with probability 1/10. Between resets the depth is a random walk that turns up at 0; what
    follows the last reset is a uniformly random Dyck word (where its length is odd, its first token is a reset too).

    >>> ResetDyck1().explain("(((1()")
    '111010'
    >>> ResetDyck1().explain("())1(")
    '10!01'
    """

    kind: ClassVar[str] = "reset-dyck-1"
    symbols: ClassVar[tuple[str, ...]] = ("(", ")", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1", DEAD)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        resets = inputs == 3
        height = ((inputs == 1).long() - (inputs == 2).long()).cumsum(1)
        ground = _at_last(resets, height)
        # Each stretch lies far below the one before it, so that one running minimum serves them all.
        fall = 2 * inputs.shape[1] * resets.cumsum(1)
        lowest = (height - fall).cummin(1).values + fall
        return torch.where(lowest < ground, 2, (height > ground).long())

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        places = torch.arange(width, device=lengths.device)
        resets = (rng.child("resets").integers(width, 10) == 0) & (places < lengths[:, None])
        last = torch.where(resets, places + 1, 0).amax(1)  # where the last stretch begins
        odd = (lengths - last) % 2
        resets |= (places == last[:, None]) & (odd == 1)[:, None]
        last = (last + odd)[:, None]
        # A walk's distance from where it began is a walk that turns up at 0.
        coins = torch.where(resets, 0, rng.child("walk").integers(width, 2) * 2 - 1)
        heights = coins.cumsum(1)
        depth = (heights - _at_last(resets, heights)).abs()
        up = depth > torch.nn.functional.pad(depth[:, :-1], (1, 0))
        word = dyck_steps(lengths - last[:, 0], rng.child("word"), width)
        up_last = word.gather(1, (places - last).clamp(min=0)) > 0
        return torch.where(resets, 3, torch.where(torch.where(places < last, up, up_last), 1, 2))

    def log2_inputs(self, length: int) -> float:
        return length - 1.0  # a reset or a bracket at every place, and a reset at the end


def _at_last(marks: Bool[Tensor, "rows time"], values: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
    """At every position the value at the last mark up to there, 0 before the first."""
    places = torch.arange(marks.shape[1], device=marks.device)
    last = torch.where(marks, places, -1).cummax(1).values
    return torch.where(last >= 0, values.gather(1, last.clamp(min=0)), 0)


class BoundedDyck(Task):
    """Dyck-(k, D): well-nested brackets of k types, at most D deep; accept or reject, asked at the last position.

    Half of the strings are words: a random walk on depths 0 to D that closes at the end, with uniform types. The other
    half are not: `corrupted` changes 1 to length/10 positions of a word (half of them to another type, half from open
    to close or back); `count-balanced` exchanges two closing brackets of different types, or the first and the last
    bracket where there are none, so that no count of symbols gives it away.

    >>> BoundedDyck(k=2, depth=2).explain("([])[]")
    '.....1'
    >>> BoundedDyck(k=2, depth=2).explain("([)]")
    '...0'
    >>> BoundedDyck(k=2, depth=2).explain("([()])")
    '.....0'
    """

    kind: ClassVar[str] = "bounded-dyck"
    asked: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    train_lengths: ClassVar[tuple[int, int]] = (20, 100)
    k: Annotated[int, Field(ge=1, le=4)] = 2
    depth: Annotated[int, Field(ge=1, le=8)] = 2
    negatives: Literal["corrupted", "count-balanced"] = "corrupted"

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
        """One state per stack, and a last one for rejection."""
        stacks = [stack for d in range(self.depth + 1) for stack in product(range(self.k), repeat=d)]
        number = {stack: i for i, stack in enumerate(stacks)}
        reject = len(stacks)
        moves = torch.full((reject + 1, 2 * self.k), reject)
        for stack, i in number.items():
            for kind in range(self.k):
                moves[i, 2 * kind] = number.get((*stack, kind), reject)
                if stack and stack[-1] == kind:
                    moves[i, 2 * kind + 1] = number[stack[:-1]]
        says = torch.zeros(reject + 1, dtype=torch.int64)
        says[number[()]] = 1
        return Machine(moves, says)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        words = self._words(lengths, rng.child("words"), width)
        spoil = self._corrupt if self.negatives == "corrupted" else self._exchange
        spoilt = spoil(words, lengths, rng.child("negatives"))
        return torch.where(rng.child("label").integers(1, 2) == 1, words, spoilt)

    def _words(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        to_come = (lengths - torch.arange(width, device=lengths.device)[:, None]).clamp_(0, self.depth)
        chance = to_come * 2 + rng.child("walk").integers(width, 2).T
        table = placed(self._walk, lengths.device).flatten()
        depth = torch.zeros_like(lengths)
        walk = []
        for row in chance:
            depth = table[row * (self.depth + 1) + depth]
            walk.append(depth)
        depths = torch.stack(walk, dim=1)
        up = depths > torch.nn.functional.pad(depths[:, :-1], (1, 0))
        types = rng.child("types").integers(width, self.k)
        # A bracket at some level has the type of the last one that opened there.
        for level in range(1, self.depth + 1):
            here = depths + (~up).long() == level
            types = torch.where(here, _at_last(here & up, types), types)
        return 2 * types + torch.where(up, 1, 2)

    @cached_property
    def _walk(self) -> Int[Tensor, "to_come coin depths"]:
        """The next depth, by the tokens to come (up to `depth`), a coin and the depth now."""
        depth = torch.arange(self.depth + 1)
        to_come, coin = depth[:, None, None], torch.arange(2)[:, None]
        may_open = (depth < self.depth) & (depth < to_come)
        return torch.where((depth == 0) | (may_open & (coin == 1)), depth + 1, depth - 1)

    def _corrupt(self, words: Tensor, lengths: Tensor, rng: Rng) -> Int[Tensor, "rows time"]:
        width = words.shape[1]
        inside = torch.arange(width, device=words.device) < lengths[:, None]
        how_many = rng.child("count").integers(1, (lengths // 10).clamp(min=1)[:, None]) + 1
        order = rng.child("places").words(width).where(inside, torch.iinfo(torch.int64).max)
        places = torch.arange(width, device=words.device).expand_as(words)
        rank = torch.zeros_like(words).scatter(1, order.argsort(dim=1, stable=True), places)
        flipped = (words - 1) // 2 * 2 + (words % 2) + 1
        swapped = flipped
        if self.k > 1:
            other = ((words - 1) // 2 + 1 + rng.child("types").integers(width, self.k - 1)) % self.k
            swapped = 2 * other + 2 - words % 2
        change = torch.where(rng.child("how").integers(width, 2) == 1, swapped, flipped)
        spoilt = torch.where(rank < how_many, change, words)
        # Several changes can cancel; one alone never leaves a word a word.
        still_words = self.solve(spoilt.where(inside, 0)).amax(1, keepdim=True) == 1
        return torch.where((rank < 1) | ((rank < how_many) & ~still_words), change, words)

    def _exchange(self, words: Tensor, lengths: Tensor, rng: Rng) -> Int[Tensor, "rows time"]:
        width = words.shape[1]
        places = torch.arange(width, device=words.device)
        closing = (words % 2 == 0) & (places < lengths[:, None])
        chance = rng.words(width)
        lowest = torch.iinfo(torch.int64).min
        one = torch.where(closing, chance, lowest).argmax(dim=1, keepdim=True)
        another_type = closing & (words != words.gather(1, one))
        two = torch.where(another_type, chance, lowest).argmax(dim=1, keepdim=True)
        lonely = ~another_type.any(1, keepdim=True)
        one, two = one.where(~lonely, 0), torch.where(lonely, lengths[:, None] - 1, two)
        spoilt = words.scatter(1, one, words.gather(1, two))
        return spoilt.scatter(1, two, words.gather(1, one))

    def log2_inputs(self, length: int) -> float:
        """The words, which are fewer than the others: walks that end at depth 0, and a type for every pair."""
        return math.log2(_closed_walks(self.depth, 1 << length.bit_length())[length]) + length // 2 * math.log2(self.k)

    def fits(self, length: int) -> bool:
        return length >= 2 and length % 2 == 0

    def probes(self) -> dict[str, Task]:
        if self.negatives == "count-balanced":
            return {}
        return {"count-balanced": BoundedDyck(k=self.k, depth=self.depth, negatives="count-balanced")}


@cache
def _closed_walks(depth: int, longest: int) -> list[int]:
    """How many walks of each length go from 0 to 0 and stay between 0 and the depth."""
    walks, closed = [1, *[0] * depth], [1]
    for _ in range(longest):
        walks = [below + above for below, above in zip([0, *walks[:-1]], [*walks[1:], 0], strict=True)]
        closed.append(walks[0])
    return closed
