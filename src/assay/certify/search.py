"""Breadth-first search over pairs of a machine's state and the task's state, with exact sets."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from assay.certify.machine import PrefixMachine, StateMachine, wrong
from assay.certify.table import LEFT_OUT, TaskTable
from assay.errors import BadInput
from assay.rng import Rng, mix

CHUNK = 1 << 13  # pairs that are expanded at once on a CPU; 16 times as many on a GPU
MOST_STATES = 32_000  # of a task's automaton, so that a state fits into the smallest code


@dataclass(frozen=True)
class Limits:
    """How long a search may take, and how many pairs it may keep."""

    seconds: float = 60.0
    states: int = 2_000_000


class SearchStatus(NamedTuple):
    """How far a search is: all words up to `length` are right, so many pairs are known, so many wait."""

    length: int
    pairs: int
    waiting: int
    seconds: float
    method: str = ""


OnStatus = Callable[[SearchStatus], None]


@dataclass
class Search:
    """The outcome of a search. All words up to `length` are right; `closed`: so are all others."""

    length: int
    pairs: int
    seconds: float
    closed: bool = False
    word: tuple[int, ...] | None = None  # a shortest wrong word
    stopped: str = ""  # which limit ended it
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, 1))  # the pairs: codes, then the task's state

    def digest(self) -> str:
        """The SHA-256 of the sorted pairs, each as the codes and the task's state in 32-bit integers."""
        smallest = torch.iinfo(self.rows.dtype).min  # NaN has the least code of every size
        rows = self.rows.cpu().int().masked_fill_(self.rows.cpu() == smallest, torch.iinfo(torch.int32).min).numpy()
        as_bytes = rows.view(f"V{rows.shape[1] * rows.itemsize}")[:, 0]
        return hashlib.sha256(as_bytes[as_bytes.argsort()].tobytes()).hexdigest()


