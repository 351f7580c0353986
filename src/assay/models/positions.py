"""Positions: added to the embedding (sinusoidal, learned) or turned into queries and keys (rotary)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.description import BadInput
from assay.models import initial
from assay.rng import Rng


def _angles(places: Int[Tensor, "time"], pairs: int, like: Tensor) -> Float[Tensor, "time pairs"]:
    rates = 10000.0 ** (-torch.arange(pairs, device=places.device, dtype=torch.float64) / pairs)
    return (places[:, None] * rates).to(like)


class Sinusoidal(nn.Module):
    """Sines in the first half of the features, cosines in the second (Vaswani et al. 2017); any length."""

    def forward(self, x: Float[Tensor, "batch time width"], places: Int[Tensor, "time"]) -> Tensor:
        angles = _angles(places, (x.shape[-1] + 1) // 2, x)
        return x + torch.cat([angles.sin(), angles.cos()], dim=-1)[:, : x.shape[-1]]


class Learned(nn.Module):
    """A trained vector for every position up to `longest`."""

    def __init__(self, longest: int, width: int, rng: Rng) -> None:
        super().__init__()
        self.table = initial.normal(rng, longest, width)

    def forward(self, x: Float[Tensor, "batch time width"], places: Int[Tensor, "time"]) -> Tensor:
        return x + self.table[places]


def check_learned(longest: int, wanted: int) -> None:
    if wanted > longest:
        raise BadInput(
            f"inputs of {wanted} tokens are beyond the {longest} positions of the learned table; "
            f"set model.longest={wanted} or choose other positions"
        )


def rotate(x: Float[Tensor, "batch heads time dim"], places: Int[Tensor, "time"]) -> Tensor:
    """Turn each pair (x_i, x_{i + dim/2}) by an angle that grows with the position (Su et al. 2021)."""
    first, second = x.chunk(2, -1)
    angles = _angles(places, first.shape[-1], x)
    sin, cos = angles.sin(), angles.cos()
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
