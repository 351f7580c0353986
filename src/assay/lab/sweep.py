"""Many runs: what the store already has is left out, the rest are grouped by what can share a program.

On a GPU a process trains a group at a time, all of it at once; on a CPU, which gains nothing from that, a run at a
time. There is a process for each core of a CPU, and one for a GPU unless more are asked for. Every run is recorded the
moment it ends, and what is under way is saved from time to time.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

import torch

from assay.description import BadInput
from assay.lab.checkpoint import EVERY, Checkpoints
from assay.lab.execute import circumstances, device_named, execute_all
from assay.lab.memory import room
from assay.lab.train import Status, program_of, usual_slots
from assay.record import Record, Store
from assay.spec import RunSpec

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
PATIENCE = 60.0  # seconds that a process is given to save what it has
LINGERING = 5.0  # seconds that one whose pipe has closed is given to end


@dataclass(frozen=True)
class Event:
    """Something to tell a person: how a population is getting on, or that a run has been recorded."""

    source: int  # which population
    status: Status | None = None
    record: Record | None = None


Tell = Callable[[Event], None]


def pending(specs: list[RunSpec], store: Store) -> list[RunSpec]:
    """The runs that the store has no finished record of, each once."""
    done = {record.digest for record in store.records() if record.finished}
    return list({spec.digest: spec for spec in specs if spec.digest not in done}.values())


def grouped(specs: list[RunSpec]) -> dict[str, list[RunSpec]]:
    """By what can share a program, in the order of their first run."""
    groups: dict[str, list[RunSpec]] = defaultdict(list)
    for spec in specs:
        groups[program_of(spec)].append(spec)
    return groups


def sweep(
    specs: list[RunSpec],
    store: Store,
    device: str,
    jobs: int | None = None,
    tell: Tell = lambda _: None,
    slots: int | None = None,
    checkpoint_every: float = EVERY,
) -> None:
    """Carry out the pending runs. Interrupted, they are saved, and go on from there when they are asked for again."""
    todo, place = pending(specs, store), device_named(device)
    jobs = jobs or (CORES if place.type == "cpu" else 1)
    pieces = _pieces(specs, todo, place, jobs, slots, room(place, jobs))
    if min(jobs, len(todo)) > 1:
        with _stoppable(at_once=True):
            _side_by_side(pieces, store, device, jobs, checkpoint_every, tell)
    else:
        with _stoppable() as poll:
            for number, piece in enumerate(pieces):
                _carry_out(piece, store, place, checkpoint_every, poll, number, tell)
    Checkpoints(store.path).prune(record.digest for record in store.records() if record.finished)


@dataclass(frozen=True)
class Piece:
    """Runs that share a program, and how many slots they are given."""

    specs: list[RunSpec]
    slots: int


def _pieces(
    specs: list[RunSpec], todo: list[RunSpec], place: torch.device, jobs: int, slots: int | None, within: float
) -> Iterator[Piece]:
    """The slots follow from all runs that were asked for, so that who is resumed has as many as before.

    One piece at a time, since it takes a moment to find out what fits `within` a job's bytes.
    """
    whole = grouped(specs)
    for program, those in grouped(todo).items():
        count = min(slots, len(whole[program])) if slots else usual_slots(whole[program], place, within)
        parts = 1 if place.type == "cuda" else len(those) if count == 1 else jobs
        count = max(1, min(count, -(-len(whole[program]) // parts)))  # no process is given more than it can fill
        yield from (Piece(those[i::parts], count) for i in range(min(parts, len(those))))


def _carry_out(
    piece: Piece,
    store: Store,
    place: torch.device,
    every: float,
    poll: Callable[[], None],
    source: int,
    tell: Tell,
) -> None:
    def add(record: Record) -> None:
        store.add(record)
        tell(Event(source, record=record))

    def watch(status: Status) -> None:
        tell(Event(source, status=status))

    execute_all(piece.specs, place, add, watch, poll, piece.slots, Checkpoints(store.path, every))


# -- processes side by side ----------------------------------------------------------------------------------------


class Worker:
    """A process that carries out pieces one after the other.

    Each end of the pipe learns of the other's death: an orphan stops at its next word to the parent, and what a killed
    worker was at is recorded as failed. What goes through the pipe is JSON.
    """

    def __init__(self, number: int, store: Store, device: str, every: float) -> None:
        context = multiprocessing.get_context("spawn")  # forking after threads have started is not safe
        self.number, self.piece = number, Piece([], 1)
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, str(store.path), device, every)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _deaf_to_interrupts():  # inherited: it is the parent that ends its workers
            self.process.start()
        theirs.close()

    def give(self, piece: Piece) -> None:
        self.piece = piece
        with suppress(ConnectionError):  # it has died: that is heard next
            specs = [{"digest": spec.digest, "spec": spec.plain()} for spec in piece.specs]
            _send(self.pipe, {"specs": specs, "slots": piece.slots})

    def hear(self) -> Event | None:
        """What the worker says next, None at the end of a piece; raises EOFError or OSError where it has died."""
        said = json.loads(self.pipe.recv_bytes())
        if "problem" in said:
            raise BadInput(said["problem"])
        if "record" in said:
            record = Record(**said["record"])
            rest = [spec for spec in self.piece.specs if spec.digest != record.digest]
            self.piece = Piece(rest, self.piece.slots)
            return Event(self.number, record=record)
        return Event(self.number, status=Status(*said["status"])) if "status" in said else None

    def obituary(self, device: str) -> Record:
        """The record of the run that a dead worker leaves behind."""
        (spec,) = self.piece.specs
        code = self.process.exitcode or 0
        how = f"signal {signal.Signals(-code).name} (out of memory, or killed)" if code < 0 else f"exit code {code}"
        return Record(
            digest=spec.digest,
            spec=spec.plain(),
            verdict="failed",
            stopped="error",
            error=f"the worker process ended with {how}",
            **circumstances(device_named(device)),
        )


def _side_by_side(pieces: Iterator[Piece], store: Store, device: str, jobs: int, every: float, tell: Tell) -> None:
    workers: list[Worker] = []
    busy: dict[Any, Worker] = {}
    again: deque[Piece] = deque()  # what a worker has left behind

    def upcoming() -> Piece | None:
        return again.popleft() if again else next(pieces, None)

    def occupy(worker: Worker, piece: Piece | None) -> None:
        if piece:
            worker.give(piece)
            busy[worker.pipe] = worker

    try:
        for number, piece in enumerate(islice(pieces, jobs)):
            workers.append(Worker(number, store, device, every))
            occupy(workers[-1], piece)
        while busy:
            for pipe in wait(list(busy)):
                worker = busy.pop(pipe)
                try:
                    event = worker.hear()
                except (EOFError, OSError):
                    again.extend(_bury(worker, store, device, tell))
                    workers[worker.number] = Worker(worker.number, store, device, every)
                    for idle in [w for w in workers if w.pipe not in busy]:
                        occupy(idle, upcoming())
                    continue
                if event is None:
                    occupy(worker, upcoming())
                else:
                    busy[worker.pipe] = worker
                    tell(event)
    finally:
        for worker in workers:
            worker.process.terminate()  # which lets it save what it is at
            worker.pipe.close()
        for worker in workers:
            worker.process.join(PATIENCE)
            worker.process.kill()


def _bury(worker: Worker, store: Store, device: str, tell: Tell) -> Sequence[Piece]:
    """A run that was alone has failed; of several, each is tried alone."""
    worker.process.join(LINGERING)
    worker.process.kill()
    worker.process.join()
    if len(worker.piece.specs) > 1:
        return [Piece([spec], 1) for spec in worker.piece.specs]
    record = worker.obituary(device)
    store.add(record)
    tell(Event(worker.number, record=record))
    return ()


def _serve(pipe: Connection, store_path: str, device: str, every: float) -> None:
    def tell(event: Event) -> None:
        if event.record:
            _send(pipe, {"record": event.record.plain()})
        elif event.status:
            _send(pipe, {"status": list(event.status)})

    try:
        store, place = Store.open(store_path), device_named(device)
        with _stoppable(signal.SIGTERM) as poll:
            while True:
                asked = json.loads(pipe.recv_bytes())
                specs = _read(asked["specs"], place, store, tell)
                if specs:
                    _carry_out(Piece(specs, asked["slots"]), store, place, every, poll, 0, tell)
                _send(pipe, {})
                poll()
    except BadInput as error:
        _send(pipe, {"problem": str(error)})
    except (EOFError, ConnectionError, KeyboardInterrupt):
        return  # the parent is gone, or says that this is the end


def _read(asked: list[dict[str, Any]], place: torch.device, store: Store, tell: Tell) -> list[RunSpec]:
    """Runs from plain data; one that cannot be read here (a task of the user's that is not importable) has failed."""
    specs = []
    for one in asked:
        try:
            specs.append(RunSpec(**one["spec"]))
        except BadInput as error:
            record = Record(**one, **circumstances(place), verdict="failed", stopped="error", error=str(error))
            store.add(record)
            tell(Event(0, record=record))
    return specs


def _send(pipe: Connection, data: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(data).encode())


# -- interrupts ----------------------------------------------------------------------------------------------------


@contextmanager
def _stoppable(*signals: signal.Signals, at_once: bool = False) -> Iterator[Callable[[], None]]:
    """Gives a function that raises KeyboardInterrupt once somebody has asked for an end (Ctrl-C, or a scheduler).

    So work is only interrupted where it can be saved; a second signal interrupts it anywhere, as one does `at_once`.
    """
    asked = False

    def note(*_: int | FrameType | None) -> None:
        nonlocal asked
        if asked or at_once:
            raise KeyboardInterrupt
        asked = True

    def poll() -> None:
        if asked:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main one hears signals
        yield poll
        return
    those = signals or (signal.SIGINT, signal.SIGTERM)
    before = {name: signal.signal(name, note) for name in those}
    try:
        yield poll
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
