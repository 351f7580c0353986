"""The engine that carries out several groups at a time on one device, in one process.

Each group has a thread and, on a GPU, a stream. The GPU runs the kernels of all streams side by side. A thread sleeps
while its stream computes a round, so no group waits for another one, except for memory.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch

from assay.lab.checkpoint import INTERVAL, Checkpoints
from assay.lab.compilers import compilers
from assay.lab.engines.engine import Event, OnEvent
from assay.lab.execute import execute_group
from assay.lab.interrupts import stop_on_signal
from assay.lab.locks import EXCLUSIVE
from assay.lab.plan import Group
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record

POLL_SECONDS = 0.2  # between two looks for an interrupt
# A thread that has launched a step waits at most so long for a thread that runs Python (the default is 5 ms).
SWITCH_SECONDS = 0.0005


class SharedDevice:
    """Carries out up to `jobs` groups at a time, as long as together they need at most `memory` bytes."""

    def __init__(
        self, device: torch.device, jobs: int, memory: float, store: Path, checkpoint_interval: float = INTERVAL
    ) -> None:
        self.device, self.jobs, self.memory = device, jobs, memory
        self.store, self.checkpoint_interval = store, checkpoint_interval

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        with stop_on_signal() as poll, short_turns():
            workers = Workers(self, on_event, poll)
            try:
                for group in groups:
                    workers.start(group)
                workers.wait()
            finally:
                workers.stop()
                compilers.stop()
                workers.raise_error()  # instead of the interrupt that it caused here


class Workers:
    """The threads of an engine; each carries out one group and ends."""

    def __init__(self, engine: SharedDevice, on_event: OnEvent, poll: Callable[[], None]) -> None:
        self.engine, self.on_event, self.poll_signals = engine, on_event, poll
        self.streams = [new_stream(engine.device) for _ in range(engine.jobs)]
        self.threads: dict[int, threading.Thread] = {}
        self.admission = Admission(engine.memory, self.poll)
        self.stopping, self.event_lock = threading.Event(), threading.Lock()
        self.error: BaseException | None = None

    def poll(self) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt
        self.poll_signals()

    def start(self, group: Group) -> None:
        """Start a group as soon as there are a free thread and enough memory."""
        number = self._free_number()
        self.admission.enter(number, group.memory)
        thread = threading.Thread(target=self._work, args=(number, group), name=f"group {number}", daemon=True)
        self.threads[number] = thread
        thread.start()

    def _free_number(self) -> int:
        while True:
            for number in range(self.engine.jobs):
                if number not in self.threads or not self.threads[number].is_alive():
                    return number
            self.admission.wait()

    def wait(self) -> None:
        """Wait until all groups have ended."""
        while any(thread.is_alive() for thread in self.threads.values()):
            self.admission.wait()

    def stop(self) -> None:
        """Let all threads save their members and end; they have ended already if nothing went wrong."""
        self.stopping.set()
        for thread in self.threads.values():
            thread.join()

    def raise_error(self) -> None:
        if self.error:
            raise self.error

    def _work(self, number: int, group: Group) -> None:
        """The main function of a thread."""
        engine = self.engine
        try:
            checkpoints = Checkpoints(engine.store, engine.checkpoint_interval)
            alone = partial(self.admission.get_device_alone, number)
            report = partial(self._report, number)
            execute_on_stream(group, engine.device, self.streams[number], report, self.poll, checkpoints, alone)
            self._report(number)
        except BaseException as error:
            if not self.stopping.is_set():
                self.error = error
            self.stopping.set()
        finally:
            self.admission.leave(number)

    def _report(self, number: int, news: Record | Status | EvaluationStatus | None = None) -> None:
        event = Event(number, record=news) if isinstance(news, Record) else Event(number, status=news)
        with self.event_lock:
            self.on_event(event)


class Admission:
    """Lets groups use the device in the order of their requests, as long as all of them fit into its memory."""

    def __init__(self, memory: float, poll: Callable[[], None]) -> None:
        self.memory, self.poll = memory, poll
        self.inside: dict[int, float] = {}  # the memory of each group that uses the device
        self.requests: deque[int] = deque()
        self.changed = threading.Condition()

    def enter(self, number: int, memory: float) -> None:
        """Wait until a group fits; one that fits nowhere else has the device alone."""
        with self.changed:
            self.requests.append(number)
            try:
                while self.requests[0] != number or (self.inside and sum(self.inside.values()) + memory > self.memory):
                    self.wait()
                self.inside[number] = memory
            finally:
                self.requests.remove(number)
                self.changed.notify_all()

    def leave(self, number: int) -> None:
        with self.changed:
            self.inside.pop(number, None)
            self.changed.notify_all()

    def get_device_alone(self, number: int) -> bool:
        """Give a group the whole device, once the others have left; returns False if it had that before."""
        if self.inside[number] == math.inf:
            return False
        self.leave(number)
        self.enter(number, math.inf)
        return True

    def wait(self) -> None:
        """Wait for a change, or a moment; raises KeyboardInterrupt if a stop was requested."""
        with self.changed:
            self.changed.wait(POLL_SECONDS)
        self.poll()


def execute_on_stream(
    group: Group,
    device: torch.device,
    stream: torch.cuda.Stream | None,
    report: Callable[[Record | Status | EvaluationStatus], None],
    poll: Callable[[], None],
    checkpoints: Checkpoints,
    get_device_alone: Callable[[], bool],
) -> None:
    """Carry out a group that was admitted to the device, on a stream of its own."""
    options = (group.slots, checkpoints, group.memory_limit, group.weights)
    with torch.cuda.stream(stream) if stream else nullcontext():
        _return_unused_memory(group.memory, device)
        execute_group(group.specs, device, report, report, poll, *options, get_device_alone=get_device_alone)


def new_stream(device: torch.device) -> torch.cuda.Stream | None:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _return_unused_memory(needed: float, device: torch.device) -> None:
    """PyTorch keeps the memory of groups that have ended for their streams; return it if a new group needs it."""
    if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < needed:
        with EXCLUSIVE:
            torch.cuda.empty_cache()


@contextmanager
def short_turns() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
