"""The watched state of every slot: the best one by the first two test bins, as Irie et al. 2023 select it.

Everything happens on the device, beside training, which it does not influence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from assay.lab.member_state import SavedState
from assay.lab.slots import Slots
from assay.lab.validation import HeldOutSets
from assay.spec import RunSpec
from assay.tasks.task import Task


class Watch:
    """Looks at the first two test bins every few steps, and keeps the best state of every slot."""

    def __init__(
        self,
        spec: RunSpec,
        tasks: Sequence[Task],
        theta: Float[Tensor, "slots size"],
        buffers: dict[str, Tensor],
    ) -> None:
        slots, device = len(theta), theta.device
        self.every = spec.testing.watch_every
        self.sets = HeldOutSets(spec, "test", tasks, slots, device, theta.dtype)
        self.rows = torch.tensor(self.sets.rows, dtype=torch.float64, device=device)  # by task and bin
        self.theta, self.buffers = torch.zeros_like(theta), {name: x.clone() for name, x in buffers.items()}
        # The mean share of right sequences, -1 before the first look, and the step of that state.
        self.score = torch.full((slots,), -1.0, dtype=torch.float64, device=device)
        self.step = torch.zeros(slots, dtype=torch.int64, device=device)
        self.first_perfect = torch.zeros_like(self.step)  # the step of the first state without a mistake, or 0

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything that belongs to a slot, by name: [slots, ...]."""
        numbers = {"score": self.score, "step": self.step, "first_perfect": self.first_perfect}
        return numbers | {"theta": self.theta} | {f"buffer {name}": x for name, x in self.buffers.items()}

    def look(
        self,
        logits: Callable[[Tensor], Tensor],
        slots: Slots,
        theta: Float[Tensor, "slots size"],
        buffers: dict[str, Tensor],
    ) -> None:
        """Score all slots, and keep the states that are better than any before."""
        self.sets.count(logits, slots.task)
        wrong = self.sets.wrong_rows
        score = (1 - wrong / self.rows[slots.task].T).mean(0)
        better = (slots.limit > 0) & ~slots.diverged & (self.first_perfect == 0) & (score > self.score)
        perfect = better & (wrong == 0).all(0)
        now = {"score": score, "step": slots.step, "theta": theta}
        now |= {f"buffer {name}": x for name, x in buffers.items()} | {"first_perfect": slots.step.where(perfect, 0)}
        for name, kept in self.tensors.items():
            kept.copy_(torch.where(better.view(-1, *[1] * (kept.ndim - 1)), now[name], kept))

    def reset(self, slot: int, saved: SavedState | None, first_perfect: int | None) -> None:
        """Begin to watch a run, or go on with what was saved of it."""
        self.score[slot] = -1.0 if saved is None else saved.score
        self.step[slot] = 0 if saved is None else saved.step
        self.first_perfect[slot] = first_perfect or 0
        if saved is not None:
            self.theta[slot] = saved.theta
            for name, buffer in self.buffers.items():
                buffer[slot] = saved.buffers[name]

    def saved(self, slot: int, tensors: dict[str, Tensor]) -> SavedState:
        """The state of a slot on the CPU, from `tensors` or a copy of them."""
        row = {name: x[slot].to("cpu", copy=True) for name, x in tensors.items()}
        buffers = {name: row[f"buffer {name}"] for name in self.buffers}
        return SavedState(int(row["step"]), float(row["score"]), row["theta"], buffers)
