"""A training step traced with fake tensors, which have shapes but no contents: its memory, and its operators."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.data import blank
from assay.lab.numerics import EXCLUSIVE
from assay.lab.program import program_of
from assay.lab.stacking import build_module, frozen, member_logits, member_losses, trainable
from assay.models.skeleton import Stack
from assay.rng import Rng
from assay.spec import RunSpec

PARAMETER_COPIES = (
    6  # of a member's parameters: they and Adam's two averages, each also in the snapshot of the last round
)


class TensorType(tuple[tuple[int, ...], torch.dtype]):
    """The shape and type of a tensor."""


class OperatorCall(NamedTuple):
    """A call of one of Assay's operators, with tensors as types."""

    operator: Callable[..., Any]
    arguments: Any


class Trace(NamedTuple):
    """What is known of a training step: its peak memory in bytes, a member's parameters, and the operator calls."""

    peak: int
    parameters: int
    calls: tuple[OperatorCall, ...]


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of every storage that an operation allocates, until it is freed; `peak` is the maximum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live, self.peak = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        inputs = {_storage(x)._cdata for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for x in pytree.tree_leaves(results):
            if isinstance(x, Tensor) and _storage(x)._cdata not in inputs:
                self._count(_storage(x))
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self.known:
            return
        size, key = storage.nbytes(), storage._cdata
        self.known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def _storage(x: Tensor) -> torch.UntypedStorage:
    return x.untyped_storage()


class OperatorCalls(TorchDispatchMode):
    """Collects the distinct calls of Assay's operators."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, OperatorCall] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "namespace", "") == "assay":
            arguments = pytree.tree_map(_type_of, args)
            self.calls.setdefault(f"{func} {arguments}", OperatorCall(func, arguments))
        return func(*args, **(kwargs or {}))


def _type_of(x: Any) -> Any:
    return TensorType((tuple(x.shape), x.dtype)) if isinstance(x, Tensor) else x


_traces: dict[tuple[str, int, torch.device], Trace] = {}


def trace_step(spec: RunSpec, slots: int, device: torch.device) -> Trace:
    """The trace of a population's training step. It takes a moment, so runs that share a program share it."""
    key = program_of(spec), slots, device
    if key not in _traces:
        with EXCLUSIVE:
            _traces[key] = _trace(spec, slots, device)
    return _traces[key]


def _trace(spec: RunSpec, slots: int, device: torch.device) -> Trace:
    """On a CPU, which may be too small for it, a built-in model is built from fake tensors too.

    Building it for real is faster. A user's own module is always built for real: its constructor may look at the values
    of tensors, or keep tables for later.
    """
    training, shape = spec.training, spec.task.shape  # a task's tables are computed before the fake mode begins
    fake = device.type == "cpu" and isinstance(spec.model, Stack)
    template = None if fake else build_module(spec, torch.device("cpu"))
    with FakeTensorMode(allow_non_fake_inputs=True):
        template = template or spec.model.build(*shape, Rng.seeded(spec.seed, "initial"))
        with PeakMemory() as memory, OperatorCalls() as operators:
            parameters, buffers = (
                {name: torch.empty(slots, *x.shape, dtype=x.dtype, device=device) for name, x in tensors.items()}
                for tensors in (trainable(template), frozen(template))
            )
            copies = [torch.empty_like(x) for x in parameters.values() for _ in range(PARAMETER_COPIES - 1)]
            leaves = [x.requires_grad_() for x in parameters.values()]
            rows = (slots, training.batch, training.lengths[1])
            inputs = blank(spec.task, *rows, device=device)
            targets = torch.zeros(rows, dtype=torch.int64, device=device)
            losses = member_losses(member_logits(template, parameters, buffers, inputs), targets)
            grads = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
            del copies, grads
    parameter_count = sum(p.numel() for p in trainable(template).values())
    return Trace(memory.peak, parameter_count, tuple(operators.calls.values()))
