"""Compiling the GPU kernels of a training step before the first step, many at a time."""

from __future__ import annotations

import json
from concurrent.futures import wait
from contextlib import suppress
from typing import Any

import torch

from assay.lab.compilers import compilers
from assay.lab.numerics import numerics
from assay.lab.slots import ParameterCopy, Slots
from assay.lab.stacking import Layout
from assay.lab.tracing import calls_of_tests, trace_step
from assay.models.skeleton import Stack
from assay.spec import RunSpec

EXACT_SIZE = 256  # up to which a size may be one of a head or a layer, and a constant of its kernels


def compile_kernels(spec: RunSpec, slots: int, device: torch.device) -> int:
    """Compile the kernels of training and testing; returns the number of distinct operator calls.

    Errors are ignored here: the step itself will meet and report them.
    """
    calls = dict.fromkeys(trace_step(spec, slots, device).calls)
    if isinstance(spec.model, Stack):
        tests = calls_of_tests(spec.task, spec.model, spec.training.lengths, spec.testing, device)
        calls |= dict.fromkeys({_kernels(call): call for call in tests}.values())
    memory = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 0
    with numerics(spec.training, device):
        products = torch.get_float32_matmul_precision()
        compiling = [compilers.compile(call, products, device.type, memory) for call in calls]
        _compile_update(slots, device)
        wait([future for future in compiling if future])
    return len(calls)


def _kernels(call: str) -> str:
    """What decides about the kernels of a call: of large sizes Triton asks only whether 16 divides them."""

    def coarse(tensor: dict[str, Any]) -> dict[str, Any]:
        return tensor | {"shape": [size if size <= EXACT_SIZE else size % 16 == 0 for size in tensor["shape"]]}

    return json.dumps(json.loads(call, object_hook=coarse))


def _compile_update(slots: int, device: torch.device) -> None:
    """The kernels of the update are the same for all sizes."""
    row, table = torch.zeros(1, Layout.ALIGNMENT, device=device), torch.zeros(1, 2, dtype=torch.int64, device=device)
    copy = ParameterCopy(torch.zeros_like(row[0]), table) if slots > 1 else None
    with suppress(Exception):
        g, theta, m, v = (torch.zeros_like(row) for _ in range(4))
        Slots.empty(1, device).update(row[:, 0], g, theta, m, v, copy)
