"""How far the work on a store is: what is done, under way, failed and left, for whatever command asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from assay.index import Entry
from assay.lab.leases import LIFETIME, reports
from assay.lab.plan_file import noted_runs
from assay.store import Store

TEXTS = ("name", "host", "device", "command", "started")  # fields of a heartbeat


class UnderWay(NamedTuple):
    """Runs of one task and model that a process carries out, and for how many seconds the first of them."""

    task: str
    model: str
    runs: int
    seconds: float


@dataclass(frozen=True)
class Process:
    """A process that works on a store, as its heartbeat describes it. `age` is that of the heartbeat, in seconds.

    It is `gone` if it ran on this machine and was killed.
    """

    name: str
    host: str
    pid: int
    device: str
    command: str
    started: str
    seconds: float
    age: float
    gone: bool
    is_alive: bool
    under_way: tuple[UnderWay, ...]
    ended: Mapping[str, int]

    @property
    def runs(self) -> int:
        return sum(group.runs for group in self.under_way)


@dataclass(frozen=True)
class Progress:
    """The runs of a store by verdict, the processes at work, and how many runs their commands have left."""

    verdicts: Counter[str]
    failed: tuple[Entry, ...]
    processes: tuple[Process, ...]
    left: int  # of the runs that commands have named; not under way, and not failed

    @property
    def done(self) -> int:
        return sum(count for verdict, count in self.verdicts.items() if verdict != "failed")

    @property
    def under_way(self) -> int:
        return sum(process.runs for process in self.processes if process.is_alive)

    @property
    def seconds_left(self) -> float | None:
        """At the rate at which the processes that are alive have ended runs; None if none has."""
        alive = [process for process in self.processes if process.is_alive]
        rate = sum(sum(process.ended.values()) / max(process.seconds, 1.0) for process in alive)
        return (self.left + self.under_way) / rate if rate else None


def progress_of(store: Store) -> Progress:
    """The state of the work, from the index and the heartbeats."""
    index = store.index()
    processes = tuple(_processes(store.path))
    under_way = sum(process.runs for process in processes if process.is_alive)
    named = len(noted_runs(store.path) - index.keys())
    failed = tuple(entry for entry in index.values() if not entry.finished)
    verdicts = Counter(entry.verdict for entry in index.values())
    return Progress(verdicts, failed, processes, max(0, named - under_way))


def _processes(store: Path) -> Iterator[Process]:
    for report in reports(store):
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # damaged, or of another version
            groups = [_under_way(group) for group in report["under_way"]]
            yield Process(
                **{name: str(report[name]) for name in TEXTS},
                pid=int(report["pid"]),
                seconds=float(report["seconds"]),
                age=report["age"],
                gone=report["gone"],
                is_alive=not report["gone"] and report["age"] < LIFETIME,
                under_way=tuple(groups),
                ended={str(verdict): int(count) for verdict, count in report["ended"].items()},
            )


def _under_way(plain: Mapping[str, Any]) -> UnderWay:
    return UnderWay(str(plain["task"]), str(plain["model"]), int(plain["runs"]), float(plain["seconds"]))
