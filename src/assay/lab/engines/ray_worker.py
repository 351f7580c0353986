"""A worker of the Ray engine: a process of the cluster that carries out groups and streams what comes of them.

It has no access to the store. Every message is a tuple of a name and plain data:

    ("status", fields), ("evaluation", fields)      how far a group is, at most twice a second
    ("record", record, weights by state)            a run has ended
    ("checkpoint", file name, steps by run, bytes)  the content of a file that replaces the one of that name
    ("obsolete", file name)                         the members of that file have records
    ("done",), ("stopped",), ("crashed", error), ("bad input", error)    the last one
"""

from __future__ import annotations

import importlib.util
import math
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.errors import BadInput, in_one_line
from assay.lab.checkpoint import Checkpoint, Checkpoints
from assay.lab.compilers import compilers
from assay.lab.device import parse_device
from assay.lab.engines.local_processes import read_specs
from assay.lab.engines.shared_device import Admission, execute_on_stream, new_stream, short_turns
from assay.lab.memory import memory_limit
from assay.lab.plan import Group, sized
from assay.lab.provenance import provenance
from assay.lab.status import EvaluationStatus, Status
from assay.models.skeleton import Foreign
from assay.models.source import source_digest
from assay.record import Record
from assay.registry import import_path
from assay.spec import RunSpec

Message = tuple[Any, ...]
Send = Callable[[Message], None]

STATUS_SECONDS = 0.5  # between two messages about the progress of a group
WAITING = 16  # messages that a group may be ahead of their transport
ENDS = ("done", "stopped", "crashed", "bad input")


class GroupWorker:
    """Carries out up to `places` groups at a time on one device."""

    def __init__(self, device: str, places: int, checkpoint_interval: float, folders: Iterable[str], cwd: str) -> None:
        self.device_name, self.checkpoint_interval = device, checkpoint_interval
        self.free_places, self.stopping = list(range(places)), threading.Event()
        self.sizing, self.resources = threading.Lock(), ExitStack()
        if os.path.isdir(cwd):  # the same machine, or a shared file system
            os.chdir(cwd)
        sys.path += [folder for folder in folders if folder not in sys.path and os.path.isdir(folder)]

    def describe(self) -> dict[str, Any]:
        """Prepare the device; returns where this worker is, what it runs with, and the bytes that are free there."""
        try:
            if self.device_name == "cuda":
                compilers.prepare()
            self.device = parse_device(self.device_name)
        except BadInput as error:
            return {"host": socket.gethostname(), "bad input": str(error)}
        self.memory = memory_limit(self.device)
        self.streams = [new_stream(self.device) for _ in self.free_places]
        self.admission = Admission(self.memory if self.device.type == "cuda" else math.inf, self._poll)
        if self.device.type == "cuda":
            self.resources.enter_context(short_turns())
        place = {"host": socket.gethostname(), "node": _node()}
        return place | {"memory": self.memory, "provenance": provenance(self.device)}

    def carry_out(self, work: Mapping[str, Any]) -> Iterator[list[Message]]:
        """Carry out a group; yields messages, several at once if they are there."""
        messages: queue.Queue[Message] = queue.Queue(WAITING)
        threading.Thread(target=self._work, args=(work, messages.put), name="group", daemon=True).start()
        while True:
            batch = [messages.get()]
            with suppress(queue.Empty):
                while True:
                    batch.append(messages.get_nowait())
            yield batch
            if batch[-1][0] in ENDS:
                return

    def stop(self) -> None:
        """Let all groups save their members and end."""
        self.stopping.set()

    def _poll(self) -> None:
        if self.stopping.is_set():
            raise KeyboardInterrupt

    def _work(self, work: Mapping[str, Any], send: Send) -> None:
        """The main function of a group's thread."""
        try:
            self._poll()
            with closing(RemoteCheckpoints(work["checkpoints"], self.checkpoint_interval, send)) as checkpoints:
                self._carry_out(work, checkpoints, send)
            send(("done",))
        except KeyboardInterrupt:
            send(("stopped",))
        except BadInput as error:
            send(("bad input", str(error)))
        except BaseException as error:
            send(("crashed", in_one_line(error)))

    def _carry_out(self, work: Mapping[str, Any], checkpoints: Checkpoints, send: Send) -> None:
        report = Report(send)
        self._unpack_modules(work["modules"])
        specs = read_specs(work["specs"], self.device, report)
        if not specs:
            return
        _check_source(specs[0])
        tasks = tuple(dict.fromkeys(spec.task for spec in specs))
        group = Group(tuple(specs), work["slots"], work["memory_limit"], work["weights"])
        group = self._sized(replace(group, wanted=work["wanted"], size=work["size"], tasks=tasks))
        number = self.free_places.pop()
        try:
            self.admission.enter(number, group.memory)
            alone = partial(self.admission.get_device_alone, number)
            stream = self.streams[number]
            execute_on_stream(group, self.device, stream, report, self._poll, checkpoints, alone)
        finally:
            self.admission.leave(number)
            self.free_places.append(number)

    def _sized(self, group: Group) -> Group:
        """A group with slots: the process that made it may have no GPU, or another one."""
        with self.sizing:
            return sized(group, self.device, self.memory)

    def _unpack_modules(self, files: Mapping[str, bytes]) -> None:
        """Make the user's modules importable, unless they are: on this machine, or by a shared file system."""
        if all(map(_is_importable, files)):
            return
        folder = Path(self.resources.enter_context(TemporaryDirectory(prefix="assay-")))
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        sys.path.append(str(folder))
        importlib.invalidate_caches()


class RemoteCheckpoints(Checkpoints):
    """Checkpoints that are sent to the process that has the store; those to resume from came from there."""

    def __init__(self, files: Mapping[str, bytes], interval: float, send: Send) -> None:
        self.files = TemporaryDirectory(prefix="assay-") if files else None
        super().__init__(Path(self.files.name if self.files else ""), interval)
        self.send, self.sent = send, False
        for name, data in files.items():
            self.folder.mkdir(exist_ok=True)
            (self.folder / name).write_bytes(data)

    def close(self) -> None:
        if self.files:
            self.files.cleanup()

    def load(self, digest: str) -> Checkpoint | None:
        return super().load(digest) if self.files else None

    def _replace(self, data: bytes, steps: dict[str, int]) -> None:
        self.sent = True
        self.send(("checkpoint", self.path.name, steps, data))

    def delete(self) -> None:
        if self.sent:
            self.send(("obsolete", self.path.name))


class Report:
    """Sends every record, and a status now and then."""

    def __init__(self, send: Send) -> None:
        self.send, self.last = send, -math.inf

    def __call__(self, news: Record | Status | EvaluationStatus) -> None:
        if isinstance(news, Record):
            self.send(("record", news.plain(), dict(news.weights)))
        elif (now := time.monotonic()) - self.last >= STATUS_SECONDS:
            self.last = now
            self.send(("status" if isinstance(news, Status) else "evaluation", tuple(news)))


def _is_importable(file: str) -> bool:
    """Whether there is a module for a path below a folder, as `a/b.py`."""
    with suppress(ImportError, ValueError):
        return (
            importlib.util.find_spec(file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")) is not None
        )
    return False


def _node() -> str:
    """Ray's name for the node of this process."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def _check_source(spec: RunSpec) -> None:
    """Refuse to train another version of a user's module than the one that the spec names."""
    model = spec.model
    if isinstance(model, Foreign) and model.source and source_digest(import_path(model.path)) != model.source:
        raise BadInput(
            f"node {socket.gethostname()} has another version of {model.path}, or of a package that it imports; "
            "install the same one on all nodes"
        )
