"""Compiling the kernels of a step all at once, by as many threads as there are cores, before the first step.

What a step calls is found by tracing it without computing anything; every operator of ours in it is then called once
with memory of the same shapes. Its numbers do not matter: only that its kernels are there afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.memory import trace
from assay.lab.numerics import numerics
from assay.lab.population import Population
from assay.spec import RunSpec
from assay.tasks.task import Task


class Calls(TorchDispatchMode):
    """Notes every call of an operator of ours, each kind once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, tuple[Callable[..., Any], Any]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "namespace", "") == "assay":
            described = pytree.tree_map(_described, args)
            self.seen.setdefault(f"{func} {described}", (func, described))
        return func(*args, **(kwargs or {}))


class Like(tuple[tuple[int, ...], torch.dtype]):
    """The shape and type of a tensor."""


def _described(x: Any) -> Any:
    return Like((tuple(x.shape), x.dtype)) if isinstance(x, Tensor) else x


def compile_kernels(like: RunSpec, slots: int, device: torch.device) -> int:
    """Have the kernels of a training step compiled; returns how many calls were tried. Errors are left to the step."""
    calls = Calls()
    trace(like, slots, device, calls)

    def made(x: Any) -> Any:
        return torch.zeros(x[0], dtype=x[1], device=device) if isinstance(x, Like) else x

    def call(one: tuple[Callable[..., Any], Any]) -> None:
        func, described = one
        with suppress(Exception), torch.no_grad():
            func(*pytree.tree_map(made, described, is_leaf=lambda x: isinstance(x, Like)))

    with numerics(like.training, device), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(call, calls.seen.values()))
    return len(calls.seen)


def prepared(like: RunSpec, tasks: Sequence[Task], slots: int, device: torch.device, unmapped: str = "") -> Population:
    """A population, its kernels compiled beforehand where a GPU will run them."""
    if device.type == "cuda" and not unmapped:
        compile_kernels(like, slots, device)
    return Population(like, tasks, slots, device, unmapped=unmapped)
