"""Splits: a hash of an input's content decides whether it is for training, validation or testing."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.rng import mix
from assay.tasks.task import Task

PARTS = 8
TEST, VALIDATE = 0, 1  # the other parts train
FEWEST_BITS = 6.0  # a length with fewer than 2^6 inputs (of either label) is not split
ROUNDS = 64  # of redrawing for a set of rows


def content_hash(inputs: Tensor) -> Int[Tensor, "rows"]:
    """A 64-bit hash of each row's content, ignoring padding."""
    words = inputs if inputs.dtype == torch.int64 else inputs.contiguous().view(torch.int32).long()
    words = words.flatten(1)
    weights = mix(torch.arange(1, words.shape[1] + 1, device=words.device)) | 1
    return mix((words * weights).sum(1))


def part_of(inputs: Tensor) -> Int[Tensor, "rows"]:
    """The part, 0 to 7, that each row belongs to."""
    return (content_hash(inputs) >> 61) & (PARTS - 1)


def has_few_inputs(task: Task, length: int) -> bool:
    """Whether a length has too few inputs to be split."""
    return task.log2_inputs(length) < FEWEST_BITS


def new_rows(hashes: Tensor, allowed: Tensor, known: Tensor) -> Bool[Tensor, "rows"]:
    """Allowed rows that are not known yet; of equal rows, the first."""
    allowed = allowed & ~torch.isin(hashes, known)
    ascending, order = torch.where(allowed, hashes, 0).sort(stable=True)
    repeats = torch.nn.functional.pad(ascending[1:] == ascending[:-1], (1, 0))
    return allowed & ~torch.zeros_like(allowed).scatter(0, order, repeats)
