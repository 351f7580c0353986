"""Training and testing: plans, engines, populations, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from assay.models.skeleton import Architecture
    from assay.record import Record
    from assay.tasks.task import Task


def run(
    task: str | Task, model: str | Architecture | Callable[..., nn.Module], *, device: str = "auto", **options: Any
) -> Record:
    """Train and test one model on one task in this process and return the record; nothing is stored.

    `model` is a name, an architecture, or any function or class from (vocab, features, answers) to a module that maps
    tokens to logits. The options are those of `run_spec`. An error in the module is raised.
    """
    from assay.lab.device import parse_device
    from assay.lab.execute import execute
    from assay.spec import run_spec

    return execute(run_spec(task, model, **options), parse_device(device), raise_errors=True)
