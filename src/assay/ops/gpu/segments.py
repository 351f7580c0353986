"""The backward pass of a fast weight recovers its states without having stored them.

A step adds a rank-one update to W, and the forward pass keeps the update's two vectors; so the backward pass subtracts
it again. Each subtraction rounds once: after a segment of SEGMENT steps an entry is off by at most SEGMENT eps times
the largest value that it had. The forward pass keeps the state at every segment's start: there the undone state meets
the true one, is compared with it and replaced by it, so that nothing adds up beyond a segment.

An entry may be off by DRIFT eps times the largest entry of its row or of its column (the smaller of the two), or, for a
state that starts at zero, times what the segment's first step writes. Where it is off by more, because the state grew
or shrank by orders of magnitude, the segment is walked again with every state added up from its start.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

SEGMENT = 64
DRIFT = 256


def segments(time: int) -> int:
    return -(-time // SEGMENT)


def tolerance(x: Tensor) -> float:
    """The drift that is tolerated, relative to a state's entries."""
    return DRIFT * torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps


@triton.jit
def excess(undone, true, rows, columns, tolerated):
    """How far the worst entry is off beyond the tolerance; rows and columns are the sizes of the first write."""
    of_row = tl.maximum(tl.max(tl.abs(true), 1), rows)[:, None]
    of_column = tl.maximum(tl.max(tl.abs(true), 0), columns)[None, :]
    return tl.max(tl.abs(undone - true) - tolerated * tl.minimum(of_row, of_column))
