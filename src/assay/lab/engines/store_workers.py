"""The engine whose workers lease runs from the store for themselves; this process starts them and follows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from assay.errors import BadInput
from assay.index import Entry
from assay.lab.engines.engine import Event, OnEvent
from assay.lab.engines.launchers import Launcher
from assay.lab.interrupts import sleep_unless_stopped, stop_on_signal
from assay.lab.leases import reports
from assay.lab.plan import Group, Plan
from assay.lab.status import read_status
from assay.store import Store

MOST_REPLACED = 10  # times that each worker is replaced while others run
POLL_SECONDS = 1.0  # between two looks at the store and at the workers


class StoreWorkers:
    """Keeps up to `count` workers of a launcher at work on a plan; `earlier` is that of the saved plan.

    It asks for no group: the workers lease their runs, and store the records. It returns when all of its workers have
    ended, also while other processes carry out runs that are left.
    """

    def __init__(self, plan: Plan, store: Path, launcher: Launcher, count: int, earlier: Mapping[str, str]) -> None:
        self.plan, self.store, self.launcher, self.count, self.earlier = plan, store, launcher, count, earlier
        self.numbers: dict[tuple[str, int], int] = {}  # of workers, for events
        self.reported = self.replaced = 0  # failures of workers, and how many were replaced while others ran

    def run(self, groups: Iterable[Group], on_event: OnEvent) -> None:
        store = Store.open(self.store)
        self._report_records(store, store.index().values(), on_event)
        with stop_on_signal() as poll:
            try:
                left, started = len(self.plan.pending), False
                while self.plan.pending:
                    poll()
                    alive = self.launcher.alive()  # before the store is read: who has ended, has stored its records
                    self._report_records(store, store.news(), on_event)
                    if not self.plan.pending:
                        return
                    self._report_statuses(on_event)
                    if alive == 0 and started:
                        self._require_progress(left)
                        return
                    if alive == 0:
                        self.launcher.start(min(self.count, left))
                        started = True
                    elif (deaths := self._report_failures(on_event)) and self.replaced < MOST_REPLACED * self.count:
                        self.replaced += self.launcher.start(deaths)
                    sleep_unless_stopped(POLL_SECONDS)
            finally:
                self.launcher.stop()
                self._report_records(store, store.news(), on_event)

    def _report_records(self, store: Store, entries: Iterable[Entry], on_event: OnEvent) -> None:
        for entry in entries:
            if entry.digest in self.plan.pending and self.earlier.get(entry.digest) != entry.place:
                on_event(Event(record=store.load(entry), stored=True))

    def _report_statuses(self, on_event: OnEvent) -> None:
        """Report what the workers' heartbeats say."""
        reported = set[int]()
        for report in reports(self.store):
            with suppress(TypeError, ValueError, AttributeError):  # a heartbeat that is damaged, or of another version
                for number, plain in report.get("statuses", {}).items():
                    status = read_status(plain)
                    worker = self.numbers.setdefault((report["name"], int(number)), len(self.numbers))
                    reported.add(worker)
                    on_event(Event(worker, status=status))
        for worker in {*self.numbers.values()} - reported:
            on_event(Event(worker))

    def _report_failures(self, on_event: OnEvent) -> int:
        """Report failures of workers; returns how many were not of a kind that another worker would have as well."""
        failures = self.launcher.failures()
        news, self.reported = failures[self.reported :], len(failures)
        for failure in news:
            on_event(Event(message=failure.reason))
        return sum(not failure.bad_input for failure in news)

    def _require_progress(self, left: int) -> None:
        """BadInput if all workers have ended and the last of them had bad input, or achieved nothing."""
        failures = self.launcher.failures()
        if failures and (failures[-1].bad_input or len(self.plan.pending) >= left):
            raise BadInput(f"no worker is left: {failures[-1].reason}")
