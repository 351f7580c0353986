"""The launcher that starts workers as processes of this machine: one on each GPU, or several on the CPU."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from assay.lab.engines.launchers import SAVE_SECONDS, SAVED, Failure, failure_of
from assay.lab.engines.orphan_guard import guarded
from assay.store import make_folder

POLL_SECONDS = 0.05  # between two looks whether stopped workers have ended


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [str(number) for number in range(count)] if names is None else names.replace(" ", "").split(",")[:count]


class LocalDevices:
    """Starts at most one worker on each of `gpus`, or `cpu_workers` on the CPU; stderr is kept in a folder of logs.

    Start workers from the main thread: on Linux, they end with the thread that has started them.
    """

    def __init__(self, command: Sequence[str], logs: Path, gpus: Sequence[str] = (), cpu_workers: int = 1) -> None:
        self.command, self.logs = list(command), logs.absolute()
        self.places: list[str | None] = list(gpus) or [None] * cpu_workers
        self.limit = len(self.places)
        self.workers: dict[int, Worker] = {}
        self.ended: list[Failure] = []
        self.started = 0

    def start(self, count: int) -> int:
        """Start workers in places that have none, at most `count`."""
        self._update()
        free = [number for number in range(self.limit) if number not in self.workers][:count]
        make_folder(self.logs)
        for number in free:
            self.workers[number] = self._start_worker(number)
        return len(free)

    def alive(self) -> int:
        self._update()
        return len(self.workers)

    def failures(self) -> list[Failure]:
        self._update()
        return list(self.ended)

    def stop(self) -> None:
        """Let all workers save their members and end; those that take too long are killed."""
        deadline = time.monotonic() + SAVE_SECONDS
        for worker in self.workers.values():
            worker.process.terminate()
            worker.stopped = True
        try:
            while self.alive() and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        finally:
            for worker in self.workers.values():
                worker.process.kill()
                worker.process.wait()
            self._update()

    def preview(self, count: int) -> str:
        lines = [_environment(place) + shlex.join(self.command) for place in self.places[:count]]
        return "\n".join([f"{len(lines)} workers of this machine:", *lines])

    def _start_worker(self, number: int) -> Worker:
        self.started += 1
        place, name = self.places[number], f"{socket.gethostname()}-{os.getpid()}-{self.started}"
        log = self.logs / f"{name}.stderr"
        environment = os.environ if place is None else {**os.environ, "CUDA_VISIBLE_DEVICES": place}
        with log.open("w") as stderr:
            process = subprocess.Popen(
                guarded(self.command),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C reaches this process alone, which stops its workers
            )
        return Worker(process, f"worker {number}" if place is None else f"the worker on GPU {place}", log)

    def _update(self) -> None:
        """Forget the workers that have ended, but note their failures."""
        for number, worker in list(self.workers.items()):
            if (code := worker.process.poll()) is None:
                continue
            del self.workers[number]
            failure = None if worker.stopped else failure_of(worker.name, code, worker.log)
            if failure:
                self.ended.append(failure)
            if code in (0, SAVED):
                worker.log.unlink(missing_ok=True)


@dataclass
class Worker:
    """A process that was started here."""

    process: subprocess.Popen[bytes]
    name: str
    log: Path
    stopped: bool = False


def _environment(place: str | None) -> str:
    return "" if place is None else f"CUDA_VISIBLE_DEVICES={shlex.quote(place)} "
