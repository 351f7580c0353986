"""Carrying out a plan: this process leases runs, an engine carries them out, and their records go to the store."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from assay.lab.checkpoint import INTERVAL, Checkpoints
from assay.lab.engines.engine import Engine, Event, OnEvent
from assay.lab.engines.local_processes import LocalProcesses
from assay.lab.engines.shared_device import SharedDevice
from assay.lab.engines.this_process import ThisProcess
from assay.lab.execute import failure_record
from assay.lab.interrupts import sleep_unless_stopped, stop_on_signal
from assay.lab.leases import MOST_DEATHS, Leases
from assay.lab.member import Member
from assay.lab.plan import Group, Plan, sized
from assay.lab.plan_file import note_runs
from assay.lab.status import EvaluationStatus, Status, plain_status
from assay.record import Record
from assay.spec import RunSpec
from assay.store import Store, StoreUnavailable

T = TypeVar("T")

PATIENCE = 600.0  # seconds that a record waits for a store that cannot be written
POLL_SECONDS = 1.0  # between two looks at a store that cannot be written, or at the work of other processes


def carry_out(
    plan: Plan,
    store: Store,
    engine: Engine,
    on_event: OnEvent = lambda _: None,
    leases: Leases | None = None,
    wait: bool = True,
) -> list[Record]:
    """Carry out the pending runs of a plan, storing each record as it arrives; returns the records of all its runs.

    Several processes can carry out plans on one store: runs that another one has leased are left to it. With `wait`,
    this returns when these have ended as well, and takes over those of a process that dies. When interrupted, runs
    under way are saved, and the same command continues them.
    """
    work = Work(plan, store, leases or Leases(store.path, plan.device.type), on_event)
    runs_file = note_runs(store.path, plan.specs) if plan.pending else None
    with work.leases:
        while plan.pending:
            before = len(plan.pending)
            engine.run(work.groups(), work.receive)
            if not work.wait_for_others(wait):
                break
            if len(plan.pending) == before:  # what seemed to be free was not
                sleep_unless_stopped(POLL_SECONDS)
    if runs_file and not plan.pending:
        runs_file.unlink(missing_ok=True)
    Checkpoints(store.path).prune(plan.finished)
    return store.select(plan.specs)


class Work:
    """The runs of a plan that this process leases, one group after the other."""

    def __init__(self, plan: Plan, store: Store, leases: Leases, on_event: OnEvent) -> None:
        self.plan, self.store, self.leases, self.on_event = plan, store, leases, on_event
        self.verdicts: Counter[str] = Counter()
        self.statuses: dict[int, Status | EvaluationStatus] = {}
        self.lock = threading.RLock()  # events come from threads while groups are leased
        leases.activity = self._activity

    def groups(self) -> Iterator[Group]:
        """The groups of the plan, each when an engine asks for it, without runs that others carry out.

        A suspect, during which several processes have died, is a group of its own at the end.
        """
        suspects = list[Group]()
        for group in self.plan.groups():
            if leased := self._leased(group, suspects):
                yield self._sized(leased)
        for group in suspects:
            if self._lease_suspect(group.specs[0]):
                yield self._sized(group)

    def _sized(self, group: Group) -> Group:
        """A group with its slots; other machines find them for themselves."""
        return group if self.plan.remote else sized(group, self.plan.device, self.plan.memory_limit)

    def _leased(self, group: Group, suspects: list[Group]) -> Group | None:
        """The runs of a group that could be leased, if any; each suspect is added to a list."""
        with self.lock:
            specs = {spec.digest: spec for spec in group.specs}
            leases, suspect = self._when_available(lambda: self.leases.lease(specs))
            suspects += [replace(group, specs=(specs[digest],)) for digest in suspect]
            if leases:
                self._read_news()  # another process may have ended a run before it was leased here
            pending = [lease.digest for lease in leases if lease.digest in self.plan.pending]
            self.leases.release({lease.digest for lease in leases} - {*pending})
            return replace(group, specs=tuple(specs[digest] for digest in pending)) if pending else None

    def _lease_suspect(self, spec: RunSpec) -> bool:
        """Lease a run during which processes have died; a run that was the end of too many counts as failed."""
        with self.lock:
            lease = self._when_available(lambda: self.leases.lease_suspect(spec.digest))
            if lease is None:
                return False
            self._read_news()
            if spec.digest not in self.plan.pending:
                self.leases.release([spec.digest])
                return False
            if lease.deaths >= MOST_DEATHS:
                error = f"{lease.deaths} processes died while they carried it out, one after the other"
                self.receive(Event(record=failure_record(Member(spec), error, self.plan.device)))
                return False
            return True

    def receive(self, event: Event) -> None:
        """Handle an event of the engine: a record is stored, unless another process has taken the run over."""
        with self.lock:
            record = event.record
            if record is None:
                self._note(event)
            elif event.stored or self._when_available(lambda: self._store(record)):
                self.plan.add(record)
                self.leases.release([record.digest])
                self.verdicts[record.verdict] += 1
            else:
                self.leases.release([record.digest])
                return
            self.on_event(event)

    def _note(self, event: Event) -> None:
        """Keep the last status of each worker, for the heartbeat."""
        if event.status:
            self.statuses[event.worker] = event.status
        elif not event.message:
            self.statuses.pop(event.worker, None)

    def _activity(self) -> dict[str, Any]:
        """What the heartbeat says of this process's work: runs under way by task and model, and how many have ended."""
        now, groups = time.monotonic(), dict[tuple[str, str], list[float]]()
        for digest, lease in list(self.leases.held.items()):
            if spec := self.plan.specs.get(digest):
                groups.setdefault((spec.task.kind, spec.model.name), []).append(now - lease.since)
        under_way = [
            {"task": task, "model": model, "runs": len(seconds), "seconds": round(max(seconds), 1)}
            for (task, model), seconds in groups.items()
        ]
        statuses = {number: plain_status(status) for number, status in list(self.statuses.items())}
        return {"under_way": under_way, "ended": dict(self.verdicts), "statuses": statuses}

    def _store(self, record: Record) -> bool:
        """Store a record; False if another process took the run over, because this one seemed to be dead."""
        holds = self.leases.holds(record.digest)
        if holds is None:
            self._read_news()
        if holds is False or record.digest not in self.plan.pending:
            return False
        self.store.add(record)
        return True

    def _when_available(self, action: Callable[[], T]) -> T:
        """The result of an action; while the store cannot be written, it is tried again."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return action()
            except StoreUnavailable as error:
                if time.monotonic() > deadline:
                    raise
                self.on_event(Event(message=f"{error}; trying again"))
                sleep_unless_stopped(POLL_SECONDS)

    def _read_news(self) -> None:
        """Learn of runs that other processes have ended."""
        for entry in self.store.news():
            if entry.digest in self.plan.pending:
                self.receive(Event(record=self.store.load(entry), stored=True))

    def wait_for_others(self, wait: bool) -> bool:
        """Whether runs are left that can be leased here; with `wait`, after those that others hold have ended.

        Without it, this only waits until every other holder has shown that it is alive, or turns out to be dead.
        """
        with stop_on_signal() as poll:
            while self.plan.pending:
                poll()
                self._read_news()
                if not self.plan.pending:
                    break
                others = self.leases.others()
                holders = {digest: others.get(digest) for digest in self.plan.pending}
                names = sorted({*filter(None, holders.values())})
                if None in holders.values() or any(not self.leases.is_alive(name) for name in names):
                    return True
                if not wait and all(self.leases.has_beaten(name) for name in names):
                    return False
                self.on_event(
                    Event(message=f"waiting for runs of other processes ({len(holders)} left): {', '.join(names)}")
                )
                sleep_unless_stopped(POLL_SECONDS)
        return False


def local_engine(plan: Plan, store: Store, checkpoint_interval: float = INTERVAL) -> Engine:
    """On a GPU this process, with a stream for each group; on a CPU worker processes if the plan has several jobs."""
    if plan.device.type == "cuda":
        return SharedDevice(plan.device, plan.jobs, plan.memory_limit, store.path, checkpoint_interval)
    if plan.jobs > 1:
        return LocalProcesses(plan.device, plan.jobs, store.path, checkpoint_interval)
    return ThisProcess(plan.device, store.path, checkpoint_interval)
