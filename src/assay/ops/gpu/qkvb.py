"""q, k, v and beta of every head from one projection."""

from __future__ import annotations

from torch import Tensor

from assay.ops.gpu.heads import join, outputs_of, split


def outputs(z: Tensor, heads: int, features: str, sigmoid: bool) -> tuple[Tensor, ...]:
    return outputs_of(z, heads, gated=True)


def forward(outputs: tuple[Tensor, ...], z: Tensor, heads: int, features: str, sigmoid: bool) -> None:
    split(outputs, z, features, sigmoid)


def backward(
    outputs: tuple[Tensor, ...], grads: tuple[Tensor | None, ...], z: Tensor, heads: int, features: str, sigmoid: bool
) -> tuple[Tensor, ...]:
    return (join(outputs, grads, z, features, sigmoid),)
