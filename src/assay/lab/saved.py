"""What a member has learned, on the CPU, apart from any population."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Best(NamedTuple):
    """A member as it was at the check that validation liked best."""

    step: int
    score: float
    theta: Float[Tensor, "size"]
    buffers: dict[str, Tensor]


class Saved(NamedTuple):
    """All that it takes to go on: parameters, Adam's two averages, buffers, and what is kept of an earlier check."""

    theta: Float[Tensor, "size"]
    m: Float[Tensor, "size"]
    v: Float[Tensor, "size"]
    buffers: dict[str, Tensor]
    best: Best | None = None
