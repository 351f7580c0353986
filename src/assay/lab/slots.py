"""The settings and counters of the members of a population, one entry per slot, and the AdamW update."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple, Self, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assay.ops.dispatch import is_installed
from assay.spec import RunSpec, Schedule

SCHEDULES = get_args(Schedule)


class ParameterCopy(NamedTuple):
    """A copy of the parameters in which each is contiguous over all slots, and the table that finds it there."""

    flat: Float[Tensor, "numbers"]
    table: Int[Tensor, "groups 2"]


def is_fused(theta: Tensor) -> bool:
    """Whether kernels carry out the update."""
    return theta.is_cuda and is_installed("triton")


@dataclass
class Slots:
    """One entry per slot for everything that may differ between members; an empty slot has a step limit of 0."""

    seed: Int[Tensor, "slots"]
    task: Int[Tensor, "slots"]
    step: Int[Tensor, "slots"]
    limit: Int[Tensor, "slots"]
    diverged: Bool[Tensor, "slots"]
    loss: Float[Tensor, "slots"]  # summed since the round began
    lr: Float[Tensor, "slots"]
    warmup: Float[Tensor, "slots"]
    schedule: Int[Tensor, "slots"]
    beta_1: Float[Tensor, "slots"]
    beta_2: Float[Tensor, "slots"]
    eps: Float[Tensor, "slots"]
    weight_decay: Float[Tensor, "slots"]
    clip: Float[Tensor, "slots"]
    explodes: Float[Tensor, "slots"]  # nats

    @classmethod
    def empty(cls, count: int, device: torch.device) -> Self:
        dtypes = dict.fromkeys(("seed", "task", "step", "limit", "schedule"), torch.int64) | {"diverged": torch.bool}
        columns = {
            f.name: torch.zeros(count, dtype=dtypes.get(f.name, torch.float64), device=device) for f in fields(cls)
        }
        columns["eps"] += 1.0  # an empty slot must not divide zero by zero
        return cls(**columns)

    def set(self, slot: int, **values: float) -> None:
        for name, value in values.items():
            getattr(self, name)[slot] = value

    def assign(self, slot: int, spec: RunSpec, task: int, step: int) -> None:
        """Give a slot to a run that has made some steps; `task` is the number of its task."""
        training = spec.training
        self.set(
            slot,
            seed=spec.seed,
            task=task,
            step=step,
            limit=training.steps,
            diverged=False,
            loss=0.0,
            lr=training.lr,
            warmup=training.warmup,
            schedule=SCHEDULES.index(training.schedule),
            beta_1=training.betas[0],
            beta_2=training.betas[1],
            eps=training.eps,
            weight_decay=training.weight_decay,
            clip=math.inf if training.clip is None else training.clip,
            explodes=math.inf if training.explodes is None else training.explodes,
        )

    @property
    def active(self) -> Bool[Tensor, "slots"]:
        return (self.step < self.limit) & ~self.diverged

    def rate(self) -> Float[Tensor, "slots"]:
        """The learning rate of the current step, which `step` already counts."""
        share = (self.step - 1) / self.limit.clamp(min=1)
        falling = torch.stack([torch.ones_like(share), 1 - share, 0.5 * (1 + torch.cos(math.pi * share))])
        rising = (self.step / self.warmup.clamp(min=1)).clamp(max=1)
        return self.lr * rising * falling.gather(0, self.schedule[None])[0]

    def update(
        self,
        losses: Float[Tensor, "slots"],
        g: Float[Tensor, "slots size"],
        theta: Float[Tensor, "slots size"],
        m: Float[Tensor, "slots size"],
        v: Float[Tensor, "slots size"],
        copy: ParameterCopy | None = None,
    ) -> None:
        """AdamW on the rows of active slots; one whose loss or gradient is NaN, infinite or too large diverges.

        On a GPU three kernels do this, which also keep the copy of the parameters up to date.
        """
        if is_fused(theta) and not torch.compiler.is_compiling():
            from assay.ops.gpu import adamw

            adamw.update(vars(self), losses, g, theta, m, v, *(copy or ()))
            return
        alone = len(theta) == 1 and not theta.is_cuda and not torch.compiler.is_compiling()
        (self._update_one if alone else self._update_rows)(losses, g, theta, m, v)

    def _update_rows(self, losses: Tensor, g: Tensor, theta: Tensor, m: Tensor, v: Tensor) -> None:
        """The update in plain operations, which the kernels must equal."""
        active, norm = self.active, torch.linalg.vector_norm(g, dim=1, dtype=torch.float64)
        good = active & losses.isfinite() & (losses < self.explodes) & norm.isfinite()
        self.diverged |= active & ~good
        self.step += active
        self.loss += losses.double().where(good, 0)
        rate = self.rate().where(good, 0)
        decay_1, decay_2 = ((1 - beta).where(good, 0) for beta in (self.beta_1, self.beta_2))
        count = self.step.clamp(min=1)
        step_size = rate / (1 - self.beta_1**count)
        root = (1 - self.beta_2**count).rsqrt()
        scale = (self.clip / (norm + 1e-6)).clamp(max=1)

        def column(x: Tensor) -> Tensor:
            return x.to(g.dtype)[:, None]

        g = (g * column(scale)).where(good[:, None], 0)
        m.lerp_(g, column(decay_1))
        v.mul_(column(1 - decay_2)).addcmul_(g * column(decay_2), g)
        theta.mul_(column(1 - rate * self.weight_decay))
        theta.sub_(m / (v.sqrt() * column(root) + column(self.eps)) * column(step_size))

    def _update_one(self, losses: Tensor, g: Tensor, theta: Tensor, m: Tensor, v: Tensor) -> None:
        """The same bits for a single slot on a CPU, where Python's numbers are faster than small tensors."""
        slot = {f.name: getattr(self, f.name).item() for f in fields(self)}
        if slot["diverged"] or slot["step"] >= slot["limit"]:
            return
        self.step += 1
        loss, norm = losses.item(), torch.linalg.vector_norm(g, dim=1, dtype=torch.float64).item()
        if not (math.isfinite(loss) and loss < slot["explodes"] and math.isfinite(norm)):
            self.diverged.fill_(True)
            return
        self.loss += loss
        rising = min((slot["step"] + 1) / max(slot["warmup"], 1.0), 1.0)
        rate = slot["lr"] * rising if slot["schedule"] == SCHEDULES.index("constant") else self.rate().item()
        correction_1, correction_2 = (1 - (beta**self.step).item() for beta in (self.beta_1, self.beta_2))
        decay_1, decay_2 = 1 - slot["beta_1"], 1 - slot["beta_2"]
        scale = min(slot["clip"] / (norm + 1e-6), 1.0)
        g = g * scale if scale < 1 else g
        m.lerp_(g, decay_1)
        v.mul_(1 - decay_2).addcmul_(g * decay_2, g)
        theta.mul_(1 - rate * slot["weight_decay"])
        theta.sub_(m / (v.sqrt() * (1 / math.sqrt(correction_2)) + slot["eps"]) * (rate / correction_1))