class PairSet:
    """A set of rows of integers, on any device. Rows are found by a 64-bit hash and then compared."""

    def __init__(self, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self._rows = torch.empty(1024, width, dtype=dtype, device=device)
        self._runs: list[Any] = []  # sorted hashes with the numbers of their rows, longest run first
        self._seed = 0
        self.count = 0

    @property
    def rows(self) -> Int[Tensor, "count width"]:
        return self._rows[: self.count]

    def add(self, rows: Int[Tensor, "new width"]) -> Int[Tensor, "added"]:
        """Add rows; returns the places of those that were not in the set, of equal ones the first."""
        while (places := self._new(rows)) is None:  # two different rows have one hash: choose another hash
            self._seed += 1
            self._runs = [self._hashes(self.rows).sort()] if self.count else []
        return places

    def _hashes(self, rows: Int[Tensor, "n width"]) -> Int[Tensor, "n"]:
        factors = Rng.seeded(self._seed, "pairs").words(rows.shape[1]).to(rows.device) | 1
        return mix((rows.long() * factors).sum(1))

    def _new(self, rows: Int[Tensor, "new width"]) -> Int[Tensor, "added"] | None:
        hashes, order = self._hashes(rows).sort(stable=True)
        repeated = hashes[1:] == hashes[:-1]
        if not torch.equal(rows[order[1:][repeated]], rows[order[:-1][repeated]]):
            return None
        first = torch.cat([repeated.new_ones(1), ~repeated])
        hashes, places = hashes[first], order[first]
        for run, numbers in self._runs:
            nearest = torch.searchsorted(run, hashes).clamp_(max=len(run) - 1)
            is_known = run[nearest] == hashes
            if not torch.equal(self._rows[numbers[nearest[is_known]]], rows[places[is_known]]):
                return None
            hashes, places = hashes[~is_known], places[~is_known]
        if len(places):
            self._append(rows, hashes, places)
        return places.sort().values

    def _append(self, rows: Tensor, hashes: Tensor, places: Tensor) -> None:
        in_order, rank = places.sort()
        count = self.count + len(places)
        if count > len(self._rows):
            storage = torch.empty(2 * count, self._rows.shape[1], dtype=self._rows.dtype, device=self._rows.device)
            storage[: self.count] = self.rows
            self._rows = storage
        self._rows[self.count : count] = rows[in_order]
        numbers = torch.empty_like(rank)
        numbers[rank] = torch.arange(self.count, count, device=rank.device)
        self.count = count
        self._runs.append((hashes, numbers))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            (a, i), (b, j) = self._runs[-2:]
            merged, order = torch.cat([a, b]).sort()
            self._runs[-2:] = [(merged, torch.cat([i, j])[order])]


class _Parents:
    """For every pair its predecessor and the token between them: words by going backwards."""

    def __init__(self) -> None:
        self.parents, self.tokens, self.starts = [torch.tensor([-1])], [torch.tensor([0])], [0]

    def add(self, parents: Tensor, tokens: Tensor) -> None:
        if not len(parents):
            return
        self.starts.append(self.starts[-1] + len(self.parents[-1]))
        self.parents.append(parents.cpu())
        self.tokens.append(tokens.to("cpu", torch.int16))

    def word(self, pair: int) -> tuple[int, ...]:
        tokens: list[int] = []
        for start, parents, symbols in zip(self.starts[::-1], self.parents[::-1], self.tokens[::-1], strict=True):
            if pair >= start and pair > 0:
                tokens.append(int(symbols[pair - start]))
                pair = int(parents[pair - start])
        return tuple(tokens[::-1])


def search(
    machine: StateMachine | PrefixMachine,
    table: TaskTable,
    limits: Limits | None = None,
    longest: int | None = None,
    on_status: OnStatus = lambda _: None,
) -> Search:
    """Visit all words, shortest first, until an answer is wrong, no pair is new, or a limit is reached.

    Where the machine carries its state, words that lead to the same pair are visited once.
    """
    limits, begin = limits or Limits(), time.perf_counter()
    table = table.to(machine.device)
    states, symbols = table.moves.shape
    if states > MOST_STATES:
        raise BadInput(f"the task's automaton has {states:,} states; at most {MOST_STATES:,} can be certified")
    pairs = PairSet(machine.width + 1, machine.code_dtype, machine.device)
    codes, task_states = machine.start(), torch.zeros(1, dtype=torch.int64, device=machine.device)
    numbers, count, length = task_states.clone(), 1, 0
    if machine.merges:
        pairs.add(_pairs(codes, task_states))
    parents, chunk = _Parents(), CHUNK if machine.device.type == "cpu" else 16 * CHUNK

    def outcome(**fields: object) -> Search:
        rows = pairs.rows if machine.merges else torch.zeros(0, 1)
        return Search(length, count, time.perf_counter() - begin, rows=rows, **fields)  # type: ignore[arg-type]

    while len(codes) and length != longest:
        level: list[tuple[Tensor, Tensor]] = []
        first_number = count
        for first in range(0, len(codes), chunk):
            on_status(SearchStatus(length, count, len(codes) - first, time.perf_counter() - begin))
            if time.perf_counter() - begin > limits.seconds:
                return outcome(stopped=f"the limit of {limits.seconds:g} seconds")
            if count > limits.states:
                return outcome(stopped=f"the limit of {limits.states:,} pairs")
            next_states = table.moves[task_states[first : first + chunk]].flatten()
            inside = (next_states != LEFT_OUT).nonzero()[:, 0]
            if not len(inside):
                continue
            origins, tokens, next_states = inside // symbols + first, inside % symbols + 1, next_states[inside]
            logits, next_codes = machine.step(codes[origins], tokens)
            errors = wrong(logits, table.answers[next_states]).nonzero()
            if len(errors):
                row = int(errors[0])
                return outcome(word=(*parents.word(int(numbers[origins[row]])), int(tokens[row])))
            if machine.merges:
                new = pairs.add(_pairs(next_codes, next_states))
                origins, tokens, next_codes, next_states = origins[new], tokens[new], next_codes[new], next_states[new]
            parents.add(numbers[origins], tokens)
            level.append((next_codes, next_states))
            count += len(next_states)
        if not level:
            return outcome(closed=True)
        codes, task_states = (torch.cat(parts) for parts in zip(*level, strict=True))
        numbers = torch.arange(first_number, count, device=machine.device)
        length += 1
    return outcome(closed=not len(codes))


def _pairs(codes: Int[Tensor, "rows numbers"], task_states: Int[Tensor, "rows"]) -> Int[Tensor, "rows width"]:
    return torch.cat([codes, task_states[:, None].to(codes.dtype)], dim=1)
