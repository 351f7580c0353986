"""The numerical settings of a training step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from assay.spec import Training


@contextmanager
def numerics(training: Training, device: torch.device) -> Iterator[None]:
    """Strict float32 or TF32 products, as the spec says; on a GPU only deterministic algorithms.

    Compiled code keeps torch.compile's own choices: deterministic mode would disable some of its optimisations.
    """
    precision, deterministic = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    fill_memory = memory.fill_uninitialized_memory
    torch.set_float32_matmul_precision("high" if training.precision == "tf32" else "highest")
    if device.type == "cuda" and not training.compile:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*deterministic.*")
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(deterministic)
        memory.fill_uninitialized_memory = fill_memory
