"""Fixed training sets, the same for all runs of a task, and sets of published strings."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.errors import BadInput
from assay.lab.locks import one_at_a_time
from assay.lab.splits import ROUNDS, VALIDATE, content_hash, has_few_inputs, new_rows, part_of
from assay.rng import Rng
from assay.tasks.task import Batch, Task

PUBLISHED_ROWS = 10_000  # of the training sets of Irie et al. 2023


@one_at_a_time
@lru_cache(maxsize=16)
def training_set(task: Task, lengths: tuple[int, int], rows: int, device: torch.device) -> Batch:
    """The inputs on which all runs with `training.fixed` train, with their targets."""
    if not task.is_published:
        inputs = _from_training_split(task, lengths, rows)
    elif len(inputs := published_set(task, *lengths, rows, "train")) < rows:
        few = f"{task.kind} has too few published strings of length {lengths[0]} to {lengths[1]}"
        raise BadInput(f"{few} for training.fixed = {rows}: {len(inputs)} were found")
    return Batch(inputs.to(device), task.solve(inputs).to(device))


def _from_training_split(task: Task, lengths: tuple[int, int], rows: int) -> Tensor:
    """Inputs as the task draws them, of uniform lengths; those of another split are drawn again."""
    rng, usable = Rng.seeded(0, "fixed").rows(rows), task.lengths(*lengths)
    which = rng.child("length").integers(1, len(usable))[:, 0]
    few = torch.tensor([has_few_inputs(task, length) for length in usable])[which]
    row_lengths, width = torch.tensor(usable)[which], task.width(lengths[1])
    inputs = task.inputs(row_lengths, rng.child("attempt", 0), width)
    for attempt in range(1, ROUNDS):
        others = (~few & (part_of(inputs) <= VALIDATE)).nonzero()[:, 0]
        if not len(others):
            break
        generators = Rng(rng.keys[others]).child("attempt", attempt)
        inputs[others] = task.inputs(row_lengths[others], generators, width)
    return inputs


@lru_cache(maxsize=64)
def published_set(task: Task, low: int, high: int, rows: int, *stream: str) -> Tensor:
    """The first rows of a stream of published strings; none occurs twice, as in the published code.

    There are fewer rows if so many different ones are hard to find.
    """
    rng, count = Rng.seeded(0, "published", *stream), max(1024, 2 * rows)
    inputs = task.published(low, high, rng.rows(0))
    for first in range(0, ROUNDS * count, count):
        drawn = task.published(low, high, rng.rows(count, first))
        hashes = content_hash(drawn)
        new = new_rows(hashes, torch.ones_like(hashes, dtype=torch.bool), content_hash(inputs))
        inputs = torch.cat([inputs, drawn[new]])
        if len(inputs) >= rows or not new.any():
            break
    return inputs[:rows]


def seen_in_training(
    task: Task, trained: tuple[int, int], inputs: Tensor, lengths: Int[Tensor, "rows"]
) -> Bool[Tensor, "rows"]:
    """The rows that training on a task may show: for published strings, those of the published training set."""
    if task.is_published:
        return torch.isin(content_hash(inputs), content_hash(published_set(task, *trained, PUBLISHED_ROWS, "train")))
    few = torch.tensor([has_few_inputs(task, length) for length in lengths.tolist()])
    return (lengths <= trained[1]) & (few | (part_of(inputs) > VALIDATE))
