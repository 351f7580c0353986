"""Certificates: one file with the weights, the task's table, and what is stated about them."""

from __future__ import annotations

import torch
from torch import nn

from assay.certify.machine import BLOCK
from assay.certify.result import Result
from assay.certify.seal import sealed
from assay.certify.table import TaskTable
from assay.lab.provenance import provenance
from assay.models.skeleton import Architecture
from assay.tasks.task import Task


def certificate(result: Result, model: nn.Module, architecture: Architecture, task: Task, table: TaskTable) -> bytes:
    """The bytes of a certificate, which `assay check` can check alone."""
    origin = provenance(torch.device("cpu"))
    statement = {
        "task": task.plain(),
        "model": architecture.plain(),
        "shape": list(task.shape),
        "method": result.method,
        "outcome": result.outcome,
        "fixed": [int(bits) for bits in result.numbers.removeprefix("fixed:").split(".")] if result.rounded else [],
        "block": BLOCK,
        "length": result.length,
        "pairs": result.states,
        "pairs_sha256": result.pairs_digest,
        "word": list(result.word),
        "detail": result.detail,
        "left_out": table.note,
        "commit": origin["commit"],
        "versions": origin["versions"],
    }
    tensors = {f"weights.{name}": value.cpu().clone().contiguous() for name, value in model.state_dict().items()}
    return sealed(statement, tensors | {"moves": table.moves.cpu(), "answers": table.answers.cpu()})
