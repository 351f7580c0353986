"""Where the figures of a page come from, and what is not in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from assay.record import Record


def facts(records: Sequence[Record], missing: int, note: str) -> list[str]:
    """The note says how the page's own figures are to be read."""
    said = [
        f"{len(records):,} runs, {took(records)} in all; {note}.",
        f"Commit {each(r.commit or 'unknown' for r in records)}; device {each(r.device for r in records)}; "
        f"torch {each(r.versions.get('torch', '?') for r in records)}; "
        f"seeds {each(str(r.seed) for r in records)}.",
    ]
    shared = [score for r in records for score in r.scores if score.shared and not score.probe]
    if shared:
        tasks = sorted({r.task for r in records if any(score.shared for score in r.scores)})
        said.append(
            "Some lengths have fewer than 64 strings, too few to hold any out: test rows that training or validation "
            f"may have shown occur in {', '.join(tasks)} (the records count them)."
        )
    said += [f"Failed: {r.task} {r.model} seed {r.seed}: {r.error}" for r in records if r.error]
    if missing:
        said.append(f"{missing:,} runs of the study are not in the store yet.")
    return said


def took(records: Iterable[Record]) -> str:
    """`12.3 minutes of device time`; of runs that do not say when they ended, minutes of work."""
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault("device time" if _timed(record) else "work", []).append(record)
    return " and ".join(f"{minutes({kind: some})[kind]:,.1f} minutes of {kind}" for kind, some in sorted(kinds.items()))


def minutes(groups: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """The minutes that each group had a device for, shared equally by the groups that were under way on it.

    Of runs that do not say when they began and ended, the minutes of work.
    """
    seconds = {name: sum(sum(r.seconds.values()) for r in some if not _timed(r)) for name, some in groups.items()}
    known = {name: [record for record in some if _timed(record)] for name, some in groups.items()}
    for device in {record.device for some in known.values() for record in some}:
        busy = {name: _union(_span(r) for r in some if r.device == device) for name, some in known.items()}
        edges = sorted({edge for spans in busy.values() for span in spans for edge in span})
        for low, high in pairwise(edges):
            here = [name for name, spans in busy.items() if any(a <= low and high <= b for a, b in spans)]
            for name in here:
                seconds[name] += (high - low) / len(here)
    return {name: some / 60 for name, some in seconds.items()}


def _timed(record: Record) -> bool:
    return bool(record.started and record.ended)


def _span(record: Record) -> tuple[float, float]:
    return tuple(datetime.fromisoformat(at).timestamp() for at in (record.started, record.ended))  # type: ignore[return-value]


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same stretches of time, each once."""
    found: list[tuple[float, float]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def each(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))
