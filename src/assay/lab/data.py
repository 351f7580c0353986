"""The inputs of a run: batches for training, and held-out sets for validation and testing.

Every input belongs to one split, by a hash of its content: one in eight tests, one in eight validates, six in eight
train. Lengths with too few inputs to be split (a unary language has one) are shared by all splits within the lengths of
training, and scores count these rows; beyond them, every other length validates and the others test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from assay.lab.locks import one_at_a_time
from assay.lab.splits import ROUNDS, TEST, VALIDATE, content_hash, has_few_inputs, new_rows, part_of
from assay.lab.training_sets import published_set, seen_in_training, training_set
from assay.rng import Rng
from assay.spec import Training
from assay.tasks.bins import Bin
from assay.tasks.task import IGNORE, PAD, Batch, Task, unpadded

ATTEMPTS = 3  # candidates for each row of a training batch
REDRAWN_NUMBERS = 1 << 18  # approximate count per draw
LENGTHS = 24  # at most so many lengths of a bin are tested, unless all of them have few inputs
CHECKED_ROWS = 64  # at least so many held-out rows of a slot are read at once on a GPU
DRAWN_TOKENS = {"cpu": 1 << 16, "cuda": 1 << 23}  # approximate number of candidate tokens per draw


def blank(task: Task, *shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Shaped[Tensor, "..."]:
    """Inputs of padding alone."""
    if task.features:
        return torch.zeros(*shape, task.features, device=device, dtype=dtype)
    return torch.full(shape, PAD, device=device)


class TrainingData:
    """The training batches of a task: batch n of a seed is the same whenever, and with whatever else, it is drawn."""

    def __init__(self, task: Task, training: Training, device: torch.device) -> None:
        self.task, self.batch, self.width = task, training.batch, task.width(training.lengths[1])
        self.fixed = training_set(task, training.lengths, training.fixed, device) if training.fixed else None
        lengths = task.lengths(*training.lengths)
        self.lengths = torch.tensor(lengths, device=device)
        self.few = torch.tensor([has_few_inputs(task, length) for length in lengths], device=device)

    def draw(self, seeds: Int[Tensor, "members"], first: Int[Tensor, "members"], count: int) -> Batch:
        """For each seed `count` batches starting at its number `first`, as [members, count, rows, time]."""
        device, shape = seeds.device, (len(seeds), count, self.batch)
        steps = (first[:, None] + torch.arange(count, device=device))[..., None].expand(shape).flatten()
        rows = torch.arange(self.batch, device=device).expand(shape).flatten()
        rng = Rng(seeds[:, None, None].expand(shape).flatten()).child("train", steps, rows)
        if self.fixed is not None:
            index = rng.child("row").integers(1, len(self.fixed.inputs))[:, 0]
            return Batch(*(x[index].unflatten(0, shape) for x in (self.fixed.inputs, self.fixed.targets)))
        which = rng.child("length").integers(1, len(self.lengths))[:, 0].repeat_interleave(ATTEMPTS)
        attempt = torch.arange(ATTEMPTS, device=device).repeat(len(which) // ATTEMPTS)
        candidates = Rng(rng.keys.repeat_interleave(ATTEMPTS)).child("attempt", attempt)
        inputs = self.task.inputs(self.lengths[which], candidates, self.width)
        allowed = (self.few[which] | (part_of(inputs) > VALIDATE)).view(-1, ATTEMPTS)
        # The first allowed candidate of each row; a row without one (1 in 64) has no targets.
        preference = allowed * torch.arange(ATTEMPTS, 0, -1, device=device)
        inputs = inputs[preference.argmax(1) + ATTEMPTS * torch.arange(len(allowed), device=device)]
        targets = self.task.solve(inputs).where(allowed.any(1, keepdim=True), IGNORE)
        return Batch(inputs.unflatten(0, shape), targets.unflatten(0, shape))


def steps_ahead(task: Task, training: Training, slots: int, device: torch.device) -> int:
    """For how many steps data is drawn at once."""
    tokens = ATTEMPTS * slots * training.batch * task.width(training.lengths[1])
    return max(1, min(training.validate_every, DRAWN_TOKENS[device.type] // tokens))


def rows_checked_at_once(training: Training, device: torch.device) -> int:
    """How many held-out rows of each slot are read in one pass: as many as in a training step, on a GPU some more.

    There a pass over few rows takes as long as one over many, and needs less memory than a step, which keeps all
    activations.
    """
    return max(training.batch, CHECKED_ROWS) if device.type == "cuda" else training.batch


class BatchBuffer:
    """The batches of the next `ahead` steps of all slots, in memory that never moves (a CUDA graph needs that)."""

    def __init__(
        self, tasks: Sequence[Task], training: Training, slots: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.sources = [TrainingData(task, training, device) for task in tasks]
        self.ahead = steps_ahead(tasks[0], training, slots, device)
        shape = (self.ahead, slots, training.batch, self.sources[0].width)
        self.inputs = blank(tasks[0], *shape, device=device, dtype=dtype)
        self.targets = torch.full(shape, IGNORE, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)  # of the step that is next

    def draw(self, source: int, seed: Int[Tensor, "slots"], step: Int[Tensor, "slots"], task: Tensor) -> None:
        """Fill the rows of all slots whose task has this number; the batch is drawn for all slots."""
        batch = self.sources[source].draw(seed, step + 1, self.ahead)
        self.position.zero_()
        other_task = task != source
        for buffer, new in ((self.inputs, batch.inputs), (self.targets, batch.targets)):
            new = new.transpose(0, 1).to(buffer.dtype)
            if len(self.sources) > 1:
                new = torch.where(other_task.view(-1, *[1] * (buffer.ndim - 2)), buffer, new)
            buffer.copy_(new)

    def take(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets [slots, rows, time] of the next step."""
        inputs, targets = (x.index_select(0, self.position)[0] for x in (self.inputs, self.targets))
        self.position.add_(1).clamp_(max=self.ahead - 1)
        return inputs, targets


