"""The engine that carries out groups on a Ray cluster, or on one that it starts on this machine.

One actor per GPU or core; it streams records and checkpoints to this process, which alone writes to the store. Actors
are never restarted by Ray: this process knows what a dead one had, and gives it to another one together with its last
checkpoints.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.errors import BadInput
from assay.lab.checkpoint import Checkpoints
from assay.lab.engines.engine import Event, OnEvent
from assay.lab.engines.ray_code import check_code, user_files
from assay.lab.engines.ray_connection import RayConnection, import_ray
from assay.lab.engines.ray_failures import cause_of, check_start, is_lost
from assay.lab.engines.ray_worker import GroupWorker, Message
from assay.lab.execute import failure_record
from assay.lab.interrupts import stop_on_signal
from assay.lab.member import Member
from assay.lab.plan import Group
from assay.lab.provenance import provenance
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record
from assay.spec import RunSpec
from assay.store import write_synced

POLL_SECONDS = 0.2  # between two looks for an interrupt
RESOURCES_SECONDS = 2.0  # between two looks at the size of the cluster
SAVE_TIMEOUT = 60.0  # seconds that workers are given to save their members
UNREAD = 16  # batches of messages that a worker may be ahead of this process
MOST_DEATHS = 3  # of workers that carry out one run alone, without progress between them; also of workers that start


class RayCluster(RayConnection):
    """Carries out groups on the cluster that it is connected to."""

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        with stop_on_signal() as poll:
            session = Session(self, groups, on_event)
            try:
                while session.has_work:
                    poll()
                    session.step()
            finally:
                try:
                    session.stop()
                finally:
                    session.end_workers()


@dataclass(eq=False)
class Worker:
    """An actor, seen from here. Until it has described itself it has no `host` and gets no group."""

    actor: Any
    host: str = ""
    node: str = ""  # Ray's name for it
    memory: float = 0.0  # that was free on its node when it started, divided by the workers there
    provenance: dict[str, Any] = field(default_factory=dict)
    assignments: set[Assignment] = field(default_factory=set)
    death: str | None = None  # its cause, empty if nobody is to blame


@dataclass(eq=False)
class Assignment:
    """A group that a worker has, and the stream of messages that come of it."""

    number: int  # of the worker in events
    worker: Worker
    group: Group
    messages: Any
    remaining: dict[str, RunSpec]
    slots: int  # with which the worker carries it out, as far as known
    unread: deque[Message] = field(default_factory=deque)
    unstored: bool = False  # whether a record could not be stored: what had been saved of its run must be kept


class Session:
    """One call of `run`: the groups that wait, the workers, and what they have."""

    def __init__(self, engine: RayCluster, groups: Iterable[Group], on_event: OnEvent) -> None:
        self.ray, self.engine, self.on_event = import_ray(), engine, on_event
        self.groups, self.queue = iter(groups), deque[Group]()  # those not asked for yet, and those that wait
        self.workers: list[Worker] = []
        self.starting: dict[Any, Worker] = {}  # by the description that they will send
        self.assignments: dict[Any, Assignment] = {}  # by the stream of messages
        self.checkpoints = Checkpoints(engine.store)
        self.saved = self.checkpoints.latest()
        self.deaths: dict[str, tuple[int, int]] = {}  # of each run's workers, since it was at so many steps
        self.failed_starts = 0  # in a row
        self.stopping = self.warned = False
        self.own = provenance(torch.device("cpu"))
        self.node_memory: dict[str, float] = {}
        self.resources_read, self.wanted = -RESOURCES_SECONDS, 0
        self.actor_class = self._actor_class()

    # -- workers -------------------------------------------------------------------------------------------------------

    def _actor_class(self) -> Any:
        cuda = self.engine.device == "cuda"
        return self.ray.remote(
            num_cpus=1,
            num_gpus=int(cuda),
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=self.engine.places,
            concurrency_groups={"control": 1},
            scheduling_strategy="SPREAD",
        )(GroupWorker)

    def _adjust_workers(self) -> None:
        """Start workers while groups wait and the cluster has room; end those that have nothing to do any more."""
        if time.monotonic() - self.resources_read >= RESOURCES_SECONDS:
            self.resources_read = time.monotonic()
            # One more than there is room for, so that Ray's autoscaler sees that there is work.
            room = self.engine.capacity + (1 if self.engine.address else 0)
            self.wanted = self.engine.jobs or max(1, room)
        self._fill_queue()
        if not self.queue:
            for worker in [w for w in self.workers if not w.assignments]:
                self._end(worker)
            return
        while len(self.workers) < min(self.wanted, len(self.queue) + len(self.assignments)):
            self._start_worker()

    @property
    def has_work(self) -> bool:
        self._fill_queue()
        return bool(self.queue or self.assignments)

    def _fill_queue(self) -> None:
        """Ask for as many groups as all workers together could take: other commands may carry out the rest."""
        while len(self.queue) < max(1, self.wanted) * self.engine.places and not self.stopping:
            group = next(self.groups, None)
            if group is None:
                return
            self.queue.append(group)

    def _start_worker(self) -> None:
        folders = [os.path.abspath(folder) for folder in sys.path]
        engine = self.engine
        options = (engine.device, engine.places, engine.checkpoint_interval, folders, os.getcwd())
        worker = Worker(self.actor_class.remote(*options))
        self.workers.append(worker)
        self.starting[worker.actor.describe.remote()] = worker

    def _receive_description(self, reference: Any) -> None:
        """Let a worker begin if it runs with the same versions as this process."""
        worker = self.starting.pop(reference)
        try:
            description = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            self._handle_failed_start(worker, error)
            return
        worker.host = description["host"]
        if problem := description.get("bad input"):
            raise BadInput(f"node {worker.host}: {problem}")
        worker.node, worker.provenance = description["node"], description["provenance"]
        check_code(self.own, worker.provenance, worker.host)
        memory = self.node_memory.setdefault(worker.node, description["memory"])
        cores = self._cores().get(worker.node, 1)
        worker.memory = memory / max(1, min(cores, self.wanted))
        self.failed_starts = 0

    def _cores(self) -> dict[str, int]:
        """The cores of each node that is alive."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        return {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes}

    def _end(self, worker: Worker) -> None:
        with suppress(ValueError):
            self.workers.remove(worker)
        self.starting = {reference: w for reference, w in self.starting.items() if w is not worker}
        with suppress(Exception):  # it is dead already, or the cluster is gone
            self.ray.kill(worker.actor)

    def end_workers(self) -> None:
        for worker in list(self.workers):
            self._end(worker)

    # -- groups --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Give work to workers that have none, and handle their messages; returns after a moment without any."""
        self._adjust_workers()
        self._assign_groups()
        self._receive(POLL_SECONDS)

    def _receive(self, timeout: float) -> None:
        pending = [*self.starting, *self.assignments]
        ready, _ = self.ray.wait(pending, timeout=timeout)
        if ready and len(pending) > 1:  # all that are ready: one by one, each would cost a look at all workers
            ready, _ = self.ray.wait(pending, num_returns=len(pending), timeout=0)
        for reference in ready:
            if reference in self.starting:
                self._receive_description(reference)
            elif reference in self.assignments:
                self._receive_messages(reference)

    def _assign_groups(self) -> None:
        """Give each worker its share of the groups, to that with the fewest first."""
        workers = [worker for worker in self.workers if worker.host]
        share = -(-(len(self.queue) + len(self.assignments)) // max(1, self.wanted))
        most = min(self.engine.places, share)
        while self.queue and workers:
            worker = min(workers, key=lambda worker: len(worker.assignments))
            if len(worker.assignments) >= most:
                return
            self._assign(worker, self.queue.popleft())

    def _assign(self, worker: Worker, group: Group) -> None:
        specs = [{"digest": spec.digest, "spec": spec.plain()} for spec in group.specs]
        work = {
            "specs": specs,
            "slots": group.slots,
            "wanted": group.wanted,
            "size": group.size,
            "memory_limit": worker.memory,
            "weights": group.weights,
            "checkpoints": self._saved_files(group),
            "modules": user_files(group.specs[0].plain()) if self.engine.address else {},
        }
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": UNREAD}
        messages = worker.actor.carry_out.options(**options).remote(work)
        taken = {assignment.number for assignment in self.assignments.values()}
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        remaining = {spec.digest: spec for spec in group.specs}
        assignment = Assignment(number, worker, group, messages, remaining, group.slots or len(remaining))
        self.assignments[messages] = assignment
        worker.assignments.add(assignment)

    def _saved_files(self, group: Group) -> dict[str, bytes]:
        """The checkpoint files that hold runs of a group, by name."""
        files = {}
        for path in {self.saved[spec.digest][1] for spec in group.specs if spec.digest in self.saved}:
            with suppress(OSError):
                files[path.name] = path.read_bytes()
        return files

    # -- messages ------------------------------------------------------------------------------------------------------

    def _receive_messages(self, messages: Any) -> None:
        """Handle what a worker has sent, or its death."""
        assignment = self.assignments[messages]
        try:
            assignment.unread.extend(self.ray.get(next(messages)))
        except StopIteration:
            self._close(assignment, "its work ended without a record")
        except self.ray.exceptions.RayError as error:
            self._handle_death(assignment, error)
        else:
            self._handle_unread(assignment)

    def _handle_unread(self, assignment: Assignment) -> None:
        while assignment.unread:
            message = assignment.unread.popleft()
            with suppress(Exception) if self.stopping else nullcontext():  # an error is being reported already
                self._handle(assignment, *message)

    def _handle(self, assignment: Assignment, kind: str, *data: Any) -> None:
        match kind:
            case "record":
                self._store(assignment, Record(**data[0]).with_weights(data[1]))
            case "status":
                status = Status(*data[0])
                assignment.slots = status.slots
                self.on_event(Event(assignment.number, status=status))
            case "evaluation":
                self.on_event(Event(assignment.number, status=EvaluationStatus(*data[0])))
            case "checkpoint":
                self._store_checkpoint(assignment, *data)
            case "obsolete":
                if not assignment.unstored:
                    (self.checkpoints.folder / data[0]).unlink(missing_ok=True)
            case "done" | "stopped":
                self._close(assignment)
            case "crashed":
                self._close(assignment, data[0])
            case "bad input":
                self._close(assignment)
                raise BadInput(data[0])

    def _store(self, assignment: Assignment, record: Record) -> None:
        """Pass on a record; until it is stored, nothing may be dropped from which its run could continue."""
        if record.digest in assignment.remaining:
            try:
                self.on_event(Event(assignment.number, record=record))
            except BaseException:
                assignment.unstored = True
                raise
            del assignment.remaining[record.digest]
            self.saved.pop(record.digest, None)

    def _store_checkpoint(self, assignment: Assignment, name: str, steps: dict[str, int], data: bytes) -> None:
        """Store a file of a worker; if that fails the study goes on, with less to continue from."""
        path = self.checkpoints.folder / (f"kept-{name}" if assignment.unstored else name)
        try:
            write_synced(path, data)
        except BadInput as error:
            if not self.warned:
                warnings.warn(f"unfinished runs cannot be saved: {error}", RuntimeWarning, stacklevel=1)
            self.warned = True
            return
        for digest, count in steps.items():
            most, file = self.saved.get(digest, (-1, path))
            if digest in assignment.remaining and (file == path or count >= most):
                self.saved[digest] = count, path

    # -- the end of a group --------------------------------------------------------------------------------------------

    def _close(self, assignment: Assignment, cause: str = "") -> None:
        """Note that a worker no longer has a group; return what remains of it to the queue.

        `cause` says why the worker's process died if what it carried out may be the reason.
        """
        del self.assignments[assignment.messages]
        assignment.worker.assignments.discard(assignment)
        specs = tuple(assignment.remaining.values())
        if specs and not self.stopping:
            self._return_work(assignment, specs, cause)
        self.on_event(Event(assignment.number))

    def _return_work(self, assignment: Assignment, specs: tuple[RunSpec, ...], cause: str) -> None:
        """Queue runs again; those that may have killed a worker in smaller groups, until one of them is alone.

        Runs are carried out in their order, so only as many as there are slots can be the reason.
        """
        group = assignment.group
        if not cause:
            parts = [specs]
        elif len(specs) > 1:
            suspects, others = specs[: assignment.slots], specs[assignment.slots :]
            half = -(-len(suspects) // 2)
            parts = [suspects, others] if others else [suspects[:half], suspects[half:]]
        elif self._is_given_up(specs[0].digest):
            text = f"{MOST_DEATHS} workers died while carrying it out; the last one: {cause}"
            record = failure_record(Member(specs[0]), text, torch.device("cpu"))
            record = record.model_copy(update=assignment.worker.provenance)
            self.on_event(Event(assignment.number, record=record))
            return
        else:
            parts = [specs]
        groups = [replace(group, specs=part, slots=min(group.slots, len(part))) for part in parts]
        self.queue.extendleft(reversed(groups))

    def _is_given_up(self, digest: str) -> bool:
        """Count the death of a run's worker; returns whether it was the last one, without progress between them."""
        steps, _ = self.saved.get(digest, (0, None))
        count, steps_before = self.deaths.get(digest, (0, steps))
        self.deaths[digest] = (count + 1 if steps == steps_before else 1), steps
        return self.deaths[digest][0] == MOST_DEATHS

    def _handle_death(self, assignment: Assignment, error: Exception) -> None:
        worker = assignment.worker
        if worker.death is None:
            worker.death = "" if self._is_without_blame(worker.node, error) else cause_of(error)
        self._end(worker)  # also one that only cannot be reached
        self._close(assignment, worker.death)

    def _handle_failed_start(self, worker: Worker, error: Exception) -> None:
        """A worker that died before it could report may start again elsewhere, but not for ever."""
        self._end(worker)
        check_start(error)
        if not self._is_without_blame("", error):
            self.failed_starts += 1
            if self.failed_starts == MOST_DEATHS:
                raise BadInput(
                    f"{MOST_DEATHS} workers in a row died when they started; the last one: {cause_of(error)}"
                )

    def _is_without_blame(self, node: str, error: Exception) -> bool:
        """Whether a worker was lost for a reason other than what it did: with its node, or with the connection."""
        return is_lost(error) or (bool(node) and node not in self._cores())

    # -- the end of the work -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let workers save their runs; records and checkpoints that they send meanwhile are still stored."""
        self.stopping, deadline = True, time.monotonic() + SAVE_TIMEOUT
        self.queue.clear()
        self._adjust_workers()
        for worker in {assignment.worker for assignment in self.assignments.values()}:
            with suppress(Exception):  # it has died, which its messages say
                worker.actor.stop.options(concurrency_group="control").remote()
        for assignment in list(self.assignments.values()):
            self._handle_unread(assignment)
        while self.assignments and (seconds := deadline - time.monotonic()) > 0:
            self._receive(min(POLL_SECONDS, seconds))
