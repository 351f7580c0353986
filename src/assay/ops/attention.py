"""Softmax attention (Vaswani et al. 2017), causal. Its state is a cache: all keys and values up to now."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.ops.dispatch import Backend, call, define
from assay.ops.operator import Operator

__all__ = ["attention", "biased_attention", "causal_scores"]


def causal_scores(q: Tensor, k: Tensor) -> Tensor:
    """q k^T / sqrt(dim) [batch, heads, time, source], -inf at future positions; the last query is at the last key."""
    time, source = q.shape[2], k.shape[2]
    positions = torch.arange(source, device=q.device)
    future = positions > positions[source - time :, None]
    scores: Tensor = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(future, -torch.inf)


def attention_step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
    """o = softmax(q k^T / sqrt(dim)) v, over the positions up to each query's own."""
    return (causal_scores(q, k).softmax(-1) @ v,)


ATTENTION = define(
    Operator(
        "attention",
        attention_step,
        inputs={"q": "B H T D", "k": "B H S D", "v": "B H S D"},
        outputs={"o": "B H T D"},
        kernels={"cpu": 1, "gpu": 2},
        bounded="D",
        shortest={"cpu": 129},  # where it is 1.8 times as fast (4 times at 400); below, old records keep their bits
        usual={"H": 4, "D": 16},
    )
)


def attention(q: Tensor, k: Tensor, v: Tensor, *, backend: Backend = "auto") -> Tensor:
    """o = softmax(q k^T / sqrt(dim)) v, causal; k and v are [batch, heads, past + time, dim], the past first."""
    (o,) = call(ATTENTION, q, k, v, backend=backend)
    return o


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *, backend: Backend = "auto") -> Tensor:
    """o = softmax(q k^T / sqrt(dim) + bias) v, causal; the keys' bias is [batch, heads, past + time].

    It is attention with three more entries per head, 1 in every query and a part of the bias in every key: parts of
    eight bits each, which no backend rounds in a product. The last one has the rest, and so the gradient.
    """
    size = q.shape[-1] + 3
    rest, parts = bias * size**0.5, []
    for _ in range(2):
        parts.append(rest.detach().bfloat16().to(rest.dtype))
        rest = rest - parts[-1]
    ones = q.new_ones(*q.shape[:-1], 3)
    q = torch.cat([q * (size / (size - 3)) ** 0.5, ones], dim=-1)
    k = torch.cat([k, torch.stack([*parts, rest], dim=-1).to(k.dtype)], dim=-1)
    o = attention(q, k, torch.cat([v, v.new_zeros(*v.shape[:-1], 3)], dim=-1), backend=backend)
    return o[..., :-3]