@dataclass(frozen=True)
class HeldOut:
    """A fixed set of sequences, and how many of them another split may contain."""

    batch: Batch
    lengths: Int[Tensor, "rows"]
    shared: int


Split = Literal["test", "validate"]


@one_at_a_time
@lru_cache(maxsize=64)
def held_out(
    task: Task,
    bin_: Bin,
    trained: tuple[int, int],
    rows: int,
    split: Split,
    device: torch.device,
    every_length: bool = False,
) -> HeldOut:
    """The rows of one bin, the same for every run: all different where possible, and none of another split.

    With `every_length`, at least one row of every length of the bin, and none of them is reserved for validation.
    Published strings have neither splits nor given lengths.
    """
    task = task.in_bin(bin_)
    if task.is_published:
        drawn = _draw_published(task, bin_, trained, rows, split)
    else:
        drawn = _draw_held_out(task, bin_, trained, rows, split, every_length)
    batch = Batch(*(x.to(device) for x in (drawn.batch.inputs, drawn.batch.targets)))
    return HeldOut(batch, drawn.lengths.to(device), drawn.shared)


def _draw_published(task: Task, bin_: Bin, trained: tuple[int, int], rows: int, split: Split) -> HeldOut:
    inputs = published_set(task, bin_.low, bin_.high, rows, split, bin_.name)
    lengths = unpadded(inputs).sum(1)
    shared = seen_in_training(task, trained, inputs, lengths)
    return HeldOut(Batch(inputs, task.solve(inputs)), lengths, int(shared.sum()))


