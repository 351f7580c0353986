"""The numerical settings of a training step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from assay.spec import Training


@contextmanager
def numerics(training: Training, device: torch.device) -> Iterator[None]:
    """Strict float32 or TF32 products, as the spec says; on a GPU only deterministic algorithms.

    Compiled code keeps torch.compile's own choices: deterministic mode would disable some of its optimisations.
    """
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if training.precision == "tf32" else "highest")
    try:
        with _deterministic() if device.type == "cuda" and not training.compile else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Entered on a GPU only: setting this mode imports torch.compile, which takes two seconds."""
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    fill_memory = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*deterministic.*")
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill_memory
