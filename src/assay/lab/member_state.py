"""The state of a member on the CPU, outside of any population."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class SavedState(NamedTuple):
    """Parameters and buffers as they were, or as they were averaged, at some step; with the score of a check."""

    step: int
    score: float
    theta: Float[Tensor, "size"]
    buffers: dict[str, Tensor]


class MemberState(NamedTuple):
    """All that training needs to continue: parameters, Adam's two averages, buffers, and saved states by name."""

    theta: Float[Tensor, "size"]
    m: Float[Tensor, "size"]
    v: Float[Tensor, "size"]
    buffers: dict[str, Tensor]
    saved: Mapping[str, SavedState] = MappingProxyType({})
