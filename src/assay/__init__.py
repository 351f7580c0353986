"""Assay measures what a sequence architecture can compute.

The public names, imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.api import Results, compare, load, prove, size
    from assay.cards.making import card
    from assay.errors import BadInput
    from assay.lab import run
    from assay.lab.weights import load_model
    from assay.models import named_model
    from assay.models.causal import Causal, state_bits
    from assay.models.skeleton import Architecture, Foreign, Stack
    from assay.record import Record
    from assay.rng import Rng
    from assay.spec import RunSpec, run_spec
    from assay.store import Store
    from assay.tasks import named_task
    from assay.tasks import named_task as task
    from assay.tasks.task import Batch, Task

_WHERE = {
    "Architecture": "models.skeleton",
    "BadInput": "description",
    "Batch": "tasks.task",
    "Causal": "models.causal",
    "Foreign": "models.skeleton",
    "Record": "record",
    "Rng": "rng",
    "Results": "api",
    "RunSpec": "spec",
    "Stack": "models.skeleton",
    "Store": "store",
    "Task": "tasks.task",
    "card": "cards.making",
    "compare": "api",
    "load": "api",
    "load_model": "lab.weights",
    "named_model": "models",
    "prove": "api",
    "run": "lab",
    "run_spec": "spec",
    "named_task": "tasks",
    "size": "api",
    "state_bits": "models.causal",
    "task": "tasks:named_task",
}

__all__ = [
    "Architecture",
    "BadInput",
    "Batch",
    "Causal",
    "Foreign",
    "Record",
    "Results",
    "Rng",
    "RunSpec",
    "Stack",
    "Store",
    "Task",
    "card",
    "compare",
    "load",
    "load_model",
    "named_model",
    "named_task",
    "prove",
    "run",
    "run_spec",
    "size",
    "state_bits",
    "task",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(importlib.import_module(f"assay.{module}"), attribute or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
