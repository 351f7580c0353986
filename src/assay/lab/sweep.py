"""Many runs: what the store already has is left out, the rest go side by side, each recorded the moment it ends."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from assay.description import BadInput
from assay.lab.execute import circumstances, device_named, execute
from assay.lab.train import Progress
from assay.record import Record, Store
from assay.spec import RunSpec


@dataclass(frozen=True)
class Event:
    """Something to tell a person: a run begins, goes on, or has been recorded."""

    digest: str
    step: int = 0
    loss: float = float("nan")
    accuracy: float = 0.0
    record: Record | None = None


Tell = Callable[[Event], None]


def pending(specs: list[RunSpec], store: Store) -> list[RunSpec]:
    """The runs that the store has no finished record of, each once."""
    done = {record.digest for record in store.records() if record.finished}
    return list({spec.digest: spec for spec in specs if spec.digest not in done}.values())


def sweep(specs: list[RunSpec], store: Store, device: str, jobs: int, tell: Tell = lambda _: None) -> None:
    """Carry out the pending runs. A GPU is given one process, a CPU one for each job."""
    todo = pending(specs, store)
    place = device_named(device)
    if place.type == "cpu" and min(jobs, len(todo)) > 1:
        _side_by_side(todo, store, device, min(jobs, len(todo)), tell)
        return
    for spec in todo:
        tell(Event(spec.digest))
        record = execute(spec, place, lambda *now, digest=spec.digest: tell(Event(digest, *now)))
        store.add(record)
        tell(Event(spec.digest, record=record))


class Worker:
    """A process that carries out runs one after the other.

    Each end of the pipe learns of the other's death: an orphan stops at its next word to the parent, and a killed
    worker's run is recorded as failed. What goes through the pipe is JSON.
    """

    def __init__(self, store: Store, device: str) -> None:
        context = multiprocessing.get_context("spawn")  # forking after threads have started is not safe
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, str(store.path), device), daemon=True)
        with _deaf_to_interrupts():  # inherited: it is the parent that ends its workers
            self.process.start()
        theirs.close()
        self.spec: RunSpec | None = None

    def give(self, spec: RunSpec | None) -> bool:
        """Hand over the next run, if there is one."""
        self.spec = spec
        if spec is not None:
            with suppress(ConnectionError):  # it has died: that is heard next
                _send(self.pipe, {"digest": spec.digest, "spec": spec.plain()})
        return spec is not None

    def hear(self) -> Event:
        """What the worker says next; raises EOFError or OSError where it has died."""
        said = json.loads(self.pipe.recv_bytes())
        if "problem" in said:
            raise BadInput(said["problem"])
        record = said.pop("record", None)
        return Event(**said, record=Record(**record) if record else None)

    def obituary(self, device: str) -> Record:
        """The record of the run that a dead worker leaves behind."""
        assert self.spec is not None
        self.process.join()
        code = self.process.exitcode or 0
        how = f"signal {signal.Signals(-code).name} (out of memory, or killed)" if code < 0 else f"exit code {code}"
        return Record(
            digest=self.spec.digest,
            spec=self.spec.plain(),
            verdict="failed",
            stopped="error",
            error=f"the worker process ended with {how}",
            **circumstances(device_named(device)),
        )


def _side_by_side(todo: list[RunSpec], store: Store, device: str, jobs: int, tell: Tell) -> None:
    waiting = iter(todo)
    workers = [Worker(store, device) for _ in range(jobs)]
    try:
        busy = {worker.pipe: worker for worker in workers if worker.give(next(waiting, None))}
        for worker in busy.values():
            tell(Event(worker.spec.digest if worker.spec else ""))
        while busy:
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)  # type: ignore[call-overload]
                try:
                    event = worker.hear()
                except (EOFError, OSError):
                    record = worker.obituary(device)
                    store.add(record)
                    event = Event(record.digest, record=record)
                    worker = Worker(store, device)
                    workers.append(worker)
                tell(event)
                if event.record is None:
                    busy[worker.pipe] = worker
                elif worker.give(spec := next(waiting, None)):
                    busy[worker.pipe] = worker
                    tell(Event(spec.digest if spec else ""))
    finally:
        for worker in workers:
            worker.process.terminate()


def _serve(pipe: Connection, store_path: str, device: str) -> None:
    try:
        store, place = Store.open(store_path), device_named(device)
        while True:
            asked = json.loads(pipe.recv_bytes())

            def progress(step: int, loss: float, accuracy: float, digest: str = asked["digest"]) -> None:
                _send(pipe, {"digest": digest, "step": step, "loss": loss, "accuracy": accuracy})

            record = _run(asked, place, progress)
            store.add(record)
            _send(pipe, {"digest": record.digest, "record": record.plain()})
    except BadInput as error:
        _send(pipe, {"problem": str(error)})
    except (EOFError, ConnectionError):
        return  # the parent is gone


def _run(asked: dict[str, Any], place: torch.device, progress: Progress) -> Record:
    """A run from plain data; one that cannot be read here (a task of the user's that is not importable) has failed."""
    try:
        spec = RunSpec(**asked["spec"])
    except BadInput as error:
        known = {**asked, **circumstances(place)}
        return Record(**known, verdict="failed", stopped="error", error=str(error))
    return execute(spec, place, progress)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _send(pipe: Connection, data: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(data).encode())
