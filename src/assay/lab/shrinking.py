"""When a GPU population with idle slots is replaced by a smaller one."""

from __future__ import annotations

import math

import torch

from assay.spec import Training

# Measured on an H200: rebuilding takes 0.3 to 1.1 seconds, and less than 0.2 of a step does not shrink with the slots.
REBUILD_SECONDS = 1.5
FIXED_SHARE = 0.2


def rebuild_seconds(training: Training, device: torch.device) -> float:
    """What a new population costs; infinite on a CPU, which has no idle slots, and where torch.compile starts over."""
    return REBUILD_SECONDS if device.type == "cuda" and not training.compile else math.inf


def shrinking_pays(slots: int, alive: int, seconds_left: float, cost: float) -> bool:
    """Whether a population with only the members alive saves more than twice the seconds that it costs.

    `seconds_left` is the time that the longest member may still take with the present slots.
    """
    return 2 * alive <= slots and seconds_left * (1 - FIXED_SHARE) * (1 - alive / slots) > 2 * cost
