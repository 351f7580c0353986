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
    return stacking.build_module(spec, device, dtype)


def loss_of(model: nn.Module, batch_: Batch) -> torch.Tensor:
    """The mean cross-entropy over what is asked."""
    inputs = batch_.inputs.to(next(model.parameters()).dtype) if batch_.inputs.is_floating_point() else batch_.inputs
    logits = logits_of(model, inputs).flatten(0, 1)
    return F.cross_entropy(logits, batch_.targets.flatten(), ignore_index=IGNORE)


def trained(
    spec: RunSpec, steps: int, dtype: torch.dtype = torch.float64, device: torch.device = DEVICE
) -> tuple[nn.Module, list[float]]:
    """A model after some steps of torch's own AdamW, and the losses on the way."""
    model, training, losses = built(spec, dtype, device), spec.training, []
    decay = training.weight_decay
    optimiser = torch.optim.AdamW(model.parameters(), training.lr, training.betas, training.eps, weight_decay=decay)
    for step in range(1, steps + 1):
        loss = loss_of(model, batch(spec, step, device))
        optimiser.zero_grad()
        loss.backward()
        if training.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimiser.step()
        losses.append(loss.item())
    return model, losses
