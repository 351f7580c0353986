"""Compiling the GPU kernels of a training step before the first step, many at a time."""

from __future__ import annotations

from concurrent.futures import wait

import torch

from assay.lab.compilers import compilers
from assay.lab.numerics import numerics
from assay.lab.tracing import trace_step
from assay.spec import RunSpec


def compile_kernels(spec: RunSpec, slots: int, device: torch.device) -> int:
    """Compile the kernels of a training step; returns the number of distinct operator calls.

    Errors are ignored here: the step itself will meet and report them.
    """
    calls = trace_step(spec, slots, device).calls
    memory = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    with numerics(spec.training, device):
        products = torch.get_float32_matmul_precision()
        compiling = [compilers.compile(call, products, device.type, memory) for call in calls]
        wait([future for future in compiling if future])
    return len(calls)
