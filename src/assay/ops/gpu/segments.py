"""How the backward pass of a fast weight gets its states back without having stored them.

A step adds a rank-one update to W, and the forward pass keeps the update's two vectors; so the backward pass subtracts
it again. Each subtraction rounds once, so that after a segment of SEGMENT steps the entries are off by at most
SEGMENT eps max |W|. The forward pass keeps the state at every segment's start: there the undone state meets the true
one, is compared with it and replaced by it. Where they differ by more than DRIFT eps max |W| (an update that grew and
shrank the state by many orders of magnitude), the segment is walked again with every state added up from its start.
"""

from __future__ import annotations

import torch
from torch import Tensor

SEGMENT = 64
DRIFT = 128


def segments(time: int) -> int:
    return -(-time // SEGMENT)


def tolerance(x: Tensor) -> float:
    """The relative drift that is let pass."""
    return DRIFT * torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps
