"""How the numbers of a step come about."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from assay.spec import Training


@contextmanager
def numerics(how: Training, device: torch.device) -> Iterator[None]:
    """float32 multiplied strictly or in TF32, as the spec says; on a GPU nothing whose order is left to chance.

    (A compiler makes its own choices, and worse ones where it is told so.)
    """
    before = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
    memory: Any = torch.utils.deterministic
    filling = memory.fill_uninitialized_memory
    torch.set_float32_matmul_precision("high" if how.precision == "tf32" else "highest")
    if device.type == "cuda" and not how.compile:
        torch.use_deterministic_algorithms(True, warn_only=True)
        memory.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*deterministic.*")
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.use_deterministic_algorithms(before[1])
        memory.fill_uninitialized_memory = filling
