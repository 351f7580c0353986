"""What a store has at the moment: members by verdict, newest verdicts, curves. All texts may come from strangers."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from assay.errors import BadInput
from assay.index import Entry
from assay.lab.progress import Progress, progress_of
from assay.record import Record
from assay.store import Store

MOST_BYTES = 8 << 20  # of a record; larger ones are not read
NEWEST = 10  # verdicts that are told
SEGMENTS = 4  # that may hold the newest records
POINTS = 200  # of a curve
CURVES = 20
WIDTH = 80  # letters of a name


class Members(NamedTuple):
    """The runs of one model on one task. `ended` has a seed and a verdict for each run that has ended."""

    task: str
    model: str
    ended: Sequence[tuple[int, str]]
    under_way: int
    waiting: int


class News(NamedTuple):
    """A run that has ended: which one, its verdict, and more about it."""

    task: str
    model: str
    seed: int
    verdict: str
    detail: str


@dataclass(frozen=True)
class Overview:
    """A store at one moment."""

    progress: Progress
    members: tuple[Members, ...]
    newest: tuple[News, ...]  # the newest first

    @property
    def total(self) -> int:
        return len(self.progress.index) + len(self.progress.pending)

    @property
    def is_complete(self) -> bool:
        """Whether all runs that commands have named have ended, and nobody works."""
        return not self.progress.pending and not self.workers

    @cached_property
    def workers(self) -> int:
        """The number of processes at work."""
        return sum(process.is_alive for process in self.progress.processes)


class Observer:
    """Looks at a store again and again, and never writes to it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = FileClock()
        self.packed: Progress | None = None  # that of a packed file, which does not change
        self.ends: Mapping[str, tuple[str, News]] = {}  # what was read, by the place of the record

    def look(self) -> Overview:
        if self.packed is None:
            progress = progress_of(self.store, self.clock.now(self.store))
            if not self.store.path.is_dir():
                self.packed = progress
        else:
            progress = self.packed
        return Overview(progress, tuple(_members(progress)), tuple(self._newest(progress.index.values())))

    def record(self, entry: Entry) -> Record | None:
        """The record of an entry; None if it is too large, damaged or in a packed file."""
        if not 0 < entry.length <= MOST_BYTES:
            return None
        with suppress(BadInput):
            return self.store.load(entry)
        return None

    def curves(self, task: str, model: str) -> list[dict[str, Any]]:
        """The curves of the newest runs of a model on a task that have ended, thinned; names as they are shown."""
        entries = (e for e in self.store.index().values() if (shown(e.task), shown(e.model)) == (task, model))
        newest = heapq.nlargest(CURVES, entries, key=lambda entry: (entry.segment, entry.offset))
        records = ((entry.seed, self.record(entry)) for entry in newest)
        return [_curve(seed, record) for seed, record in records if record and record.curve]

    def _newest(self, entries: Iterable[Entry]) -> Iterator[News]:
        """The newest runs that have ended: the ends of the segments that were written last, by when the runs ended."""
        if not self.store.path.is_dir():
            return
        by_segment = dict[str, list[Entry]]()
        for entry in entries:
            by_segment.setdefault(entry.segment, []).append(entry)
        last = heapq.nlargest(SEGMENTS, by_segment, key=self._written)
        candidates = [
            entry for name in last for entry in heapq.nlargest(NEWEST, by_segment[name], key=lambda entry: entry.offset)
        ]
        self.ends = {e.place: self._end(e) for e in candidates}
        for entry in heapq.nlargest(NEWEST, candidates, key=lambda entry: self.ends[entry.place][0]):
            yield self.ends[entry.place][1]

    def _end(self, entry: Entry) -> tuple[str, News]:
        """When a run ended, and what is told of it; each record is read once."""
        if entry.place in self.ends:
            return self.ends[entry.place]
        record = self.record(entry)
        detail = _detail(record) if record else "its record cannot be shown"
        news = News(shown(entry.task), shown(entry.model), entry.seed, shown(entry.verdict), detail)
        return (record.ended if record else "", news)

    def _written(self, segment: str) -> float:
        with suppress(OSError):
            return (self.store.path / "segments" / segment).stat().st_mtime
        return 0.0


class FileClock:
    """The file system's clock, estimated without writing: when a heartbeat comes, it is as late as the heartbeat."""

    def __init__(self) -> None:
        self.newest: float | None = None
        self.ahead = 0.0  # of our clock

    def now(self, store: Store) -> float:
        times = []
        for path in (store.path / "workers").glob("*.json"):
            with suppress(OSError):
                times.append(path.stat().st_mtime)
        newest = max(times, default=0.0)
        if self.newest is not None and newest > self.newest:
            self.ahead = newest - time.time()
        self.newest = newest
        return time.time() + self.ahead


def shown(text: str, width: int = WIDTH) -> str:
    """A text that may be anything, on one line, without signs that control a terminal or turn text around.

    >>> shown("lstm\\x1b[2J\\u202e"), shown("a" * 9, 4)
    ('lstm�[2J�', 'aaa…')
    """
    cut = text if len(text) <= width else f"{text[: width - 1]}…"
    return "".join(letter if letter.isprintable() else "�" for letter in cut)


def _members(progress: Progress) -> Iterator[Members]:
    """Groups in the order in which they were named, those of which nothing is left first."""
    ended = dict[tuple[str, str], list[tuple[int, str]]]()
    for entry in progress.index.values():
        ended.setdefault((entry.task, entry.model), []).append((entry.seed, entry.verdict))
    pending = Counter(progress.pending.values())
    under_way = Counter[tuple[str, str]]()
    for process in progress.processes:
        for group in process.under_way if process.is_alive else ():
            under_way[group.task, group.model] += group.runs
    for key in dict.fromkeys([*ended, *pending, *under_way]):
        working = min(under_way[key], pending[key]) if key in pending else under_way[key]
        runs = [(seed, shown(verdict)) for seed, verdict in sorted(ended.get(key, ()))]
        task, model = map(shown, key)
        yield Members(task, model, runs, working, max(0, pending[key] - working))


def _detail(record: Record) -> str:
    """Why a run failed, or its shortest wrong input, or at which step it was solved."""
    if record.error:
        return shown(record.error, 200)
    if record.verdict == "solved" and record.solved_at:
        return f"at step {record.solved_at:,}"
    if record.wrong_word:
        return f"wrong on {shown(record.wrong_word)}"
    return f"wrong from length {record.first_failing_length:,}" if record.first_failing_length else ""


def _curve(seed: int, record: Record) -> dict[str, Any]:
    """A curve as JSON data: step, training loss, and the share of right sequences in the first validation bin."""
    every = math.ceil(len(record.curve) / POINTS)
    points = [*record.curve[:-1:every], *record.curve[-1:]]
    training = record.spec.get("training")
    rate = training.get("lr") if isinstance(training, dict) else None
    return {
        "seed": seed,
        "verdict": record.verdict,
        "rate": _finite(rate) if isinstance(rate, int | float) else None,
        "points": [[p.step, _finite(p.loss), _finite(next(iter(p.sequences.values()), None))] for p in points],
    }


def _finite(number: float | None) -> float | None:
    """A number of a record for JSON; None if it is too large for a float, infinite or NaN."""
    with suppress(OverflowError):
        return number if number is not None and math.isfinite(number) else None
    return None