@lru_cache(maxsize=64)
def _draw_held_out(
    task: Task, bin_: Bin, trained: tuple[int, int], rows: int, split: Split, every_length: bool = False
) -> HeldOut:
    """Drawn on the CPU: samplers step over time, and a GPU would wait for the host at every step."""
    lengths = torch.tensor(_lengths(task, bin_, trained, rows, split, every_length))
    few = torch.tensor([has_few_inputs(task, length) for length in lengths.tolist()])
    part = TEST if split == "test" else VALIDATE
    rng = Rng.seeded(0, split, bin_.name).rows(len(lengths))
    width = int(lengths.max())
    inputs = task.inputs(lengths, rng.child(0), width)
    hashes = content_hash(inputs)
    settled = few | new_rows(hashes, (part_of(inputs) == part) & ~few, hashes[:0])
    attempt = 1
    while attempt < ROUNDS and len(rows_left := (~settled).nonzero()[:, 0]):
        # Several attempts are drawn at once, since a sampler takes as long for few rows as for many.
        count = REDRAWN_NUMBERS // (len(rows_left) * width * max(1, task.features))
        attempts = torch.arange(attempt, min(attempt + max(1, count), ROUNDS))
        attempt += len(attempts)
        generators = Rng(rng.keys[rows_left].repeat(len(attempts)))
        generators = generators.child(attempts.repeat_interleave(len(rows_left)))
        candidates = task.inputs(lengths[rows_left].repeat(len(attempts)), generators, width)
        for drawn in candidates.split(len(rows_left)):
            unsettled = ~settled[rows_left]
            places, drawn = rows_left[unsettled], drawn[unsettled]
            drawn_hashes, in_part = content_hash(drawn), part_of(drawn) == part
            settled[places] = new_rows(drawn_hashes, in_part, hashes[settled])
            # A repeated row of this split is better than a row of another split.
            inputs[places[in_part]], hashes[places[in_part]] = drawn[in_part], drawn_hashes[in_part]
    split_lengths = _split_lengths(task, bin_.high, split, every_length)
    exclusive = [length > trained[1] and length in split_lengths for length in lengths.tolist()]
    shared = torch.where(few, ~torch.tensor(exclusive), part_of(inputs) != part)
    return HeldOut(Batch(inputs, task.solve(inputs)), lengths, int(shared.sum()))


def held_out_shape(
    task: Task, bin_: Bin, trained: tuple[int, int], rows: int, split: Split, every_length: bool = False
) -> tuple[int, int]:
    """Rows and positions of a held-out set, without drawing it; of published strings there may be fewer rows."""
    task = task.in_bin(bin_)
    if task.is_published:
        return rows, task.width(bin_.high)
    lengths = _lengths(task, bin_, trained, rows, split, every_length)
    return len(lengths), max(lengths)


def _lengths(task: Task, bin_: Bin, trained: tuple[int, int], rows: int, split: Split, every_length: bool) -> list[int]:
    """The length of every row: spread evenly over the bin, and no more rows of a length than it has inputs.

    Beyond the lengths of training, a length with too few inputs belongs to one split as a whole.
    """
    lengths = task.lengths(bin_.low, bin_.high)
    split_lengths = _split_lengths(task, bin_.high, split, every_length)
    usable = [n for n in lengths if n <= trained[1] or not has_few_inputs(task, n) or n in split_lengths] or lengths
    most = rows if all(has_few_inputs(task, n) for n in usable) else LENGTHS
    count = len(usable) if every_length else min(len(usable), most)
    picked = [usable[round(i * (len(usable) - 1) / max(1, count - 1))] for i in range(count)]
    shares = [max(every_length, rows // count + (i < rows % count)) for i in range(count)]
    limits = [int(2 ** task.log2_inputs(n)) if has_few_inputs(task, n) else rows for n in picked]
    return [n for n, share, limit in zip(picked, shares, limits, strict=True) for _ in range(min(share, limit))]


@lru_cache(maxsize=64)
def _split_lengths(task: Task, high: int, split: Split, every_length: bool) -> frozenset[int]:
    """The lengths of a split, of those at which a task has inputs: every other one, or all with `every_length`."""
    lengths = [length for length in range(1, high + 1) if task.fits(length)]
    return frozenset(lengths if every_length else lengths[0 if split == "validate" else 1 :: 2])
