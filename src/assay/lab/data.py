"""Which inputs a run sees: fresh ones to train on, and held-out ones that it never does.

Every input belongs to one split for good, by a hash of its content: one in eight tests, one in eight validates, the
others train. Lengths with too few inputs to be split (a unary language has one) are shared within the lengths of
training, and counted; beyond them every other length validates and the others test.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from assay.rng import Rng, mix
from assay.spec import Training
from assay.tasks.task import IGNORE, PAD, Batch, Bin, Task

PARTS = 8
TEST, VALIDATE = 0, 1  # the other parts train
FEWEST_BITS = 6.0  # below 2^6 inputs (of either label) a length is not split
ATTEMPTS = 3  # candidates for each row of a training batch
ROUNDS = 64  # of redrawing for a held-out set
LENGTHS = 24  # lengths at which a bin is measured, where inputs are not few


def content_hash(inputs: Tensor) -> Int[Tensor, "rows"]:
    """A 64-bit hash of each row's content, padding left out of account."""
    words = inputs if inputs.dtype == torch.int64 else inputs.contiguous().view(torch.int32).long()
    words = words.flatten(1)
    weights = mix(torch.arange(1, words.shape[1] + 1, device=words.device)) | 1
    return mix((words * weights).sum(1))


def part_of(inputs: Tensor) -> Int[Tensor, "rows"]:
    """The part, 0 to 7, that each row belongs to."""
    return (content_hash(inputs) >> 61) & (PARTS - 1)


def blank(
    task: Task, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Shaped[Tensor, "*shape"]:
    """Inputs of nothing but padding."""
    if task.features:
        return torch.zeros(*shape, task.features, device=device, dtype=dtype)
    return torch.full(shape, PAD, device=device)


def few(task: Task, length: int) -> bool:
    """Whether a length has too few inputs to be split."""
    return task.log2_inputs(length) < FEWEST_BITS


class TrainingData:
    """The training batches of a task: batch number n of a seed is the same whenever and beside whatever it is drawn."""

    def __init__(self, task: Task, training: Training, device: torch.device) -> None:
        self.task, self.batch, self.width = task, training.batch, training.lengths[1]
        fitting = task.lengths(*training.lengths)
        self.lengths = torch.tensor(fitting, device=device)
        self.few = torch.tensor([few(task, length) for length in fitting], device=device)

    def draw(self, seeds: Int[Tensor, "members"], first: Int[Tensor, "members"], count: int) -> Batch:
        """For each seed `count` batches from its number `first` on, as [members, count, rows, time]."""
        device, shape = seeds.device, (len(seeds), count, self.batch)
        steps = (first[:, None] + torch.arange(count, device=device))[..., None].expand(shape).flatten()
        rows = torch.arange(self.batch, device=device).expand(shape).flatten()
        rng = Rng(seeds[:, None, None].expand(shape).flatten()).child("train", steps, rows)
        which = rng.child("length").integers(1, len(self.lengths))[:, 0].repeat_interleave(ATTEMPTS)
        attempt = torch.arange(ATTEMPTS, device=device).repeat(len(which) // ATTEMPTS)
        candidates = Rng(rng.keys.repeat_interleave(ATTEMPTS)).child("attempt", attempt)
        inputs = self.task.inputs(self.lengths[which], candidates, self.width)
        allowed = (self.few[which] | (part_of(inputs) > VALIDATE)).view(-1, ATTEMPTS)
        # The first allowed candidate of each row; a row without one (1 in 64) asks nothing.
        preference = allowed * torch.arange(ATTEMPTS, 0, -1, device=device)
        inputs = inputs[preference.argmax(1) + ATTEMPTS * torch.arange(len(allowed), device=device)]
        targets = self.task.solve(inputs).where(allowed.any(1, keepdim=True), IGNORE)
        return Batch(inputs.unflatten(0, shape), targets.unflatten(0, shape))


@dataclass(frozen=True)
class HeldOut:
    """A fixed set of sequences and how many of them other splits may have seen."""

    batch: Batch
    lengths: Int[Tensor, "rows"]
    shared: int


Split = Literal["test", "validate"]


@lru_cache(maxsize=64)
def held_out(
    task: Task, window: Bin, trained: tuple[int, int], rows: int, split: Split, device: torch.device
) -> HeldOut:
    """Rows for one bin, the same for every run: as many as possible different, and none of another split."""
    lengths = torch.tensor(_lengths(task, window, trained, rows, split), device=device)
    free = torch.tensor([few(task, length) for length in lengths.tolist()], device=device)
    part = TEST if split == "test" else VALIDATE
    rng = Rng.seeded(0, split, window.name, device=device).rows(len(lengths))
    width = int(lengths.max())
    inputs = task.inputs(lengths, rng.child(0), width)
    hashes = content_hash(inputs)
    settled = free | _fresh(hashes, (part_of(inputs) == part) & ~free, hashes[:0])
    for attempt in range(1, ROUNDS):
        open_rows = (~settled).nonzero()[:, 0]
        if not len(open_rows):
            break
        drawn = task.inputs(lengths[open_rows], Rng(rng.keys[open_rows]).child(attempt), width)
        found, right = content_hash(drawn), part_of(drawn) == part
        settled[open_rows] = _fresh(found, right, hashes[settled])
        # Where nothing new is to be had, a repeat is better than another split's.
        inputs[open_rows[right]], hashes[open_rows[right]] = drawn[right], found[right]
    ours = _every_other(task, window.high, split)
    own = [length > trained[1] and length in ours for length in lengths.tolist()]
    shared = torch.where(free, ~torch.tensor(own, device=device), part_of(inputs) != part)
    return HeldOut(Batch(inputs, task.solve(inputs)), lengths, int(shared.sum()))


def _lengths(task: Task, window: Bin, trained: tuple[int, int], rows: int, split: Split) -> list[int]:
    """The length of every row: evenly over the window, and where inputs are few no more rows than inputs.

    Beyond the lengths of training, where a length has too few inputs to be split, the lengths themselves are.
    """
    fitting = task.lengths(window.low, window.high)
    ours = _every_other(task, window.high, split)
    own = [n for n in fitting if n <= trained[1] or not few(task, n) or n in ours] or fitting
    count = min(len(own), rows if all(few(task, n) for n in own) else LENGTHS)
    picked = [own[round(i * (len(own) - 1) / max(1, count - 1))] for i in range(count)]
    each = [rows // count + (i < rows % count) for i in range(count)]
    most = [int(2 ** task.log2_inputs(n)) if few(task, n) else rows for n in picked]
    return [n for n, wanted, limit in zip(picked, each, most, strict=True) for _ in range(min(wanted, limit))]


@lru_cache(maxsize=64)
def _every_other(task: Task, high: int, split: Split) -> frozenset[int]:
    """Of the lengths at which a task has inputs, every other one is for validation, the others for testing."""
    fitting = [length for length in range(1, high + 1) if task.fits(length)]
    return frozenset(fitting[0 if split == "validate" else 1 :: 2])


def _fresh(hashes: Tensor, allowed: Tensor, known: Tensor) -> Bool[Tensor, "rows"]:
    """Allowed rows that are not known and are the first of their kind."""
    allowed = allowed & ~torch.isin(hashes, known)
    ascending, order = torch.where(allowed, hashes, 0).sort(stable=True)
    repeats = torch.nn.functional.pad(ascending[1:] == ascending[:-1], (1, 0))
    return allowed & ~torch.zeros_like(allowed).scatter(0, order, repeats)
