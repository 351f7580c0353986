"""`assay status`: what is done, under way, failed and left, as several processes see it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.lab.leases import Leases
from assay.lab.plan_file import note_runs
from assay.lab.progress import progress_of
from assay.record import Record, Verdict
from assay.spec import run_spec
from assay.store import Store

SPEC = run_spec("parity", "lstm").plain()


def record(name: str, verdict: Verdict = "solved") -> Record:
    error = "out of luck" if verdict == "failed" else None
    return Record(digest=name, spec=SPEC, verdict=verdict, stopped="error" if error else "solved", error=error)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Ten runs, of which three have ended."""
    store = Store.create(tmp_path / "s")
    store.add(record("a"), record("b"), record("c", "failed"))
    note_runs(store.path, dict.fromkeys("abcdefghij", run_spec("parity", "lstm")))
    return store


def working(store: Store, **changes: object) -> Leases:
    """A process that carries out two runs and has ended one in ten seconds."""
    leases = Leases(store.path, "cpu")
    under_way = [{"task": "parity", "model": "lstm", "runs": 2, "seconds": 61.0}]
    activity = {"under_way": under_way, "ended": {"solved": 1}, "seconds": 10.0, **changes}
    leases.activity = lambda: activity
    return leases


def status(store: Store) -> str:
    return CliRunner().invoke(app, ["status", str(store.path)]).output


def test_of_a_store_without_any_work(store: Store):
    text = status(store)
    assert "done       2 (2 solved)" in text
    assert "failed     1 (the same command tries them again)" in text
    assert "left       7" in text
    assert "failed: parity lstm seed 0: out of luck" in text
    assert "process" not in text


def test_of_processes_that_work(store: Store):
    with working(store), working(store, machine="another", host="elsewhere", pid=7):
        text = status(store)
        assert "under way  4" in text
        assert "left       3, about 0:35 at the present rate" in text, "7 runs at 2 in 10 seconds"
        for place in (str(os.getpid()), "elsewhere 7"):
            assert re.search(rf"{place} +cpu +0:10 +lstm parity: 2 runs, 1:01\n", text)
        plain = json.loads(CliRunner().invoke(app, ["status", str(store.path), "--json"]).output)
        assert (plain["done"], plain["under_way"], plain["failed"], plain["left"]) == (2, 4, 1, 3)
        assert plain["seconds_left"] == pytest.approx(35)
    assert progress_of(store).under_way == 0


def test_of_processes_that_do_not_answer(store: Store):
    """One was killed here; of the other, on another machine, only its silence is known, by the file system's clock."""
    with working(store, pid=2**30), working(store, machine="another", host="elsewhere") as silent:
        path = store.path / "workers" / f"{silent.name}.json"
        os.utime(path, (path.stat().st_mtime - 3700,) * 2)
        text = status(store)
        assert "under way  0" in text
        assert "left       7\n" in text
        assert "killed" in text
        assert "no sign of life for 1:01:40" in text


def test_damaged_heartbeats_are_passed_over(store: Store):
    with working(store) as leases:
        report = json.loads((store.path / "workers" / f"{leases.name}.json").read_text())
        damages: tuple[dict[str, object], ...] = (
            {"under_way": [5]},
            {"under_way": 5},
            {"pid": "x"},
            {"ended": []},
            {"seconds": None},
            {"host": [1]},
        )
        for number, damage in enumerate(damages):
            (store.path / "workers" / f"{number}.json").write_text(json.dumps(report | damage))
        (store.path / "workers" / "list.json").write_text("[]")
        (store.path / "workers" / "torn.json").write_text("{")
        assert "under way  4" in status(store), "those of this process, and of a host with a strange name"


def test_of_a_packed_file_and_of_nothing(store: Store, tmp_path: Path):
    store.pack(tmp_path / "p.jsonl.xz")
    assert "done       2 (2 solved)" in CliRunner().invoke(app, ["status", str(tmp_path / "p.jsonl.xz")]).output
    result = CliRunner().invoke(app, ["status", str(tmp_path / "missing")])
    assert "there is no store at" in str(result.exception)
