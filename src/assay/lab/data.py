"""Which inputs a run sees: fresh ones to train on, and held-out ones that it never does.

Every input belongs to one split for good, by a hash of its content: one in eight tests, one in eight validates, the
others train. Lengths with too few inputs to be split (a unary language has one) are shared by all, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.rng import Rng, mix
from assay.spec import Bin, RunSpec
from assay.tasks.task import IGNORE, Batch, Task

PARTS = 8
TEST, VALIDATE = 0, 1  # the other parts train
FEWEST_BITS = 6.0  # below 2^6 inputs a length is shared
ATTEMPTS = 3  # candidates for each row of a training batch
DRAWN_TOKENS = 1 << 16  # about as many as are drawn at once
ROUNDS = 64  # of redrawing for a held-out set
LENGTHS = 24  # lengths at which a bin is measured


def content_hash(inputs: Tensor) -> Int[Tensor, "rows"]:
    """A 64-bit hash of each row's content, padding left out of account."""
    words = inputs if inputs.dtype == torch.int64 else inputs.contiguous().view(torch.int32).long()
    words = words.flatten(1)
    weights = mix(torch.arange(1, words.shape[1] + 1, device=words.device)) | 1
    return mix((words * weights).sum(1))


def part_of(inputs: Tensor) -> Int[Tensor, "rows"]:
    """The part, 0 to 7, that each row belongs to."""
    return (content_hash(inputs) >> 61) & (PARTS - 1)


@dataclass(frozen=True)
class Lengths:
    """The lengths of a window at which a task has inputs, and which of them are shared."""

    values: Int[Tensor, "n"]
    shared: Bool[Tensor, "n"]

    @classmethod
    def of(cls, task: Task, low: int, high: int, device: torch.device) -> Lengths:
        fitting = task.lengths(low, high)
        shared = [task.log2_inputs(length) < FEWEST_BITS for length in fitting]
        return cls(torch.tensor(fitting, device=device), torch.tensor(shared, device=device))


class TrainingData:
    """Batch number n of a run, the same whenever it is asked for.

    Steps are drawn some at a time: what a batch holds depends on its number alone, and one large draw costs less than
    many small ones.
    """

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        self.task, self.batch, self.width = spec.task, spec.training.batch, spec.training.lengths[1]
        self.lengths = Lengths.of(spec.task, *spec.training.lengths, device)
        self.rng = Rng.seeded(spec.seed, "train", device=device)
        self.at_once = max(1, min(16, DRAWN_TOKENS // (self.batch * ATTEMPTS * self.width)))
        self.drawn: dict[int, Batch] = {}

    def __getitem__(self, step: int) -> Batch:
        if step not in self.drawn:
            first = step - step % self.at_once
            self.drawn = dict(enumerate(self._draw(first), start=first))
        return self.drawn[step]

    def _draw(self, first: int) -> list[Batch]:
        steps, row = torch.arange(first, first + self.at_once), torch.arange(self.batch * ATTEMPTS)
        places = (part.flatten().to(self.rng.keys.device) for part in torch.meshgrid(steps, row, indexing="ij"))
        rng = self.rng.child(*places)
        which = rng.child("length").integers(1, len(self.lengths.values))[:, 0]
        inputs = self.task.inputs(self.lengths.values[which], rng, self.width)
        allowed = (self.lengths.shared[which] | (part_of(inputs) > VALIDATE)).view(-1, ATTEMPTS)
        # The first allowed candidate of each row; a row without one (1 in 64) asks nothing.
        preference = allowed * torch.arange(ATTEMPTS, 0, -1, device=inputs.device)
        inputs = inputs[preference.argmax(1) + ATTEMPTS * torch.arange(len(allowed), device=inputs.device)]
        targets = self.task.solve(inputs).where(allowed.any(1, keepdim=True), IGNORE)
        return [Batch(*pair) for pair in zip(inputs.split(self.batch), targets.split(self.batch), strict=True)]


@dataclass(frozen=True)
class HeldOut:
    """A fixed set of sequences and how many of them may also occur in training."""

    batch: Batch
    lengths: Int[Tensor, "rows"]
    shared: int


@lru_cache(maxsize=64)
def held_out(task: Task, window: Bin, rows: int, split: Literal["test", "validate"], device: torch.device) -> HeldOut:
    """Rows for one bin, the same for every run: as many as possible different, and none of another split."""
    fitting = Lengths.of(task, window.low, window.high, device)
    one_each = bool(fitting.shared.all())
    picked = torch.linspace(0, len(fitting.values) - 1, min(len(fitting.values), rows if one_each else LENGTHS))
    which = picked.round().long().to(device)[torch.arange(rows, device=device) % len(picked)].sort().values
    lengths, free = fitting.values[which], fitting.shared[which]
    part = TEST if split == "test" else VALIDATE
    rng = Rng.seeded(0, split, window.name, device=device).rows(rows)
    width = int(lengths.max())
    inputs = task.inputs(lengths, rng.child(0), width)
    hashes = content_hash(inputs)
    settled = free | _fresh(hashes, (part_of(inputs) == part) & ~free, hashes[:0])
    for attempt in range(1, ROUNDS):
        open_rows = (~settled).nonzero()[:, 0]
        if not len(open_rows):
            break
        drawn = task.inputs(lengths[open_rows], Rng(rng.keys[open_rows]).child(attempt), width)
        found, ours = content_hash(drawn), part_of(drawn) == part
        settled[open_rows] = _fresh(found, ours, hashes[settled])
        # Where nothing new is to be had, a repeat is better than another split's.
        inputs[open_rows[ours]], hashes[open_rows[ours]] = drawn[ours], found[ours]
    shared = free | (part_of(inputs) != part)
    return HeldOut(Batch(inputs, task.solve(inputs)), lengths, int(shared.sum()))


def _fresh(hashes: Tensor, allowed: Tensor, known: Tensor) -> Bool[Tensor, "rows"]:
    """Allowed rows that are not known and are the first of their kind."""
    allowed = allowed & ~torch.isin(hashes, known)
    ascending, order = torch.where(allowed, hashes, 0).sort(stable=True)
    repeats = torch.nn.functional.pad(ascending[1:] == ascending[:-1], (1, 0))
    return allowed & ~torch.zeros_like(allowed).scatter(0, order, repeats)
