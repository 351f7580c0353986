"""A run as one would write it for a single model: what a member of a population is compared with."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from assay.lab import stacking
from assay.lab.data import TrainingData
from assay.lab.evaluate import logits_of
from assay.spec import RunSpec
from assay.tasks.task import IGNORE, Batch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batch(spec: RunSpec, number: int, device: torch.device = DEVICE) -> Batch:
    """A training batch of a run."""
    seeds, first = torch.tensor([[spec.seed], [number]], device=device)
    drawn = TrainingData(spec.task, spec.training, device).draw(seeds, first, 1)
    return Batch(drawn.inputs[0, 0], drawn.targets[0, 0])


def built(spec: RunSpec, dtype: torch.dtype = torch.float64, device: torch.device = DEVICE) -> nn.Module:
    return stacking.built(spec, device, dtype)


def loss_of(model: nn.Module, given: Batch) -> torch.Tensor:
    """The mean cross-entropy over what is asked."""
    inputs = given.inputs.to(next(model.parameters()).dtype) if given.inputs.is_floating_point() else given.inputs
    logits = logits_of(model, inputs).flatten(0, 1)
    return F.cross_entropy(logits, given.targets.flatten(), ignore_index=IGNORE)


def trained(
    spec: RunSpec, steps: int, dtype: torch.dtype = torch.float64, device: torch.device = DEVICE
) -> tuple[nn.Module, list[float]]:
    """A model after some steps of torch's own AdamW, and the losses on the way."""
    model, how, losses = built(spec, dtype, device), spec.training, []
    options = {"lr": how.lr, "betas": how.betas, "eps": how.eps, "weight_decay": how.weight_decay}
    optimiser = torch.optim.AdamW(model.parameters(), **options)
    for step in range(1, steps + 1):
        loss = loss_of(model, batch(spec, step, device))
        optimiser.zero_grad()
        loss.backward()
        if how.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), how.clip)
        optimiser.step()
        losses.append(loss.item())
    return model, losses
