"""The held-out rows that steer the members of a population, of all its tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.lab.data import held_out
from assay.spec import RunSpec
from assay.tasks.task import IGNORE, PAD, Task


class Validation:
    """The bins that may steer a run: for each the held-out rows of all tasks, [tasks, rows, time].

    All are made as wide as the bin allows and filled up with rows that ask nothing, whatever tasks there are.
    """

    def __init__(self, like: RunSpec, tasks: Sequence[Task], device: torch.device, dtype: torch.dtype) -> None:
        how = like.training
        self.bins = [window.name for window in how.validation]
        self.sets: list[tuple[Tensor, Tensor]] = []
        counted = []
        for window in how.validation:
            held = [held_out(t, window, how.lengths, how.validation_rows, "validate", device).batch for t in tasks]
            counted.append([(len(b.targets), int((b.targets != IGNORE).sum())) for b in held])
            size = how.validation_rows, window.high
            inputs = torch.stack([_padded(batch.inputs, size, PAD) for batch in held])
            inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
            self.sets.append((inputs, torch.stack([_padded(batch.targets, size, IGNORE) for batch in held])))
        self.rows = [[bin_[task][0] for bin_ in counted] for task in range(len(tasks))]
        self.asked = [[max(1, bin_[task][1]) for bin_ in counted] for task in range(len(tasks))]


def _padded(x: Tensor, size: tuple[int, int], value: int) -> Tensor:
    filled = x.new_full((*size, *x.shape[2:]), value)
    filled[: x.shape[0], : x.shape[1]] = x
    return filled
