"""What `assay certify` is given: a run of a store, all runs of a store, or a module with a file of weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from assay.certify.certificate import certificate
from assay.certify.check import check
from assay.certify.result import Result
from assay.certify.seal import unsealed
from assay.certify.statement import problem_of, require_valid
from assay.certify.table import TaskTable
from assay.description import BadInput, in_one_line
from assay.lab.execute import one_thread
from assay.lab.weights import load_model
from assay.models import named_model
from assay.models.skeleton import Architecture
from assay.record import Certified, Record
from assay.rng import Rng
from assay.spec import RunSpec
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
        seed = f", seed {self.record.seed}" if self.record else ""
        return f"{self.architecture.name} on {self.task.kind}{seed}"


def runs_of(store: Path, task: str | None) -> list[Record]:
    """The runs of a store that have weights, all or those of one task."""
    opened = Store.open(store)
    records = [record for record in opened.records() if task is None or record.task == task]
    kept = [record for record in records if opened.weights_file(record.digest)]
    if not kept:
        which = f" of {task}" if task else ""
        raise BadInput(f"{store} has no run{which} with weights; run them with --weights all --again")
    return kept


def candidate_of(record: Record) -> Candidate:
    spec = RunSpec(**record.spec)
    return Candidate(load_model(record), spec.model, spec.task, record, record.origin)


def module_candidate(path: str, task: str, weights: Path, options: dict[str, dict[str, Any]]) -> Candidate:
    """A user's module with the weights of a safetensors file, or a named model."""
    described, architecture = named_task(task, **options["task"]), named_model(path, **options["model"])
    model = architecture.build(*described.shape, Rng.seeded(0, "initial"))
    try:
        model.load_state_dict(load_file(weights))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise BadInput(f"{weights} does not hold the weights of {path}: {in_one_line(error)}") from None
    return Candidate(model.eval(), architecture, described)


def certified(candidate: Candidate, table: TaskTable, result: Result, folder: Path) -> Certified:
    """A result with its certificate in a folder; the checker has to agree."""
    if not result.has_certificate:
        return result.certified(table.symbols)
    name = candidate.record.digest if candidate.record else candidate.architecture.name.replace(":", "-")
    file = f"{name}-{result.method}-{result.numbers.replace(':', '-')}.certificate"
    data = certificate(result, candidate.model, candidate.architecture, candidate.task, table)
    write_synced(folder / file, data)
    problem = check_file(folder / file, own_module=True)[0]
    if problem:  # never say more than the checker does
        (folder / file).unlink()
        raise BadInput(f"the checker does not confirm {result.outcome} by {result.method}: {problem}")
    return result.certified(table.symbols, file)


def check_file(path: Path, own_module: bool = False) -> tuple[str, str]:
    """Why a certificate does not hold (nothing, if it holds), and what it states in words.

    The code of a user's own module is run only with `own_module`.
    """
    says, tensors = unsealed(path)
    try:
        require_valid(says, tensors, own_module)
        with one_thread():
            problem = problem_of(says, tensors) or check(says, tensors)
        fixed, word = says["fixed"], says["word"]
        machine = f"with its state rounded to fixed:{fixed[0]}.{fixed[1]} " if fixed else ""
        right = "of every length" if says["length"] is None else f"up to {says['length']} tokens"
        found = f"wrong on a word of {len(word)} tokens" if says["outcome"] == "refuted" else f"right on inputs {right}"
        return problem, f"{says['model']['name']} {machine}is {found} of {says['task']['kind']}"
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError, ArithmeticError) as error:
        raise BadInput(f"{path} cannot be checked: {in_one_line(error)}") from None


def keep(candidate: Candidate, results: list[Certified]) -> None:
    """Store the record of a run with new results, which replace older ones of the same method and numbers."""
    record = candidate.record
    if record is None or candidate.store is None or not candidate.store.is_dir():
        return
    new = {(result.method, result.numbers) for result in results}
    kept = [result for result in record.certified if (result.method, result.numbers) not in new]
    Store.create(candidate.store).add(record.model_copy(update={"certified": (*kept, *results)}))
