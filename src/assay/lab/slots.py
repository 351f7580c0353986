"""What differs between the members of a population, one entry per slot, and the update that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assay.spec import Schedule

SCHEDULES = get_args(Schedule)


@dataclass
class Slots:
    """What differs between members, one entry per slot; an empty slot has no steps to go."""

    seed: Int[Tensor, "slots"]
    task: Int[Tensor, "slots"]
    step: Int[Tensor, "slots"]
    limit: Int[Tensor, "slots"]
    diverged: Bool[Tensor, "slots"]
    loss: Float[Tensor, "slots"]  # the sum since the round began
    lr: Float[Tensor, "slots"]
    warmup: Float[Tensor, "slots"]
    schedule: Int[Tensor, "slots"]
    beta_1: Float[Tensor, "slots"]
    beta_2: Float[Tensor, "slots"]
    eps: Float[Tensor, "slots"]
    weight_decay: Float[Tensor, "slots"]
    clip: Float[Tensor, "slots"]
    explodes: Float[Tensor, "slots"]  # nats; guessing costs the logarithm of the number of answers

    @classmethod
    def empty(cls, count: int, device: torch.device) -> Self:
        kinds = {"seed": torch.int64, "task": torch.int64, "step": torch.int64, "limit": torch.int64}
        kinds |= {"schedule": torch.int64, "diverged": torch.bool}
        made = {f.name: torch.zeros(count, dtype=kinds.get(f.name, torch.float64), device=device) for f in fields(cls)}
        made["eps"] += 1.0  # so that an empty slot does not divide zero by zero
        return cls(**made)

    def set(self, slot: int, **values: float) -> None:
        for name, value in values.items():
            getattr(self, name)[slot] = value

    @property
    def active(self) -> Bool[Tensor, "slots"]:
        return (self.step < self.limit) & ~self.diverged

    def rate(self) -> Float[Tensor, "slots"]:
        """The learning rate of the step that is being made: `step` counts it already."""
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
    ) -> None:
        """AdamW on rows of parameters and averages; none where the loss or the gradient is no longer a number."""
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
