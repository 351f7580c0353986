"""Associative recall in which keys and values are runs of one to three tokens."""

from __future__ import annotations

import math
from itertools import cycle
from typing import Annotated, ClassVar, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe, rows_of
from assay.tasks.recall import bound_at
from assay.tasks.task import IGNORE, Task, columns, symbols_named


class Pairs(NamedTuple):
    """Random keys and values, each with its number of tokens."""

    keys: Int[Tensor, "rows pairs longest_key"]
    key_sizes: Int[Tensor, "rows pairs"]
    values: Int[Tensor, "rows pairs longest_value"]
    value_sizes: Int[Tensor, "rows pairs"]


class FuzzyRecall(Task):
    """Fuzzy recall (Poli et al. 2024): keys and values are runs of one to three tokens; at the end one key comes again.

    Dots fill up the beginning. Every run of key tokens binds the run of values after it; of several bindings of a key
    the first counts. At a key token the question is the first token of the value that is bound to the run so far, if
    there is one, then the value's next token as long as its beginning was read. A key that is drawn twice has the same
    value.

    >>> FuzzyRecall(vocabulary=8).explain(". k0 k1 v2 v0 k0 v3 k0 k1 v2")
    '. . . . . . . v3 v2 v0'
    """

    kind: ClassVar[str] = "fuzzy-recall"
    vocabulary: Annotated[
        int, Field(ge=4, le=2**20, multiple_of=2, description="number of symbols; half are keys, half values")
    ] = 32
    key_tokens: Annotated[int, Field(ge=1, le=3, description="the longest key")] = 3
    value_tokens: Annotated[int, Field(ge=1, le=8, description="the longest value")] = 3

    @property
    def keys(self) -> int:
        return self.vocabulary // 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*symbols_named("k", self.keys), *symbols_named("v", self.keys), ".")

    @property
    def answers(self) -> tuple[str, ...]:
        return symbols_named("v", self.keys)

    @property
    def shortest(self) -> int:
        """The length at which any key and value can be bound and asked for."""
        return 2 * (self.key_tokens + self.value_tokens) - 1

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return self.shortest, max(64, self.shortest)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        time, n = columns(inputs), self.keys
        is_key, is_value = (inputs > 0) & (inputs <= n), (inputs > n) & (inputs <= 2 * n)
        kind = is_key.long() + 2 * is_value.long()
        begins = torch.nn.functional.pad(kind[:, 1:] != kind[:, :-1], (1, 0), value=True)
        start = torch.where(begins, time, 0).cummax(1).values  # of the run that a position belongs to
        place = time - start
        # The run so far as one number; sums may wrap around, which their differences undo.
        digits = inputs * (n + 1) ** place.clamp(max=self.key_tokens - 1)
        total = torch.nn.functional.pad(digits.cumsum(1), (1, 0))
        key = (total[:, 1:] - total.gather(1, start)).where(is_key & (place < self.key_tokens), 0)
        follows = torch.nn.functional.pad(is_value[:, 1:], (0, 1))
        bound = bound_at(key, (key != 0) & follows)
        # The binding of the key of this run, or of the run before a run of values.
        key_end = torch.where(is_key, time, (start - 1).clamp(min=0))
        found = bound.gather(1, key_end).where((is_key | is_value) & is_key.gather(1, key_end), -1)
        read = time - key_end  # tokens of the value so far
        value_start = found + 1
        last = (value_start + read - 1).clamp(0, inputs.shape[1] - 1)
        differs = is_value & (inputs.gather(1, last) != inputs)
        mistakes = torch.nn.functional.pad(differs.long().cumsum(1), (1, 0))
        same = is_key | (mistakes[:, 1:] == mistakes.gather(1, start))
        upcoming = (value_start + read).clamp(0, inputs.shape[1] - 1)
        in_value = is_value.gather(1, upcoming) & (start.gather(1, upcoming) == value_start)
        question = (found >= 0) & same & in_value
        return torch.where(question, inputs.gather(1, upcoming) - n - 1, IGNORE)

    def pairs(self, count: int, rng: Rng) -> Pairs:
        """Random keys, whose values depend on the row and on the key alone."""
        n, longest = self.keys, self.key_tokens
        key_sizes = rng.child("key sizes").integers(count, longest) + 1
        keys = rng.child("keys").integers(count * longest, n).unflatten(1, (count, longest)) + 1
        place = torch.arange(longest, device=keys.device)
        number = (keys * (n + 1) ** place).where(place < key_sizes[..., None], 0).sum(2)
        generator = Rng(rng.child("values").keys[:, None]).child(number)
        value_sizes = generator.child("size").integers(1, self.value_tokens)[..., 0] + 1
        values = generator.child("tokens").integers(self.value_tokens, n) + n + 1
        return Pairs(keys, key_sizes, values, value_sizes)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        """The first of the drawn pairs is asked for; its place among those that there is space for is uniform."""
        count = width // 2 + 1
        pairs = self.pairs(count, rng)
        sizes = pairs.key_sizes + pairs.value_sizes
        space = (lengths - sizes[:, 0] + 1)[:, None]
        used = (sizes.cumsum(1) <= space).sum(1, keepdim=True)
        asked = rng.child("place").integers(1, used)
        place = torch.arange(count + 1, device=lengths.device)
        pair = torch.where(place < asked, place + 1, torch.where(place == asked, 0, place))
        pair = pair.where(place != used, 0).clamp(max=count - 1)
        keys, values = (x.gather(1, pair[..., None].expand(-1, -1, x.shape[2])) for x in (pairs.keys, pairs.values))
        key_sizes, value_sizes = (x.gather(1, pair)[..., None] for x in (pairs.key_sizes, pairs.value_sizes))
        value_sizes = value_sizes - (place == used).long()[..., None]  # the last token of the query's value is not read
        token = torch.arange(keys.shape[2], device=keys.device), torch.arange(values.shape[2], device=keys.device)
        kept = torch.cat([token[0] < key_sizes, token[1] < value_sizes], dim=2) & (place <= used)[..., None]
        tokens, kept = torch.cat([keys, values], dim=2).flatten(1), kept.flatten(1)
        filler = lengths[:, None] - kept.sum(1, keepdim=True)
        position = torch.where(kept, filler + kept.cumsum(1) - 1, width)
        rows = tokens.new_full((len(tokens), width + 1), len(self.symbols))
        return rows.scatter(1, position, tokens)[:, :width]

    def fits(self, length: int) -> bool:
        return length >= self.shortest

    def log2_inputs(self, length: int) -> float:
        """Of the choices of the asked key and its value alone."""
        return (self.key_tokens + self.value_tokens) * math.log2(self.keys)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The asked pair right before the query, in the middle or far away, among near-equal ones.

        Their keys lack the last token of the asked one, or differ from it in the first or the last; their values differ
        in the last.
        """
        first, dot = self.keys + 1, len(self.symbols)
        key, value = [1] * self.key_tokens, [first] * self.value_tokens
        alike = [[*key[:-1], 2], [2, *key[1:]], *([key[:-1]] if self.key_tokens > 1 else [])]
        near, far = list[list[int]](), list[list[int]]()
        for length in sorted({max(trained[0], self.shortest), longest}):
            space, others = length - self.shortest, list[list[int]]()
            for near_key in cycle(alike):
                pair = [*near_key, *value[:-1], first + 1]
                if len(pair) > space:
                    break
                others.append(pair)
                space -= len(pair)
            for place in sorted({0, len(others) // 2, len(others)}):
                pairs = [*others[:place], [*key, *value], *others[place:], [*key, *value[:-1]]]
                row = [*[dot] * space, *(token for pair in pairs for token in pair)]
                (near if place else far).append(row)
        return [Probe("similar keys", rows_of(near)), Probe("far away", rows_of(far))]
