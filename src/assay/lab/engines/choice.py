"""Which engine carries out the runs of a command, and the plan that suits it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from assay.errors import BadInput, suggestion
from assay.index import Entry
from assay.lab.carry_out import local_engine
from assay.lab.checkpoint import INTERVAL
from assay.lab.device import parse_device
from assay.lab.engines.engine import Engine
from assay.lab.engines.launchers import Launcher
from assay.lab.engines.local_devices import LocalDevices, visible_gpus
from assay.lab.engines.ray_cluster import RayCluster
from assay.lab.engines.slurm_queue import SlurmQueue, sbatch_options
from assay.lab.engines.store_workers import StoreWorkers
from assay.lab.plan import Plan
from assay.lab.plan_file import SavedPlan, saved_plan
from assay.lab.weights import parse_kept
from assay.spec import RunSpec
from assay.store import Store

EngineName = Literal["local", "ray", "slurm"]
SLURM_WORKERS = 4  # jobs of the array, if no number is given


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a command are carried out."""

    device: str = "auto"
    jobs: int | None = None
    slots: int | None = None
    checkpoint: float = INTERVAL
    weights: str = "solved"
    again: bool = False
    engine: str = "local"
    address: str | None = None
    sbatch: tuple[str, ...] = ()

    def require_consistent(self) -> None:
        """BadInput for an unknown engine, or an option that it does not have."""
        if self.engine not in get_args(EngineName):
            raise BadInput(f"unknown engine '{self.engine}'{suggestion(self.engine, get_args(EngineName))}")
        if self.address and self.engine != "ray":
            raise BadInput(f"--address is for --engine ray, not for {self.engine}")
        if self.sbatch and self.engine != "slurm":
            raise BadInput(f"--sbatch is for --engine slurm, not for {self.engine}")
        parse_kept(self.weights)


@contextmanager
def store_plan_and_engine(
    specs: Sequence[RunSpec], path: Path, options: RunOptions
) -> Iterator[tuple[Store, Plan, Engine]]:
    """The store and the plan of a command, and the engine that carries it out, which is connected in this context.

    The store is created last: a command with bad input leaves nothing behind.
    """
    options.require_consistent()
    if options.engine == "ray":
        cluster = RayCluster(_remote_device(options), path, options.address, options.jobs, options.checkpoint)
        cluster.connect()
        try:
            store, device = Store.create(path), torch.device(cluster.device)
            yield store, _plan(specs, store.index(), options, device, cluster.workers, remote=True), cluster
        finally:
            cluster.close()
        return
    if options.engine == "slurm":
        plan, saved = shared_plan(specs, _index(path), options)
        queue = slurm_queue(path, saved.name, options)
        store = Store.create(path)
        store.index()  # what is news from now on has ended since
        with saved.kept_in(path, plan):
            yield store, plan, StoreWorkers(plan, path, queue, _slurm_count(plan, options), saved.earlier)
        return
    device = parse_device(options.device)
    store = Store.create(path)
    gpus = visible_gpus() if device.type == "cuda" else []
    if len(gpus) > 1:
        plan, saved = shared_plan(specs, store.index(), options, len(gpus))
        command = worker_command(store.path, saved.name, "cuda", options.jobs)
        launcher: Launcher = LocalDevices(command, store.path / "logs", gpus)
        with saved.kept_in(store.path, plan):
            yield store, plan, StoreWorkers(plan, store.path, launcher, len(gpus), saved.earlier)
        return
    plan = _plan(specs, store.index(), options, device)
    yield store, plan, local_engine(plan, store, options.checkpoint)


def _index(path: Path) -> Mapping[str, Entry]:
    return Store.open(path).index() if (path / Store.MARK).exists() else {}


def _plan(
    specs: Sequence[RunSpec],
    index: Mapping[str, Entry],
    options: RunOptions,
    device: torch.device,
    workers: int | None = None,
    remote: bool = False,
) -> Plan:
    weights = parse_kept(options.weights)
    return Plan(specs, index.values(), device, options.jobs, options.slots, weights, options.again, workers, remote)


def shared_plan(
    specs: Sequence[RunSpec], index: Mapping[str, Entry], options: RunOptions, workers: int | None = None
) -> tuple[Plan, SavedPlan]:
    """A plan whose runs are carried out by workers that lease them, and how it is saved for them."""
    device = torch.device(_remote_device(options))
    workers = workers or slurm_workers(options) * slurm_cores(options)
    plan = _plan(specs, index, options, device, workers, remote=True)
    return plan, saved_plan(plan, index, options.checkpoint, workers)


def preview(specs: Sequence[RunSpec], store: Path, options: RunOptions) -> str:
    """What would be submitted to Slurm; nothing is written."""
    options.require_consistent()
    if options.engine != "slurm":
        raise BadInput(f"--dry-run is for --engine slurm, not for {options.engine}")
    plan, saved = shared_plan(specs, _index(store), options)
    return slurm_queue(store, saved.name, options).preview(_slurm_count(plan, options))


def worker_command(store: Path, plan: str, device: str, jobs: int | None) -> list[str]:
    command = [sys.executable, "-m", "assay", "work", str(store.resolve()), "--plan", plan, "--device", device]
    return command + (["--jobs", str(jobs)] if jobs else [])


def slurm_queue(store: Path, plan: str, options: RunOptions) -> SlurmQueue:
    device = _remote_device(options)
    jobs = slurm_cores(options) if device == "cpu" else None
    command = worker_command(store, plan, device, jobs)
    return SlurmQueue(command, store.resolve() / "logs", sbatch_options(options.sbatch), device)


def slurm_workers(options: RunOptions) -> int:
    """The number of jobs of the array."""
    return options.jobs or SLURM_WORKERS


def _slurm_count(plan: Plan, options: RunOptions) -> int:
    """No more workers than there are runs."""
    return max(1, min(slurm_workers(options), len(plan.pending)))


def slurm_cores(options: RunOptions) -> int:
    """The cores of each job."""
    text = sbatch_options(options.sbatch).get("cpus-per-task", "1")
    if not text.isdigit() or not int(text):
        raise BadInput(f"sbatch option cpus-per-task={text} is not valid: write a number of cores")
    return int(text)


def _remote_device(options: RunOptions) -> str:
    """The device of the workers; `auto` is a GPU only where one was asked for, since this machine may have none."""
    if options.device == "auto":
        return "cuda" if any("gpu" in option for option in options.sbatch) else "cpu"
    if options.device == "cuda":
        return "cuda"
    return parse_device(options.device).type
