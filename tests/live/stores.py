"""Stores at which commands work, and one whose records and heartbeats come from a stranger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.index import index_path
from assay.lab.leases import Leases
from assay.lab.plan_file import note_runs
from assay.record import Point, Record
from assay.spec import RunSpec, run_spec
from assay.store import Store

IMAGE = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(2)</script>"
CONTROL = "\x1b[2J\u202emodel"


def record(run: RunSpec, **changes: Any) -> Record:
    points = tuple(
        Point(step=step, loss=1 / step, sequences={"Bin0": step / 40}, answers={"Bin0": 1.0}) for step in (10, 20, 40)
    )
    fields: dict[str, Any] = {
        "verdict": "solved",
        "stopped": "solved",
        "solved_at": 40,
        "curve": points,
        "seconds": {"training": 1.0},
    }
    return Record(**({"digest": run.digest, "spec": run.plain()} | fields | changes))


def specs(model: str = "lstm", count: int = 4) -> dict[str, RunSpec]:
    runs = [run_spec("parity", model, seed=seed) for seed in range(count)]
    return {run.digest: run for run in runs}


@contextmanager
def under_way(folder: Path) -> Iterator[tuple[Store, list[RunSpec]]]:
    """A store with four runs, of which two have ended and one is under way; and the specs."""
    store, runs = Store.create(folder), specs()
    first, second, *_ = runs.values()
    store.add(record(first, ended="2026-01-01T00:00:01"))
    store.add(record(second, verdict="failed", stopped="error", error="out of luck", ended="2026-01-01T00:00:02"))
    note_runs(store.path, runs)
    leases = Leases(store.path, "cpu")
    status = ["Status", "lstm", ["parity"], 1, 1, 0, 0, 0, 0, 0.5, 0.5, 300, 2000, 0.25, 10.0, 170.0]
    groups = [{"task": "parity", "model": "lstm", "runs": 1, "seconds": 3.0}]
    leases.activity = lambda: {"under_way": groups, "ended": {"solved": 2}, "statuses": {0: status}, "seconds": 10.0}
    with leases:
        yield store, list(runs.values())


def hostile(folder: Path) -> Store:
    """Names with markup and control signs, an index that lies, and heartbeats of nonsense."""
    store = Store.create(folder)
    spec = {"task": {"kind": IMAGE}, "model": {"name": SCRIPT}, "seed": 7, "training": {"lr": float("inf")}}
    strange = {"task": {"kind": "parity"}, "model": {"name": CONTROL}, "seed": 10**30, "training": {"lr": 10**400}}
    (run,) = specs(count=1).values()
    store.add(record(run, digest="a", spec=spec, verdict="failed", stopped="error", error=f"{IMAGE} " + "x" * 10_000))
    store.add(record(run, digest="b", spec=strange, verdict="censored", stopped="steps", ended="9"))
    (segment,) = (store.path / "segments").glob("*.jsonl")
    *lines, last = index_path(segment).read_text().splitlines()
    lie = json.loads(last)
    lie[1] = {"a": [1]}
    index_path(segment).write_text("\n".join([*lines, json.dumps(lie), ""]))
    workers, plans = store.path / "workers", store.path / "plans"
    workers.mkdir()
    plans.mkdir()
    leases = Leases(store.path, IMAGE)
    nonsense: list[dict[str, Any]] = [
        {"under_way": [{"task": IMAGE, "model": SCRIPT, "runs": 10**400, "seconds": 1.0}], "ended": {}, "seconds": 1.0},
        {"under_way": [], "ended": {"solved": -1}, "seconds": 1.0},
        {"under_way": [], "ended": {}, "seconds": float("nan")},
        {
            "under_way": [],
            "ended": {},
            "seconds": 5.0,
            "statuses": {"0": ["Status", [1]], "1": 5, "2": ["Status"] * 16},
        },
    ]
    for number, changes in enumerate(nonsense):
        text = json.dumps(leases.description | {"name": IMAGE, "host": CONTROL} | changes)
        (workers / f"{number}.json").write_text(text)
    (workers / "large.json").write_text("[" * (2 << 20))
    (workers / "deep.json").write_text("[" * 100_000)
    for name, text in {
        "deep": "[" * 100_000,
        "list": '[["a", {}, 5]]',
        "names": json.dumps([[IMAGE, SCRIPT, ["z"]]]),
    }.items():
        (plans / f"{name}.runs").write_text(text)
    return store
