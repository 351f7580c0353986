"""q, k and v of every head from one projection."""

from __future__ import annotations

from torch import Tensor

from assay.ops.gpu.heads import join, outputs_of, split


def outputs(z: Tensor, heads: int, features: str) -> tuple[Tensor, ...]:
    return outputs_of(z, heads, gated=False)


def forward(outputs: tuple[Tensor, ...], z: Tensor, heads: int, features: str) -> None:
    split(outputs, z, features, sigmoid=False)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...], z: Tensor, heads: int, features: str
) -> tuple[Tensor, ...]:
    return (join(outputs, grads, z, features, sigmoid=False),)
