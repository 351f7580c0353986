"""What `assay certify` is given: a run of a store, all runs of a store, or a module with a file of weights."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from assay.certify.certificate import certificate
from assay.certify.check import check
from assay.certify.result import Result
from assay.certify.seal import unsealed
from assay.certify.statement import problem_of, require_valid, sentence_of
from assay.certify.table import TaskTable
from assay.errors import BadInput, in_one_line
from assay.lab.execute import one_thread
from assay.lab.integrity import examine
from assay.lab.weights import load_model, load_tensors
from assay.models import named_model
from assay.models.skeleton import Architecture
from assay.record import Certified, Record
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.store import Store, write_synced
from assay.tasks import named_task
from assay.tasks.task import Task


@dataclass(frozen=True)
class Candidate:
    """A trained model and its task, with the record of its run if there is one."""

    model: nn.Module
    architecture: Architecture
    task: Task
    record: Record | None = None
    store: Path | None = None  # where the record is kept

    @property
    def name(self) -> str:
        return run_name(self.record) if self.record else f"{self.architecture.name} on {self.task.kind}"


def run_name(record: Record) -> str:
    """Which run this is, for people."""
    return f"{record.model} on {record.task}, seed {record.seed} ({record.digest[:8]})"


def runs_of(path: Path, task: str | None) -> list[Record]:
    """The runs of a store that have weights, all or those of one task."""
    store = Store.open(path)
    records = [record for record in store.records() if task is None or record.task == task]
    records = [record for record in records if store.weights_file(record.digest)]
    if not records:
        of_task = f" of {task}" if task else ""
        raise BadInput(f"{path} has no run{of_task} with weights; run them with --weights all --again")
    return records


def candidate_of(record: Record) -> Candidate:
    spec = RunSpec(**record.spec)
    return Candidate(load_model(record), spec.model, spec.task, record, record.origin)


def module_candidate(path: str, task: str, weights: Path, options: dict[str, dict[str, Any]]) -> Candidate:
    """A user's module with the weights of a safetensors file, or a named model; BadInput if it sees the future."""
    description, architecture = named_task(task, **options["task"]), named_model(path, **options["model"])
    model = architecture.build(*description.shape, Rng.seeded(0, "initial"))
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"cannot read the weights in {weights}: {str(error).splitlines()[0]}") from None
    load_tensors(model, tensors, path)
    examine(model, run_spec(description, architecture), torch.device("cpu"), modes=("eval",))
    return Candidate(model.eval(), architecture, description)


def certified(candidate: Candidate, table: TaskTable, result: Result, folder: Path) -> Certified:
    """A result with its certificate in a folder; the checker has to agree.

    A search that came less far than an earlier one changes nothing: the earlier result is returned.
    """
    earlier = _earlier(candidate, table, result, folder)
    if earlier is not None and _lengths(earlier) > _lengths(result):
        return earlier
    if not result.has_certificate:
        return result.certified(table.symbols)
    name = candidate.record.digest if candidate.record else f"{candidate.architecture.name}-{candidate.task.kind}"
    file = f"{name}-{result.method}-{result.numbers}.certificate".replace(":", "-")
    data = certificate(result, candidate.model, candidate.architecture, candidate.task, table)
    write_synced(folder / file, data, parents=True)
    problem = check_file(folder / file, own_module=True)[0]
    if problem:  # never say more than the checker does
        (folder / file).unlink()
        raise BadInput(f"the checker does not confirm {result.outcome} by {result.method}: {problem}")
    return result.certified(table.symbols, file)


def _earlier(candidate: Candidate, table: TaskTable, result: Result, folder: Path) -> Certified | None:
    """The stored result of the same method, numbers and inputs, if its certificate is still there."""
    for entry in candidate.record.certified if candidate.record else ():
        if entry.certificate and (entry.method, entry.numbers) == (result.method, result.numbers):
            with suppress(BadInput):
                return entry if unsealed(folder / entry.certificate)[0]["left_out"] == table.note else None
    return None


def _lengths(result: Result | Certified) -> float:
    """Up to which length the network is decided."""
    if result.outcome == "refuted" or (result.outcome == "proved" and result.length is None):
        return math.inf
    return (result.length or 0) if result.outcome == "proved" else 0


def check_file(path: Path, own_module: bool = False) -> tuple[str, str]:
    """Why a certificate does not hold (nothing, if it holds), and what it states in words.

    The code of a user's own module is run only with `own_module`.
    """
    statement, tensors = unsealed(path)
    try:
        require_valid(statement, tensors, own_module)
        with one_thread():
            problem = problem_of(statement, tensors) or check(statement, tensors)
        return problem, sentence_of(statement)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, ArithmeticError) as error:
        raise BadInput(f"{path} cannot be checked: {in_one_line(error)}") from None


def keep(candidate: Candidate, results: list[Certified]) -> None:
    """Store the record of a run with new results, which replace older ones of the same method and numbers."""
    record = candidate.record
    if record is None or candidate.store is None or not candidate.store.is_dir():
        return
    keys = {(result.method, result.numbers) for result in results}
    others = [result for result in record.certified if (result.method, result.numbers) not in keys]
    Store.create(candidate.store).add(record.model_copy(update={"certified": (*others, *results)}))
