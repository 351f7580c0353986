"""Initial parameters from the stateless generator: the same on every device for a seed, without a global seed."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from assay.models.dense import Embedding, Linear
from assay.rng import Rng


def normal(rng: Rng, *shape: int, std: float = 1.0, mean: float = 0.0) -> nn.Parameter:
    return nn.Parameter((rng.normal(math.prod(shape)) * std + mean).view(shape))


def uniform(rng: Rng, *shape: int, bound: float) -> nn.Parameter:
    return nn.Parameter(((rng.uniform(math.prod(shape)) * 2 - 1) * bound).view(shape).float())


def linear(rng: Rng, inputs: int, outputs: int, bias: bool = True, relu: bool = False) -> Linear:
    """A linear map with torch's default initialisation, U(-1/sqrt(inputs), 1/sqrt(inputs)) for weight and bias."""
    layer = Linear(inputs, outputs, bias=bias, device="meta")  # both parameters are set below
    layer.relu = relu
    layer.weight = uniform(rng.child("weight"), outputs, inputs, bound=inputs**-0.5)
    if bias:
        layer.bias = uniform(rng.child("bias"), outputs, bound=inputs**-0.5)
    return layer


def embedding(rng: Rng, count: int, width: int) -> Embedding:
    """A table of N(0, 1) vectors."""
    # Not Embedding(..., device="meta"): its random initialisation there imports torch.compile, which takes a second.
    return Embedding(count, width, _weight=normal(rng, count, width))


@torch.no_grad()
def scale_matrices(module: nn.Module, factor: float) -> None:
    """Multiply all parameters of a module with two or more axes; biases and other vectors stay as they are."""
    for parameter in module.parameters():
        if parameter.ndim > 1:
            parameter.mul_(factor)


def log_uniform(rng: Rng, count: int, low: float, high: float) -> Tensor:
    """Numbers between low and high with a uniform logarithm."""
    return torch.exp(rng.uniform(count) * (math.log(high) - math.log(low)) + math.log(low)).float()


def step_sizes(rng: Rng, count: int) -> Tensor:
    """Biases whose softplus is log-uniform between 0.001 and 0.1."""
    dt = log_uniform(rng, count, 1e-3, 1e-1)
    return dt + torch.log(-torch.expm1(-dt))
