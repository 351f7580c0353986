"""Compiling the GPU kernels of a training step before the first step, on as many threads as there are cores.

The operators of a step are found by tracing it with tensors without contents. Each is then called once with zeros of
the same shapes, which compiles its kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.memory import trace_step
from assay.lab.numerics import numerics
from assay.lab.slots import ParameterCopy, Slots
from assay.lab.stacking import Layout
from assay.spec import RunSpec


class TensorType(tuple[tuple[int, ...], torch.dtype]):
    """The shape and type of a tensor."""


class OperatorCalls(TorchDispatchMode):
    """Collects the distinct calls of Assay's operators: the operator, and its arguments with tensors as types."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, tuple[Callable[..., Any], Any]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "namespace", "") == "assay":
            arguments = pytree.tree_map(_type_of, args)
            self.calls.setdefault(f"{func} {arguments}", (func, arguments))
        return func(*args, **(kwargs or {}))


def _type_of(x: Any) -> Any:
    return TensorType((tuple(x.shape), x.dtype)) if isinstance(x, Tensor) else x


def _compile_update(slots: int, device: torch.device) -> None:
    """The kernels of the update are the same for all sizes."""
    row, table = torch.zeros(1, Layout.ALIGNMENT, device=device), torch.zeros(1, 2, dtype=torch.int64, device=device)
    copy = ParameterCopy(torch.zeros_like(row[0]), table) if slots > 1 else None
    with suppress(Exception):
        g, theta, m, v = (torch.zeros_like(row) for _ in range(4))
        Slots.empty(1, device).update(row[:, 0], g, theta, m, v, copy)


def compile_kernels(spec: RunSpec, slots: int, device: torch.device) -> int:
    """Compile the kernels of a training step; returns the number of distinct operator calls.

    Errors are ignored here: the step itself will meet and report them.
    """
    operators = OperatorCalls()
    trace_step(spec, slots, device, operators)

    def zeros(x: Any) -> Any:
        return torch.zeros(x[0], dtype=x[1], device=device) if isinstance(x, TensorType) else x

    def call(operator_call: tuple[Callable[..., Any], Any]) -> None:
        func, arguments = operator_call
        with suppress(Exception), torch.no_grad():
            func(*pytree.tree_map(zeros, arguments, is_leaf=lambda x: isinstance(x, TensorType)))

    with numerics(spec.training, device), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        update = pool.submit(_compile_update, slots, device)
        list(pool.map(call, operators.calls.values()))
        update.result()
    return len(operators.calls)
