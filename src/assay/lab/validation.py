"""Held-out sets on which all slots are scored at once, on the device: for validation, and for the watched state."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from assay.lab.data import Split, held_out, rows_checked_at_once
from assay.lab.evaluate import answers_of
from assay.lab.member import RoundReport
from assay.spec import RunSpec
from assay.tasks.task import IGNORE, PAD, Task


class HeldOutSets:
    """The held-out sets of all tasks, [tasks, rows, time] for each bin, and the counts of right answers by slot.

    Sets are as wide as their bin and filled up with rows without targets: shapes do not depend on the tasks.
    """

    def __init__(
        self,
        spec: RunSpec,
        split: Split,
        tasks: Sequence[Task],
        slots: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        training, testing = spec.training, spec.testing
        bins, rows = (
            (training.validation, training.validation_rows)
            if split == "validate"
            else (testing.first_bins, testing.rows)
        )
        every_length = testing.every_length and split == "test"  # then a set may have more rows
        self.bins = [bin_.name for bin_ in bins]
        self.chunk = rows_checked_at_once(training, device)
        self.sets: list[tuple[Tensor, Tensor]] = []
        self.rows: list[list[int]] = [[] for _ in tasks]  # by task and bin
        self.answers: list[list[int]] = [[] for _ in tasks]
        for bin_ in bins:
            batches = [
                held_out(task, bin_, training.lengths, rows, split, device, every_length).batch for task in tasks
            ]
            for number, batch in enumerate(batches):
                self.rows[number].append(len(batch.targets))
                self.answers[number].append(max(1, int((batch.targets != IGNORE).sum())))
            size = max(rows, *(len(batch.targets) for batch in batches)), spec.task.width(bin_.high)
            inputs = torch.stack([_padded(batch.inputs, size, PAD) for batch in batches])
            inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
            self.sets.append((inputs, torch.stack([_padded(batch.targets, size, IGNORE) for batch in batches])))
        count = len(self.bins), slots
        self.wrong_rows, self.right_answers = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(2))

    def count(self, logits: Callable[[Tensor], Tensor], task: Int[Tensor, "slots"]) -> None:
        """Count wrong rows and right answers of every slot; `logits` maps inputs [slots, rows, time] to logits."""
        for number, (inputs, targets) in enumerate(self.sets):
            self.wrong_rows[number].zero_()
            self.right_answers[number].zero_()
            for start in range(0, inputs.shape[1], self.chunk):
                rows = slice(start, start + self.chunk)
                expected = targets[:, rows][task]
                answers = answers_of(logits(inputs[:, rows][task]))
                has_target = expected != IGNORE
                right = (answers == expected) & has_target
                self.wrong_rows[number] += (right != has_target).any(2).sum(1)
                self.right_answers[number] += right.sum((1, 2))

    def report(self, task: int, step: int, diverged: bool, loss: float, counts: Sequence[float]) -> RoundReport:
        """The report of one slot; `counts` are its wrong rows by bin, then its right answers by bin."""
        wrong, right = counts[: len(self.bins)], counts[len(self.bins) :]
        sequences = {name: 1 - w / n for name, w, n in zip(self.bins, wrong, self.rows[task], strict=True)}
        answers = {name: r / n for name, r, n in zip(self.bins, right, self.answers[task], strict=True)}
        return RoundReport(step, diverged, loss, sequences, answers)


def _padded(x: Tensor, size: tuple[int, int], value: int) -> Tensor:
    filled = x.new_full((*size, *x.shape[2:]), value)
    filled[: x.shape[0], : x.shape[1]] = x
    return filled
