"""A training step traced before it is run: its memory, and its operators.

On a CPU the tensors of a trace are fake, with shapes but no contents, since the step might not fit into memory. On a
GPU tensors are real, except that Assay's operators are not run: that is several times as fast, and fake tensors would
first import torch.compile, which takes seconds.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from assay.lab.data import blank, held_out_shape, rows_checked_at_once
from assay.lab.evaluate import logits_of, rows_per_pass
from assay.lab.locks import EXCLUSIVE
from assay.lab.program import program_of
from assay.lab.stacking import build_module, frozen, member_logits, member_losses, trainable
from assay.lab.stepping import is_stepwise
from assay.models.skeleton import Architecture, Model, Stack
from assay.ops.kernel import BLANK_OUTPUTS
from assay.rng import Rng
from assay.spec import RunSpec, Testing
from assay.tasks.task import Task

# Of a member's parameters: themselves and Adam's averages, the same in the last snapshot, and in one piece.
PARAMETER_COPIES = 7


def parameter_copies(spec: RunSpec) -> int:
    """How many copies of a member's parameters a population has, those of saved states and of the snapshot included."""
    return PARAMETER_COPIES + 2 * sum(name in spec.testing.states for name in ("watched", "averaged"))


class Trace(NamedTuple):
    """What is known of a training step: its peak memory in bytes, a member's parameters, and the operator calls."""

    peak: int
    parameters: int
    calls: tuple[str, ...]  # see `describe_call`


class Observer(TorchDispatchMode):
    """Sees every operation."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch.compile is imported in order to be disabled; it is not used here."""
        return False


class PeakMemory(Observer):
    """Counts the bytes of every storage that an operation allocates, until it is freed; `peak` is the maximum."""

    def __init__(self) -> None:
        super().__init__()
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


class OperatorCalls(Observer):
    """Collects the distinct calls of Assay's operators. They are not run: their outputs have no contents."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if getattr(func, "namespace", "") != "assay":
            return func(*args, **(kwargs or {}))
        self.calls[describe_call(func, args)] = None
        return BLANK_OUTPUTS[func._opname](*args)  # not a call with meta tensors: that would import torch.compile


def describe_call(operator: Any, arguments: Any) -> str:
    """A call of an operator as JSON: its name, and its arguments with tensors as shapes and types."""

    def plain(x: Any) -> Any:
        if isinstance(x, Tensor):
            return {"shape": list(x.shape), "dtype": str(x.dtype).removeprefix("torch.")}
        return [plain(item) for item in x] if isinstance(x, (list, tuple)) else x

    return json.dumps([operator._opname, plain(arguments)])


def repeat_call(call: str, device: torch.device) -> None:
    """Make a call that `describe_call` has described, with zeros."""

    def real(x: Any) -> Any:
        if isinstance(x, dict):
            return torch.zeros(x["shape"], dtype=getattr(torch, x["dtype"]), device=device)
        return [real(item) for item in x] if isinstance(x, list) else x

    name, arguments = json.loads(call)
    with torch.no_grad():
        getattr(torch.ops.assay, name).default(*real(arguments))


@lru_cache(maxsize=256)
def calls_of_tests(
    task: Task, model: Architecture, trained: tuple[int, int], testing: Testing, device: torch.device
) -> tuple[str, ...]:
    """The operator calls of testing a built-in model; none if it is tested step by step."""
    module = model.build(*task.shape, Rng.seeded(0))
    module._apply(lambda x: torch.empty_like(x, device=device))
    if not isinstance(module, Model) or is_stepwise(module):
        return ()
    sets = [(task, bin_, testing.every_length) for bin_ in testing.bins]
    if testing.both_strings:
        sets += [(task.other_strings(), bin_, False) for bin_ in testing.first_bins]
    with EXCLUSIVE, torch.no_grad(), suppress(torch.OutOfMemoryError), OperatorCalls() as operators:
        for tested, bin_, every_length in sets:
            rows, length = held_out_shape(tested, bin_, trained, testing.rows, "test", every_length)
            most = rows_per_pass(module, length, device)
            for count in {min(rows, most), rows % most or most}:
                logits_of(module, blank(task, count, length, device=device))
    return tuple(operators.calls)


_traces: dict[tuple[str, int, torch.device], Trace] = {}


def trace_step(spec: RunSpec, slots: int, device: torch.device) -> Trace:
    """The trace of a population's training step. It takes a moment, so runs that share a program share it."""
    key = program_of(spec), slots, device
    if key not in _traces:
        with EXCLUSIVE:
            _traces[key] = _trace(spec, slots, device)
    return _traces[key]


def _trace(spec: RunSpec, slots: int, device: torch.device) -> Trace:
    """The numbers of a built-in model do not matter: with fake tensors it has none, and on a GPU any.

    A user's own module is built for real: its constructor may look at the values of tensors, or keep tables for later.
    """
    training, shape = spec.training, spec.task.shape  # a task's tables are computed before the fake mode begins
    template = None if isinstance(spec.model, Stack) else build_module(spec, device)
    with FakeTensorMode(allow_non_fake_inputs=True) if device.type == "cpu" else nullcontext():
        if template is None:
            template = spec.model.build(*shape, Rng.seeded(spec.seed, "initial"))
            if device.type != "cpu":
                template._apply(lambda x: torch.empty_like(x, device=device))  # a copy would wait for the device
        with OperatorCalls() as operators, PeakMemory() as memory:  # which sees only what an operator returns
            parameters, buffers = (
                {name: torch.empty(slots, *x.shape, dtype=x.dtype, device=device) for name, x in tensors.items()}
                for tensors in (trainable(template), frozen(template))
            )
            copies = [torch.empty_like(x) for x in parameters.values() for _ in range(parameter_copies(spec) - 1)]
            leaves = [x.requires_grad_() for x in parameters.values()]
            rows = (slots, training.batch, spec.width)
            inputs = blank(spec.task, *rows, device=device)
            targets = torch.zeros(rows, dtype=torch.int64, device=device)
            losses = member_losses(member_logits(template, parameters, buffers, inputs), targets)
            grads = torch.autograd.grad(losses.sum(), leaves, allow_unused=True)
            del losses, grads
            watched = spec.testing.first_bins if "watched" in spec.testing.states else ()
            rows_at_once = rows_checked_at_once(training, device)
            for bin_ in (*training.validation, *watched):
                inputs = blank(spec.task, slots, rows_at_once, spec.task.width(bin_.high), device=device)
                with torch.no_grad():
                    member_logits(template, parameters, buffers, inputs)
            del copies
    parameter_count = sum(p.numel() for p in trainable(template).values())
    return Trace(memory.peak, parameter_count, tuple(operators.calls))
