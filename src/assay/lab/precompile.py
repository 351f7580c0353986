"""Compiling the GPU kernels of a training step before the first step, on as many threads as there are cores.

The operators of a step are found by tracing it. Each is then called once with zeros of the same shapes, which compiles
its kernels.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch.utils import _pytree as pytree

from assay.lab.numerics import numerics
from assay.lab.tracing import OperatorCall, TensorType, trace_step
from assay.spec import RunSpec


def compile_kernels(spec: RunSpec, slots: int, device: torch.device) -> int:
    """Compile the kernels of a training step; returns the number of distinct operator calls.

    Errors are ignored here: the step itself will meet and report them.
    """
    calls = trace_step(spec, slots, device).calls
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def zeros(x: Any) -> Any:
        return torch.zeros(x[0], dtype=x[1], device=device) if isinstance(x, TensorType) else x

    def call(operator_call: OperatorCall) -> None:
        operator, arguments = operator_call
        on_stream = torch.cuda.stream(stream) if stream else nullcontext()
        with suppress(Exception), torch.no_grad(), on_stream:
            operator(*pytree.tree_map(zeros, arguments, is_leaf=lambda x: isinstance(x, TensorType)))

    with numerics(spec.training, device), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(call, calls))
    return len(calls)
