"""The engine that carries out groups in several processes of this machine.

Workers send records through a pipe, as JSON followed by weights, and wait until the parent has stored them. Each end of
the pipe notices the other's death: an orphaned worker saves its members and exits, and the run of a dead worker is
recorded as failed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from assay.errors import BadInput
from assay.lab.checkpoint import INTERVAL, Checkpoints
from assay.lab.device import parse_device
from assay.lab.engines.engine import Event, OnEvent
from assay.lab.execute import execute_group, failure_record
from assay.lab.interrupts import ignore_sigint, stop_on_signal
from assay.lab.member import Member
from assay.lab.plan import Group
from assay.lab.provenance import provenance
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record
from assay.spec import RunSpec

POLL_SECONDS = 0.2  # between two looks for an interrupt
SAVE_TIMEOUT = 60.0  # seconds that a worker is given to save its members
EXIT_TIMEOUT = 5.0  # seconds that a worker whose pipe has closed is given to exit


class LocalProcesses:
    """Carries out groups in `jobs` worker processes."""

    def __init__(self, device: torch.device, jobs: int, store: Path, checkpoint_interval: float = INTERVAL) -> None:
        self.device, self.jobs, self.store, self.checkpoint_interval = device, jobs, store, checkpoint_interval

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        queue = Queue(groups)
        workers: list[Worker] = []
        with stop_on_signal() as poll:
            try:
                while len(workers) < self.jobs and (group := queue.next()):
                    poll()
                    workers.append(self._start_worker(len(workers)))
                    workers[-1].assign(group)
                while busy := {worker.pipe: worker for worker in workers if worker.busy}:
                    for pipe in wait(list(busy), timeout=POLL_SECONDS):
                        poll()  # first: a worker that was interrupted together with this process is not dead
                        self._serve(busy[pipe], workers, queue, on_event)  # type: ignore[index]
                    poll()
            finally:
                _stop(workers, on_event)

    def _start_worker(self, number: int) -> Worker:
        return Worker(number, self.device, self.store, self.checkpoint_interval)

    def _serve(self, worker: Worker, workers: list[Worker], queue: Queue, on_event: OnEvent) -> None:
        """Handle the next message of a worker, or its death; give work to workers that have none."""
        message = worker.read()
        if message is None:
            queue.return_work(_handle_dead_worker(worker, self.device, on_event))
            workers[worker.number] = self._start_worker(worker.number)
        else:
            worker.handle(message, on_event)
        for idle in (worker for worker in workers if not worker.busy):
            if group := queue.next():
                idle.assign(group)
            elif message is None or idle is worker:
                on_event(Event(idle.number))


class Queue:
    """The groups that no worker has yet; returned work comes first."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self.groups: Iterator[Group] = iter(groups)
        self.returned: deque[Group] = deque()

    def next(self) -> Group | None:
        return self.returned.popleft() if self.returned else next(self.groups, None)

    def return_work(self, groups: Iterable[Group]) -> None:
        self.returned.extend(groups)


class Worker:
    """A process that carries out one group after the other, seen from its parent."""

    def __init__(self, number: int, device: torch.device, store: Path, checkpoint_interval: float) -> None:
        context = multiprocessing.get_context("spawn")  # forking after threads have started is not safe
        self.number, self.busy = number, False
        self.waiting = False  # for its record to be stored
        self.group, self.remaining = Group(()), dict[str, RunSpec]()
        self.pipe, child_pipe = context.Pipe()
        arguments = (child_pipe, device.type, str(store), checkpoint_interval)
        self.process = context.Process(target=_work, args=arguments, daemon=True)
        with ignore_sigint():  # the parent stops its workers
            self.process.start()
        child_pipe.close()

    def assign(self, group: Group) -> None:
        self.group, self.busy = group, True
        self.remaining = {spec.digest: spec for spec in group.specs}
        with suppress(OSError):  # it has died, which the next read finds out
            specs = [{"digest": name, "spec": spec.plain()} for name, spec in self.remaining.items()]
            options = {"slots": group.slots, "memory_limit": group.memory_limit, "weights": group.weights}
            _send(self.pipe, {"specs": specs, **options})

    def read(self) -> dict[str, Any] | None:
        """The next message, or None if the worker has died."""
        try:
            message: dict[str, Any] = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return None
        return message

    def handle(self, message: dict[str, Any], on_event: OnEvent) -> None:
        """Pass on a message. Until a record is stored the worker waits, so that it can still save the run."""
        match message["type"]:
            case "record":
                record = Record(**message["record"])
                record = record.with_weights({state: self.pipe.recv_bytes() for state in message["weights"]})
                self.waiting = True
                on_event(Event(self.number, record=record))
                self.remaining.pop(record.digest, None)
                self.waiting = False
                with suppress(OSError):  # it has died, which the next read finds out
                    _send(self.pipe, {"stored": record.digest})
            case "status":
                on_event(Event(self.number, status=Status(*message["status"])))
            case "evaluation":
                on_event(Event(self.number, status=EvaluationStatus(*message["status"])))
            case "done":
                self.busy = False
            case "bad input":
                raise BadInput(message["error"])


