"""Which backend an operator runs with, and how a call gets there."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from assay.errors import BadInput, suggestion
from assay.ops.kernel import Kernel
from assay.ops.operator import Checked, Flag, Operator, TensorMeta, state_dtype

Backend = Literal["auto", "reference", "chunked", "cpu", "gpu"]
BACKENDS = get_args(Backend)
LIBRARIES = {"cpu": "numba", "gpu": "triton"}  # that the kernels of a backend are written with
INSTALLED = {library: importlib.util.find_spec(library) is not None for library in LIBRARIES.values()}
LONG = sys.maxsize  # a length from which every kernel is worth its while

OPERATORS: dict[str, Operator] = {}
FUSIONS: dict[str, Operator] = {}  # what models compute around the recurrences, each in one kernel on a GPU
KERNELS: dict[tuple[str, str], Kernel] = {}  # by operator and backend


def define(operator: Operator, registry: dict[str, Operator] = OPERATORS) -> Operator:
    """Register an operator and its kernels."""
    registry[operator.name] = operator
    KERNELS.update({(operator.name, backend): Kernel(operator, backend) for backend in operator.kernels})
    return operator


def call(operator: Operator, *arguments: Any, backend: Backend, **flags: Flag) -> tuple[Tensor, ...]:
    """Check the arguments of the public function and run the operator: its output, then its final states."""
    inputs = operator.unpack(arguments)
    check = _check if not torch.compiler.is_compiling() else _check.__wrapped__
    first = next(x for x in inputs.values() if x is not None)
    checked = check(operator, *(None if x is None else TensorMeta(x.shape, x.dtype, x.device) for x in inputs.values()))
    tensors = {
        name: first.new_zeros(checked.missing[name], dtype=state_dtype(first.dtype)) if x is None else x
        for name, x in inputs.items()
    }
    chosen = backend_for(operator.name, backend, first.device, checked.size, checked.time)
    outputs = _run(operator, chosen, tensors, flags)
    if not operator.states:
        return outputs
    results = dict(zip(operator.outputs, outputs, strict=True))
    states = (
        results[name][:, :, -1].to(state_dtype(first.dtype)) if name == next(iter(results)) else results[name]
        for name in operator.states
    )
    return outputs[0], *states


@lru_cache(4096)  # the same shapes come again and again
def _check(operator: Operator, *inputs: TensorMeta | None) -> Checked:
    return operator.check(dict(zip(operator.inputs, inputs, strict=True)))


def _run(operator: Operator, backend: str, inputs: dict[str, Tensor], flags: dict[str, Flag]) -> tuple[Tensor, ...]:
    """The operator's outputs."""
    if backend == "gpu":
        return KERNELS[operator.name, backend](inputs, **flags)
    dtype = next(x.dtype for name, x in inputs.items() if name not in operator.integers)
    wide = {name: x.to(state_dtype(x.dtype)) for name, x in inputs.items()}  # only the gpu kernels read bfloat16
    if backend == "cpu":
        output, *states = KERNELS[operator.name, backend](wide, **flags)
    elif backend == "chunked" and operator.chunked is not None:
        output, *states = operator.chunked(*wide.values(), **flags)
    else:
        output, *states = operator.reference(*wide.values(), **flags)
    return output.to(dtype), *states


# -- the choice of a backend ---------------------------------------------------------------------------------------


def backend_for(name: str, backend: Backend, device: torch.device, size: int = 1, time: int = LONG) -> str:
    """The backend that an operator runs with on a device, at a head size and a length (without one, on long inputs);
    BadInput if the requested one cannot run."""
    if backend not in BACKENDS:
        raise BadInput(f"unknown backend {backend!r}{suggestion(str(backend), BACKENDS)}")
    if backend != "auto":
        if problem := _problem(name, backend, device, size):
            raise BadInput(problem)
        return backend
    operator = _definition(name)
    kernel = "gpu" if device.type == "cuda" else device.type
    fuses = operator.fusible and torch.compiler.is_compiling()
    slower = time < operator.shortest.get(kernel, 1) or size > operator.widest.get(kernel, size)
    if kernel in operator.kernels and not fuses and not slower and not _problem(name, kernel, device, size):
        return kernel
    return "chunked" if operator.chunked else "reference"


def _problem(name: str, backend: str, device: torch.device, size: int) -> str | None:
    """Why an operator cannot run with a backend, if it cannot."""
    operator = _definition(name)
    if backend == "chunked":
        return None if operator.chunked else f"{name} has no chunked form; its backends are: {_backends(operator)}"
    if backend not in LIBRARIES:
        return None
    if backend not in operator.kernels:
        return f"{name} has no {backend} kernel; its backends are: {_backends(operator)}"
    library = LIBRARIES[backend]
    if not is_installed(library):
        return f"backend {backend!r} needs {library}, which is not installed; backend='auto' does without"
    wanted = "cuda" if backend == "gpu" and not _interpreted() else "cpu"
    if device.type != wanted:
        return f"backend {backend!r} takes {wanted} tensors and these are on {device}; move them or use backend='auto'"
    if backend == "gpu" and size > operator.head_limit:
        return (
            f"{name}: the gpu kernel takes head sizes from 1 to {operator.head_limit} and this is {size}; "
            "use backend='reference'"
        )
    return None


def _definition(name: str) -> Operator:
    return OPERATORS[name] if name in OPERATORS else FUSIONS[name]


def _backends(operator: Operator) -> str:
    chunked = ["chunked"] if operator.chunked else []
    return ", ".join(["auto", "reference", *chunked, *sorted(operator.kernels)])


def _interpreted() -> bool:
    """Whether Triton interprets its kernels on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_installed(library: str) -> bool:
    return INSTALLED[library]
