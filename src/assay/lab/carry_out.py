"""Carrying out a plan: an engine runs its groups, and this process alone writes their records to the store."""

from __future__ import annotations

from assay.lab.checkpoint import INTERVAL, Checkpoints
from assay.lab.engines.engine import Engine, Event, OnEvent
from assay.lab.engines.local_processes import LocalProcesses
from assay.lab.engines.shared_device import SharedDevice
from assay.lab.engines.this_process import ThisProcess
from assay.lab.plan import Plan
from assay.record import Record
from assay.store import Store


def carry_out(plan: Plan, store: Store, engine: Engine, on_event: OnEvent = lambda _: None) -> list[Record]:
    """Carry out the pending runs of a plan, storing each record as it arrives; returns the records of all its runs.

    When interrupted, runs under way are saved, and the same command continues them.
    """

    def receive(event: Event) -> None:
        if event.record:
            store.add(event.record)
            plan.add(event.record)
        on_event(event)

    engine.run(plan.groups(), receive)
    Checkpoints(store.path).prune(plan.finished)
    return plan.records


def local_engine(plan: Plan, store: Store, checkpoint_interval: float = INTERVAL) -> Engine:
    """On a GPU this process, with a stream for each group; on a CPU worker processes if the plan has several jobs."""
    if plan.device.type == "cuda":
        return SharedDevice(plan.device, plan.jobs, plan.memory_limit, store.path, checkpoint_interval)
    if plan.jobs > 1:
        return LocalProcesses(plan.device, plan.jobs, store.path, checkpoint_interval)
    return ThisProcess(plan.device, store.path, checkpoint_interval)
