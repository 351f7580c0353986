"""Training one model on one task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.lab.data import TrainingData, held_out
from assay.lab.evaluate import Marks, logits_of
from assay.record import Point
from assay.spec import RunSpec
from assay.tasks.task import IGNORE

Progress = Callable[[int, float, float], None]  # step, mean loss since the last check, worst validation accuracy


@dataclass(frozen=True)
class Trained:
    """How training ended."""

    stopped: Literal["solved", "steps", "diverged"]
    steps: int
    solved_at: int | None
    curve: tuple[Point, ...]
    seconds: float


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over what is asked; 0 where nothing is."""
    total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (targets != IGNORE).sum().clamp(min=1)


class Validation:
    """The bins that may steer a run."""

    def __init__(self, spec: RunSpec, device: torch.device) -> None:
        rows = spec.training.validation_rows
        self.bins = {
            b.name: held_out(spec.task, b, spec.training.lengths, rows, "validate", device)
            for b in spec.training.validation
        }

    def check(self, model: nn.Module, step: int, loss: float) -> Point:
        sequences, answers = {}, {}
        for name, held in self.bins.items():
            marks = Marks.of(model, held)
            sequences[name], answers[name] = marks.sequences(), marks.answers()
        return Point(step=step, loss=loss, sequences=sequences, answers=answers)


def train(model: nn.Module, spec: RunSpec, device: torch.device, progress: Progress) -> Trained:
    """Train in place. Ends when validation is perfect `patience` times in a row, on NaN or Inf, or with the steps."""
    how, data, validation = spec.training, TrainingData(spec, device), Validation(spec, device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=how.lr, betas=how.betas, eps=how.eps, weight_decay=how.weight_decay, fused=True
    )
    curve: list[Point] = []
    solved_at: int | None = None
    start, perfect, losses = time.perf_counter(), 0, torch.zeros((), device=device)
    for step in range(1, how.steps + 1):
        batch = data[step]
        loss = loss_of(logits_of(model, batch.inputs), batch.targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if how.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), how.clip)
        optimiser.step()
        losses += loss.detach()
        check = step % how.validate_every == 0 or step == how.steps
        if not loss.isfinite() or (check and not all(p.isfinite().all() for p in model.parameters())):
            return Trained("diverged", step, None, tuple(curve), time.perf_counter() - start)
        if not check:
            continue
        since = (step - 1) % how.validate_every + 1
        curve.append(validation.check(model, step, float(losses) / since))
        losses.zero_()
        worst = min(curve[-1].sequences.values())
        progress(step, curve[-1].loss, worst)
        perfect = perfect + 1 if worst == 1 else 0
        if perfect == how.patience and solved_at is None:
            solved_at = curve[-how.patience].step
            if how.stop == "solved":
                return Trained("solved", step, solved_at, tuple(curve), time.perf_counter() - start)
    return Trained("steps", how.steps, solved_at, tuple(curve), time.perf_counter() - start)
