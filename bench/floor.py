"""The least time that a training step can take: its arithmetic, and the memory that it must move.

Arithmetic: the forward pass of one member is traced on tensors without contents, with the plain loops of `ops`. A
matrix product of m x k and k x n counts 2 m k n, any other operation one for every number that it gives; attention
counts only the pairs that are not in the future. The backward pass takes twice the forward pass.

Bytes: the parameters, their gradients and Adam's two averages, each read and written once; and what passes between
blocks, written and read once, and its gradient likewise. A program that moves less would have to fuse whole blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.data import blank
from assay.lab.stacking import build_module
from assay.models.attention import AttentionLayer
from assay.models.skeleton import Stack
from assay.ops import dispatch
from assay.spec import RunSpec

H200 = {"flops": 67e12, "bytes": 4.8e12}  # per second, as the vendor states them, in float32 without the matrix units
PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}  # with the positions of the two factors
MOVED_PARAMETERS = 8  # parameter, gradient and two averages, each read and written


class Arithmetic(TorchDispatchMode):
    """Adds up the arithmetic of every operation that gives new numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0.0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).split(".")[1]
        tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, Tensor)]
        if name in PRODUCTS:
            left, right = (args[position] for position in PRODUCTS[name])
            self.flops += 2 * left.numel() * right.shape[-1]
        elif not func.is_view:  # type: ignore[attr-defined]
            self.flops += sum(_flops_per_number(name, x) * x.numel() for x in tensors)
        return result


def _flops_per_number(name: str, x: Tensor) -> int:
    """Integers are indices, not arithmetic; a complex product is four products and two sums."""
    if x.is_complex():
        return 6 if name.startswith("mul") else 2
    return int(x.is_floating_point())


@dataclass(frozen=True)
class Floor:
    """What a training step of one member computes and moves."""

    flops: float
    bytes: float

    def milliseconds(self, rates: dict[str, float]) -> float:
        return 1000 * max(self.flops / rates["flops"], self.bytes / rates["bytes"])


def rates_of(device: torch.device) -> dict[str, float]:
    """Arithmetic and bytes per second: of an H200 as stated; of a CPU those of a large product and a large copy."""
    if device.type == "cuda":
        return H200
    size = 2048
    x = torch.ones(size, size)
    product = 2 * size**3 / _seconds(lambda: x @ x)
    large = torch.ones(2**26)
    return {"flops": product, "bytes": 2 * large.nbytes / _seconds(large.clone)}


def _seconds(call: Callable[[], object]) -> float:
    """The shortest of several calls."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def floor(spec: RunSpec) -> Floor:
    """The floor of one member and step."""
    batch, length, meta = spec.training.batch, spec.width, torch.device("meta")
    module = build_module(spec, torch.device("cpu")).to(meta)
    arithmetic = Arithmetic()
    plain_loops = patch.object(dispatch, "backend_for", lambda *_: "reference")
    with plain_loops, torch.no_grad(), arithmetic:
        module(blank(spec.task, batch, length, device=meta))
    attention = [layer for layer in module.modules() if isinstance(layer, AttentionLayer)]
    future = sum(layer.heads * layer.dim for layer in attention) * 4 * batch * length * (length - 1) / 2
    parameters = sum(p.numel() for p in module.parameters())
    stack = spec.model
    assert isinstance(stack, Stack), "a floor is known for models of the shared skeleton"
    moved = MOVED_PARAMETERS * parameters + 4 * (len(stack.mixers) + 1) * batch * length * stack.width
    return Floor(3 * (arithmetic.flops - future), 4 * moved)