def _handle_dead_worker(worker: Worker, device: torch.device, on_event: OnEvent) -> list[Group]:
    """The work that a dead worker leaves: its only run is reported as failed; of several each is tried alone.

    A worker that died after its last record leaves nothing. One that was asked to stop has saved its members, and
    another worker continues them.
    """
    worker.process.join(EXIT_TIMEOUT)
    worker.process.kill()
    worker.process.join()
    specs, code = tuple(worker.remaining.values()), worker.process.exitcode or 0
    if code == 0:
        return [replace(worker.group, specs=specs)] if specs else []
    if len(specs) != 1:
        return [replace(worker.group, specs=(spec,), slots=1) for spec in specs]
    cause = f"signal {signal.Signals(-code).name} (out of memory, or killed)" if code < 0 else f"exit code {code}"
    record = failure_record(Member(specs[0]), f"the worker process ended with {cause}", device)
    on_event(Event(worker.number, record=record))
    return []


def _stop(workers: list[Worker], on_event: OnEvent) -> None:
    """Let all workers save their members and exit; records that they send meanwhile are still stored."""
    deadline = time.monotonic() + SAVE_TIMEOUT
    sending = {worker.pipe: worker for worker in workers if worker.busy and not worker.waiting}
    for worker in workers:
        worker.process.terminate()
        if worker.pipe not in sending:
            worker.pipe.close()  # a worker whose record could not be stored saves the run when its pipe closes
    while sending and (seconds := deadline - time.monotonic()) > 0:
        for pipe in wait(list(sending), timeout=seconds):
            worker = sending[pipe]  # type: ignore[index]
            message = worker.read()
            try:
                if message is not None:
                    worker.handle(message, on_event)
            except Exception:  # an error is being reported already, or the store cannot be written
                message = None
            if message is None or not worker.busy:  # one that has ended its group waits for the next, or for the end
                worker.pipe.close()
                del sending[worker.pipe]
    for worker in workers:
        worker.process.join(max(EXIT_TIMEOUT, deadline - time.monotonic()))
        worker.process.kill()


# -- in the worker -----------------------------------------------------------------------------------------------------


def _work(pipe: Connection, device_name: str, store: str, checkpoint_interval: float) -> None:
    """The main function of a worker process."""

    def on_record(record: Record) -> None:
        _send(pipe, {"type": "record", "record": record.plain(), "weights": list(record.weights)})
        for weights in record.weights.values():
            pipe.send_bytes(weights)
        try:
            pipe.recv_bytes()  # the parent has stored it
        except EOFError:
            raise ConnectionError("the parent process has ended") from None

    def on_status(status: Status | EvaluationStatus) -> None:
        _send(pipe, {"type": "status" if isinstance(status, Status) else "evaluation", "status": list(status)})

    os.dup2(2, 1)  # what a user's own module prints here is not the output of the command, which may be JSON
    try:
        device = parse_device(device_name)
        with stop_on_signal(signal.SIGTERM, patient=True) as poll:  # a second one must not interrupt the saving
            while True:
                work = json.loads(pipe.recv_bytes())
                specs = read_specs(work["specs"], device, on_record)
                if specs:
                    checkpoints = Checkpoints(Path(store), checkpoint_interval)
                    options = (work["slots"], checkpoints, work["memory_limit"], work["weights"])
                    execute_group(specs, device, on_record, on_status, poll, *options)
                _send(pipe, {"type": "done"})
                poll()
    except BadInput as error:
        _send(pipe, {"type": "bad input", "error": str(error)})
    except SystemExit:  # of a user's own module; without an exit code of its own, the work would be tried for ever
        sys.exit(1)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # the parent is gone, or stops its workers


def read_specs(work: list[dict[str, Any]], device: torch.device, on_record: Any) -> list[RunSpec]:
    """Specs from plain data; one that cannot be read here (a task that is not importable) is a failed run."""
    specs = []
    for item in work:
        try:
            specs.append(RunSpec(**item["spec"]))
        except BadInput as error:
            on_record(Record(**item, **provenance(device), verdict="failed", stopped="error", error=str(error)))
    return specs


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())
