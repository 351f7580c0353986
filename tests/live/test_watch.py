"""`assay watch`: one picture, lines where there is no terminal, and dots in one."""

from __future__ import annotations

import doctest
import io
import os
import threading
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from assay.cli import app
from assay.lab.plan_file import note_runs
from assay.live import overview
from assay.live.overview import FileClock, Observer
from assay.live.watch import picture, watch
from assay.store import Store
from tests.lab.waiting import wait_until

from .stores import hostile, record, specs, under_way


def test_doctests():
    assert doctest.testmod(overview).failed == 0


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def plain(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, highlight=False)


def test_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    with under_way(tmp_path / "s") as (store, _):
        text = CliRunner().invoke(app, ["watch", str(store.path), "--once"]).output
        left = "2 of 4 runs ended (1 solved, 1 failed), 1 under way, about 0:10 left, 1 process at work"
        assert text.splitlines()[0] == left
        assert "parity  lstm  ●!◌·\n" in text
        assert "● solved  ! failed  ◌ under way  · waiting" in text
        assert "lstm parity: step 300 of 2,000, loss 0.250, 50.0 %, 10/s, 2:50 left" in text
        verdicts = "parity lstm seed 1: failed out of luck\nparity lstm seed 0: solved at step 40\n"
        assert text.endswith(f"newest verdicts\n{verdicts}")


def test_lines_until_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.live.watch.STATUS_SECONDS", 1e9)
    with under_way(tmp_path / "s") as (store, runs):
        console, observer = plain(), Observer(Store.open(store.path))
        observer.look()
        watching = threading.Thread(target=watch, args=(console, observer, 0.01, False))
        watching.start()
        wait_until(lambda: printed(console), "the first line")
        Store.create(store.path).add(*(record(run, ended="2026-01-02") for run in runs[2:]))
    watching.join(20)
    assert not watching.is_alive()
    first, *lines, last = printed(console).splitlines()
    assert first.startswith("2 of 4 runs ended")
    assert sorted(lines) == [f"parity lstm seed {seed}: solved at step 40" for seed in (2, 3)]
    assert last == "4 of 4 runs ended (3 solved, 1 failed), 0 processes at work"


def test_of_many_runs_that_end_at_once_the_newest_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("overview", "watch"):
        monkeypatch.setattr(f"assay.live.{module}.NEWEST", 1)
    store, runs, console = Store.create(tmp_path / "s"), specs(), plain()
    note_runs(store.path, runs)
    records = [record(run, ended=f"2026-01-0{run.seed + 1}") for run in runs.values()]
    monkeypatch.setattr("time.sleep", lambda _: store.add(*records))
    watch(console, Observer(Store.open(store.path)), 1.0, once=False)
    assert printed(console).splitlines() == [
        "0 of 4 runs ended, 0 under way, time left not known yet, 0 processes at work",
        "3 runs ended before these:",
        "parity lstm seed 3: solved at step 40",
        "4 of 4 runs ended (4 solved), 0 processes at work",
    ]


def test_dots_in_a_terminal(tmp_path: Path):
    """They fit: of many members the numbers, of many groups those with work."""
    store = Store.create(tmp_path / "s")
    models = ("lstm", "gru", "elman", "transformer", "delta-net", "srwm")
    for model in models:
        store.add(*(record(run, ended="2026-01-01") for run in specs(model, 30 if model == "gru" else 2).values()))
    console = Console(file=io.StringIO(), force_terminal=True, width=40, height=12, highlight=False, color_system=None)
    watch(console, Observer(store), 0.01, once=False)
    text = printed(console)
    assert "and 3 more groups" in text
    assert "● 30 solved" in text
    assert text.count("parity  ") == 3
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80, highlight=False)
    with ascii_only.capture() as capture:
        ascii_only.print(picture(ascii_only, Observer(store).look()))
    assert "parity  lstm         SS" in capture.get()


def test_texts_of_strangers_are_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, console = hostile(tmp_path / "s"), plain(400)
    look = Observer(store).look()
    console.print(picture(console, look))
    text = printed(console)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>alert(2)</script>" in text
    assert "failed <img src=x onerror=alert(1)> xxx" in text
    assert max(map(len, text.splitlines())) < 300, "an error is cut"
    assert [process.seconds for process in look.progress.processes] == [5.0]
    assert look.progress.processes[0].statuses == ()
    assert look.total == 3
    monkeypatch.setattr(overview, "MOST_BYTES", 10)
    assert {news.detail for news in Observer(store).look().newest} == {"its record cannot be shown"}


def test_of_a_packed_file_and_of_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    with under_way(tmp_path / "s") as (store, _):
        store.pack(tmp_path / "p.jsonl.xz")
    result = CliRunner().invoke(app, ["watch", str(tmp_path / "p.jsonl.xz")])
    assert "2 of 2 runs ended (1 solved, 1 failed), 0 processes at work" in result.output
    for every in ("nan", "inf", "0"):
        wrong = CliRunner().invoke(app, ["watch", str(tmp_path / "s"), "--every", every])
        assert f"--every {every} is not valid: seconds from 0.1 to 3600" in str(wrong.exception)
    missing = CliRunner().invoke(app, ["watch", str(tmp_path / "missing")])
    assert "there is no store at" in str(missing.exception)


def test_the_clock_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One that is an hour ahead is known as soon as a heartbeat comes."""
    store, clock, path = Store.create(tmp_path / "s"), FileClock(), tmp_path / "s" / "workers" / "a.json"
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert clock.now(store) == 1000
    path.parent.mkdir()
    path.touch()
    os.utime(path, (4600, 4600))
    assert clock.now(store) == 4600
    monkeypatch.setattr("time.time", lambda: 1007.0)
    assert clock.now(store) == 4607
