"""Positions: added to the embedding (sinusoidal, learned), rotations of queries and keys (rotary), or a bias of
attention's scores (ALiBi)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models import initial
from assay.rng import Rng


def _angles(positions: Int[Tensor, "time"], pairs: int, x: Tensor) -> Float[Tensor, "time pairs"]:
    rates = 10000.0 ** (-torch.arange(pairs, device=positions.device, dtype=torch.float64) / pairs)
    return (positions[:, None] * rates).to(x)


class Sinusoidal(nn.Module):
    """Sines in the first half of the features, cosines in the second (Vaswani et al. 2017); any length."""

    def forward(self, x: Float[Tensor, "batch time width"], positions: Int[Tensor, "time"]) -> Tensor:
        angles = _angles(positions, (x.shape[-1] + 1) // 2, x)
        return x + torch.cat([angles.sin(), angles.cos()], dim=-1)[:, : x.shape[-1]]


class PositionTable(nn.Module):
    """A trainable vector for every position up to `longest` (`positions` = learned)."""

    def __init__(self, longest: int, width: int, rng: Rng) -> None:
        super().__init__()
        self.table = initial.normal(rng, longest, width)

    def forward(self, x: Float[Tensor, "batch time width"], positions: Int[Tensor, "time"]) -> Tensor:
        return x + self.table[positions]


def check_table(longest: int, length: int) -> None:
    """Raise BadInput if inputs of a length need more positions than a table has."""
    if length > longest:
        raise BadInput(
            f"inputs of {length} tokens are beyond the {longest} positions of the learned table; "
            f"set model.longest={length} or choose other positions"
        )


def rotate(x: Float[Tensor, "batch heads time dim"], positions: Int[Tensor, "time"]) -> Tensor:
    """Rotate each pair (x_i, x_{i + dim/2}) by an angle proportional to the position (Su et al. 2021)."""
    first, second = x.chunk(2, -1)
    angles = _angles(positions, first.shape[-1], x)
    sin, cos = angles.sin(), angles.cos()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


def linear_bias(heads: int, positions: Int[Tensor, "time"], dtype: torch.dtype) -> Float[Tensor, "heads time"]:
    """2^(-8 h / heads) times the position in head h = 1, 2, ...: scores fall with the distance (Press et al. 2022)."""
    slopes = 2.0 ** (-8 * torch.arange(1, heads + 1, device=positions.device, dtype=dtype) / heads)
    return slopes[:, None] * positions
