"""How many kernels a training step launches on a GPU, by model; no GPU is needed.

python bench/launches.py [--models M ...] [--members P] [--list]

A population's step (taking the batch, forward, loss, backward, update) runs with tensors without contents, and the
backends are chosen as on a GPU. Every launch of a Triton kernel counts, and every operation of PyTorch that computes or
copies; one of PyTorch's own operations may be more than one kernel (a long sum, for example). "draw" is the same for
drawing the batches, over the steps that are drawn at once. --list shows the launches of each model by name.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import KernelInterface

from assay import integer_kernels, ops, rng
from assay.lab import population as populations
from assay.lab import slots
from assay.lab.data import steps_ahead
from assay.lab.population import Population
from assay.ops import dispatch
from assay.ops.dispatch import KERNELS
from assay.spec import RunSpec
from assay.tasks import automaton
from population import SEVEN, Case

ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
MAYBE_VIEWS = ("contiguous", "reshape", "to")  # which return their input or a copy of it


class Launches(TorchDispatchMode):
    """Counts the launches by name; Assay's own operators are entered, so that what they launch is counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        name = func._schema.name.split("::")[1]
        if func.namespace == "assay":
            forward = name.removesuffix("_backward")
            kernel = KERNELS[tuple(forward.rsplit("_", 1))]
            with self:
                return list(kernel._backward(*args)) if name != forward else kernel._forward(*args)
        results = func(*args, **(kwargs or {}))
        if func.namespace != "prim" and name not in ALLOCATIONS and _computes(func, name, (args, kwargs), results):
            self.names[name] += 1
        return results

    def __enter__(self) -> Any:
        return super().__enter__()  # type: ignore[no-untyped-call]


def _computes(func: Any, name: str, inputs: Any, results: Any) -> bool:
    """Whether an operation does more than to give a view of its inputs."""
    if any(argument.alias_info is not None and argument.alias_info.is_write for argument in func._schema.arguments):
        return True
    if name not in MAYBE_VIEWS and any(result.alias_info is not None for result in func._schema.returns):
        return False
    known, fresh = ({x.untyped_storage()._cdata for x in _tensors(tree) if x.numel()} for tree in (inputs, results))
    return bool(fresh - known)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, Tensor)]


@contextmanager
def as_on_gpu(launched: Callable[[str], None]) -> Iterator[None]:
    """Choose what a GPU would run, and report the Triton kernels instead of running them."""

    def backend_for(name: str, backend: str, device: torch.device, size: int = 1, time: int = 1) -> str:
        operator = dispatch._definition(name)
        if backend == "auto" and "gpu" in operator.kernels and size <= operator.head_limit:
            return "gpu"
        return ("chunked" if operator.chunked else "reference") if backend == "auto" else backend

    def launch(kernel: Any, grid: Any) -> Callable[..., None]:
        function = kernel.fn
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        return lambda *args, **options: launched(name)

    with (
        mock.patch.object(dispatch, "backend_for", backend_for),
        mock.patch.object(ops, "backend_for", backend_for),
        mock.patch.object(slots, "is_fused", return_value=True),
        mock.patch.object(populations, "is_fused", return_value=True),
        mock.patch.object(rng, "kernels", return_value=integer_kernels),
        mock.patch.object(automaton, "kernels", return_value=integer_kernels),
        mock.patch.object(KernelInterface, "__getitem__", launch),
        mock.patch.object(InterpretedFunction, "__getitem__", launch),
    ):
        yield


def launches(run: RunSpec, members: int) -> tuple[Counter[str], Counter[str]]:
    """The launches of a training step of so many members, and of drawing data."""
    with mock.patch.object(populations, "is_fused", return_value=True):
        population = Population(run, [run.task], members, torch.device("cpu"))
    population._draw(0)  # a task computes its tables at the first draw

    def count(function: Callable[[], None]) -> Counter[str]:
        seen = Launches()
        with as_on_gpu(lambda name: seen.names.update([name])), FakeTensorMode(allow_non_fake_inputs=True), seen:
            function()
        return seen.names

    return count(population._step), count(lambda: population._draw(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=SEVEN)
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--list", action="store_true")
    options, console = parser.parse_args(), Console()
    table = Table("model", "step", "draw, per step", title=f"kernels of a step of {options.members} members, T = 50")
    for model in options.models:
        run = Case(model, members=64, time=50).spec()
        step, draw = launches(run, options.members)
        ahead = steps_ahead(run.task, run.training, options.members, torch.device("cuda"))
        table.add_row(model, str(step.total()), f"{draw.total() / ahead:.1f}")
        if options.list:
            console.print(model, dict(step.most_common()))
    console.print(table)


if __name__ == "__main__":
    main()
