"""How far the work on a store is: what is done, under way, failed and left, for whatever command asks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from assay.index import Entry
from assay.lab.leases import LIFETIME, reports
from assay.lab.status import EvaluationStatus, Status
from assay.store import Store, noted_runs

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
    statuses: tuple[Status | EvaluationStatus, ...]  # of its workers

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
    index: Mapping[str, Entry]
    pending: Mapping[str, tuple[str, str]]  # task and model of the runs that are left or under way, by digest

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


def progress_of(store: Store, now: float | None = None) -> Progress:
    """The state of the work, from the index and the heartbeats; `now` is the time by the clock of the file system."""
    index = store.index()
    processes = tuple(_processes(store.path, now))
    under_way = sum(process.runs for process in processes if process.is_alive)
    pending = {name: group for name, group in noted_runs(store.path).items() if name not in index}
    failed = tuple(entry for entry in index.values() if not entry.finished)
    verdicts = Counter(entry.verdict for entry in index.values())
    return Progress(verdicts, failed, processes, max(0, len(pending) - under_way), index, pending)


def _processes(store: Path, now: float | None) -> Iterator[Process]:
    for report in reports(store, now):
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):  # damaged, or of another version
            groups = [_under_way(group) for group in report["under_way"]]
            yield Process(
                **{name: str(report[name]) for name in TEXTS},
                pid=_count(report["pid"]),
                seconds=_finite(report["seconds"]),
                age=report["age"],
                gone=report["gone"],
                is_alive=not report["gone"] and report["age"] < LIFETIME,
                under_way=tuple(groups),
                ended={str(verdict): _count(count) for verdict, count in report["ended"].items()},
                statuses=tuple(filter(None, map(_status, report.get("statuses", {}).values()))),
            )


def _under_way(plain: Mapping[str, Any]) -> UnderWay:
    return UnderWay(str(plain["task"]), str(plain["model"]), _count(plain["runs"]), _finite(plain["seconds"]))


def _count(number: Any) -> int:
    if not 0 <= int(number) < 1 << 40:
        raise ValueError(f"{number} is no count")
    return int(number)


def _finite(number: Any) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{number} seconds")
    return float(number)


READERS: dict[Any, Any] = {str: str, int: int, float: float, tuple[str, ...]: lambda names: tuple(map(str, names))}


def _status(plain: Any) -> Status | EvaluationStatus | None:
    """What a worker said last; None if it is damaged."""
    kinds: dict[str, type[Status | EvaluationStatus]] = {"Status": Status, "EvaluationStatus": EvaluationStatus}
    with suppress(TypeError, ValueError, OverflowError, KeyError):
        kind = kinds[plain[0]]
        types = get_type_hints(kind).values()
        status = kind(*(READERS[type_](value) for type_, value in zip(types, plain[1:], strict=True)))
        _finite(getattr(status, "seconds_left", 0.0))
        return status
    return None
