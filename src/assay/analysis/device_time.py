"""How long runs occupied a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from assay.record import Record

Interval = tuple[float, float]  # seconds


def minutes_by_kind(records: Iterable[Record]) -> dict[str, float]:
    """Minutes of `device time`; of runs that do not say when they ended, minutes of `work`."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault("device time" if _timed(record) else "work", []).append(record)
    return {kind: device_minutes({kind: group})[kind] for kind, group in sorted(kinds.items())}


def device_minutes(groups: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """The minutes that each group had a device for; groups that ran on it at the same time share its time equally.

    Of runs that do not say when they began and ended, the minutes of work.
    """
    seconds = {name: sum(sum(r.seconds.values()) for r in group if not _timed(r)) for name, group in groups.items()}
    timed = {name: [record for record in group if _timed(record)] for name, group in groups.items()}
    for device in {record.device for group in timed.values() for record in group}:
        busy = {name: _union(_interval(r) for r in group if r.device == device) for name, group in timed.items()}
        edges = sorted({edge for intervals in busy.values() for interval in intervals for edge in interval})
        for low, high in pairwise(edges):
            active = [name for name, intervals in busy.items() if any(a <= low and high <= b for a, b in intervals)]
            for name in active:
                seconds[name] += (high - low) / len(active)
    return {name: spent / 60 for name, spent in seconds.items()}


def _timed(record: Record) -> bool:
    return bool(record.started and record.ended)


def _interval(record: Record) -> Interval:
    start, end = (datetime.fromisoformat(time).timestamp() for time in (record.started, record.ended))
    return start, end


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals that cover the same time."""
    union: list[Interval] = []
    for low, high in sorted(intervals):
        if union and low <= union[-1][1]:
            union[-1] = union[-1][0], max(high, union[-1][1])
        else:
            union.append((low, high))
    return union
