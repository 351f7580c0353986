"""The update in kernels equals the update in plain operations, for every setting of AdamW; and so does its copy.

Without a GPU the kernels run through Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

from assay.lab.slots import ParameterCopy, Slots
from assay.lab.stacking import Layout
from assay.ops.dispatch import is_installed

from .alone import DEVICE

pytestmark = pytest.mark.skipif(not is_installed("triton"), reason="triton is not installed")
SETTINGS = [
    {"lr": 0.1, "limit": 9},
    {"lr": 0.01, "limit": 2, "warmup": 3, "schedule": 1, "weight_decay": 0.3},
    {"lr": 0.02, "limit": 7, "clip": 0.5, "beta_1": 0.5, "beta_2": 0.0},
    {"lr": 0.02, "limit": 7, "schedule": 2, "explodes": 3.0},
]
USUAL = {"beta_1": 0.9, "beta_2": 0.999, "eps": 1e-8, "clip": math.inf, "explodes": math.inf}


class Parts(nn.Module):
    """Parameters of sizes that the alignment of a row divides and does not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.scalar, self.matrix = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(5, 7))
        self.long, self.even = nn.Parameter(torch.zeros(1100)), nn.Parameter(torch.zeros(2, 16))


def batches(layout: Layout, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Losses and gradients; the fourth slot explodes at the second step, and the third has a NaN at the fourth."""
    rng = torch.Generator().manual_seed(1)
    for step in range(5):
        losses = torch.rand(len(SETTINGS) + 1, generator=rng, dtype=dtype)
        g = torch.randn(len(SETTINGS) + 1, layout.size, generator=rng, dtype=dtype)
        losses[3] += 4.0 * (step == 1)
        g[2, 50] += math.nan if step == 3 else 0.0
        yield losses.to(DEVICE), g.to(DEVICE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_kernels_equal_the_plain_operations(dtype: torch.dtype):
    from assay.ops.gpu import adamw

    layout = Layout(Parts())
    results = []
    for fused in (False, True):
        slots = Slots.empty(len(SETTINGS) + 1, torch.device("cpu"))  # the last stays empty
        for slot, settings in enumerate(SETTINGS):
            slots.set(slot, **USUAL | settings)
        slots = Slots(**{f.name: getattr(slots, f.name).to(DEVICE) for f in fields(Slots)})
        rng = torch.Generator().manual_seed(0)
        theta, m, v = (torch.randn(len(slots.step), layout.size, generator=rng, dtype=dtype) for _ in "123")
        theta, m, v = theta.to(DEVICE), m.to(DEVICE), v.abs().to(DEVICE)
        copy = ParameterCopy(torch.full_like(theta, math.nan).flatten(), layout.table(DEVICE))
        for losses, g in batches(layout, dtype):
            if fused:
                adamw.update(vars(slots), losses, g, theta, m, v, *copy)
            else:
                slots._update_rows(losses, g, theta, m, v)
        results.append([theta, m, v, slots.step, slots.diverged, slots.loss])
    assert slots.step.tolist() == [5, 2, 4, 2, 0]
    assert slots.diverged.tolist() == [False, False, True, True, False]
    tolerance = 1e-7 if dtype == torch.float64 else 1e-4  # the share of a schedule is float32 in both
    for got, wanted in zip(*reversed(results), strict=True):
        torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)
    for stacked, view in zip(layout.contiguous_views(copy.flat).values(), layout.views(theta).values(), strict=True):
        assert stacked.is_contiguous()
        assert torch.equal(stacked, view)
