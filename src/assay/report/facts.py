"""Where the figures of a page come from, and what is not in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from assay.record import Record


def facts(records: Sequence[Record], missing: int) -> list[str]:
    said = [
        f"{len(records)} runs, {minutes(records):.1f} minutes of work in all; bins show the mean share of right "
        "sequences in %, a run that diverged counting as 0; steps and seconds are medians over the seeds that solved.",
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
        said.append(f"{missing} runs of the study are not in the store yet.")
    return said


def minutes(records: Iterable[Record]) -> float:
    return sum(sum(record.seconds.values()) for record in records) / 60


def device_minutes(groups: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """The minutes that each group had a device for, shared equally by the groups that were under way on it.

    Groups with a record that does not say when it began and ended are left out.
    """
    known = {name: some for name, some in groups.items() if some and all(r.started and r.ended for r in some)}
    spent = dict.fromkeys(known, 0.0)
    for device in {record.device for some in known.values() for record in some}:
        busy = {name: [_span(r) for r in some if r.device == device] for name, some in known.items()}
        edges = sorted({edge for spans in busy.values() for span in spans for edge in span})
        for low, high in pairwise(edges):
            here = [name for name, spans in busy.items() if any(a <= low and high <= b for a, b in spans)]
            for name in here:
                spent[name] += (high - low) / 60 / len(here)
    return spent


def _span(record: Record) -> tuple[float, float]:
    return tuple(datetime.fromisoformat(at).timestamp() for at in (record.started, record.ended))  # type: ignore[return-value]


def each(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))
