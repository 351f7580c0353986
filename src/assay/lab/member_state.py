"""The state of a member on the CPU, outside of any population."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class BestState(NamedTuple):
    """Parameters and buffers at the check with the highest validation accuracy so far."""

    step: int
    score: float
    theta: Float[Tensor, "size"]
    buffers: dict[str, Tensor]


class MemberState(NamedTuple):
    """Everything that training needs to continue: parameters, Adam's two averages, buffers, and the best state."""

    theta: Float[Tensor, "size"]
    m: Float[Tensor, "size"]
    v: Float[Tensor, "size"]
    buffers: dict[str, Tensor]
    best: BestState | None = None
