"""The origin of a page's numbers: runs, commits, devices, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assay.analysis.device_time import minutes_by_kind
from assay.record import Record
from assay.report.text import distinct


def provenance(records: Sequence[Record], missing: int, note: str, titles: Mapping[str, str]) -> list[str]:
    """Lines for the end of a page; the note says how the page's numbers are to be read."""
    lines = [
        f"{len(records):,} runs, {device_time(records)} in all; {note}.",
        f"Commit {distinct(r.commit or 'unknown' for r in records)}; device {distinct(r.device for r in records)}; "
        f"torch {distinct(r.versions.get('torch', '?') for r in records)}; "
        f"seeds {', '.join(map(str, sorted({r.seed for r in records})))}.",
    ]
    shared = {r.task for r in records if any(score.shared and not score.probe for score in r.scores)}
    if shared:
        names = ", ".join(sorted(titles.get(task, task) for task in shared))
        lines.append(
            "Lengths with fewer than 64 strings have too few to hold any out of training: rows of the tests that may "
            f"also have occurred in training or validation exist in {names} (each record counts them)."
        )
    tested = [record for record in records if record.scores]
    if unprobed := sum(record.probing is None for record in tested if record.verdict in ("solved", "partly solved")):
        lines.append(
            f"{unprobed:,} of these runs were not probed: they are right on the random inputs that were drawn, and "
            "nothing more is known of them (docs/verdicts.md)."
        )
    lines += [f"Failed: {titles.get(r.task, r.task)} {r.model} seed {r.seed}: {r.error}" for r in records if r.error]
    if missing:
        lines.append(f"{missing:,} runs of the study are not in the store yet.")
    return lines


def device_time(records: Iterable[Record]) -> str:
    """`12.3 minutes of device time`."""
    return " and ".join(f"{minutes:,.1f} minutes of {kind}" for kind, minutes in minutes_by_kind(records).items())
