"""The interface of an engine, and the events that it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from assay.lab.plan import Group
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record


@dataclass(frozen=True)
class Event:
    """News from a worker: the status of its group, the record of a run that has ended, or neither if it is idle.

    `stored` says that another process has stored the record. `message` is for people: why everything waits.
    """

    worker: int = 0
    status: Status | EvaluationStatus | None = None
    record: Record | None = None
    stored: bool = False
    message: str = ""


OnEvent = Callable[[Event], None]


class Engine(Protocol):
    """Carries out groups of runs somewhere.

    `run` returns when every run has been reported as a record. A run counts as done when `on_event` has returned from
    its record, so an engine may only then drop what it would need to resume it. KeyboardInterrupt stops the engine; it
    first saves the runs that are under way.
    """

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None: ...
