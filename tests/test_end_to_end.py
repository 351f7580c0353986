"""Whole studies, interrupted and killed: what is finished is never repeated."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.lab.memory import SHARE
from assay.lab.sweep import Event, Piece, Worker, pending, sweep
from assay.record import Record, Store
from assay.spec import RunSpec, run_spec

STUDY = """
from assay.spec import run_spec
RUNS = [run_spec("parity", "gru", seed=s, model_options={"width": 8},
                 training={"steps": 150, "lengths": [2, 12], "validate_every": 10, "stop": "never"},
                 testing={"rows": 16})
        for s in range(8)]
"""


def start(folder: Path, jobs: int = 2, *options: str) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(STUDY)
    command = [sys.executable, "-m", "assay", "study", "mine.py", "--jobs", str(jobs), "--device", "cpu", *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_records(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list((folder / "assay-store" / "segments").glob("*.jsonl"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def facts(record: Record) -> dict[str, object]:
    return record.model_dump(exclude={"seconds", "started", "ended", "commit", "population"})


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_study_repeats_no_finished_run(tmp_path: Path, jobs: int):
    child = start(tmp_path, jobs)
    wait_for_records(tmp_path, 3)
    child.send_signal(signal.SIGKILL)
    child.wait()
    time.sleep(1.0)  # orphans notice at their next word and leave; what they had finished they may still write
    kept = {r.digest: r for r in Store.open(tmp_path / "assay-store").records()}
    assert 3 <= len(kept) < 8
    again = start(tmp_path, jobs)
    assert again.wait(timeout=240) == 0
    told = again.stdout.read()
    assert f"{len(kept)} of 8 runs are already in" in told
    records = list(Store.open(tmp_path / "assay-store").history())
    assert Counter(r.digest for r in records).most_common(1)[0][1] == 1
    assert len(records) == 8


@pytest.mark.parametrize(("jobs", "slots"), [(2, 1), (1, 3)])
def test_killed_again_and_again_it_ends_with_the_same_records(tmp_path: Path, jobs: int, slots: int):
    """At moments of no choosing, each time later in the work, since it goes on from its checkpoints."""
    options, chance = ("--checkpoint", "0", "--slots", str(slots)), random.Random(jobs)
    for _ in range(3):
        child = start(tmp_path, jobs, *options)
        wait_for_more_checkpoints(tmp_path, child)
        time.sleep(chance.uniform(0, 0.5))
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(1.0)  # for the orphans to go
    assert list((tmp_path / "assay-store" / "checkpoints").iterdir())
    last = start(tmp_path, jobs, *options)
    assert last.wait(timeout=240) == 0
    records = Store.open(tmp_path / "assay-store").records()
    resumed = {r.digest for r in records if r.population.get("resumed")}
    assert resumed, "somebody was taken up in the middle"
    assert not checkpoints(tmp_path), "nothing is left behind"
    whole = tmp_path / "whole"
    whole.mkdir()
    assert start(whole, jobs, "--slots", str(slots)).wait(timeout=240) == 0
    expected = Store.open(whole / "assay-store").records()
    assert {r.digest: facts(r) for r in records} == {r.digest: facts(r) for r in expected}


def wait_for_more_checkpoints(folder: Path, child: subprocess.Popen[str]) -> None:
    """Until this run has written one of its own."""
    before, deadline = checkpoints(folder), time.monotonic() + 120
    while checkpoints(folder) <= before and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in (folder / "assay-store" / "checkpoints").glob("*.safetensors")}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_saves_everything_and_says_how_to_go_on(tmp_path: Path, name: str, jobs: int):
    for _ in range(5):  # a run may end between the look and the signal, and its checkpoint with it
        child = start(tmp_path, jobs, "--checkpoint", "0")
        wait_for_more_checkpoints(tmp_path, child)
        child.send_signal(getattr(signal, name))
        assert child.wait(timeout=60) == 130
        said = child.stderr.read()
        assert "runs are kept in assay-store, and those under way are saved; go on with: assay study mine.py" in said
        assert "Traceback" not in said
        if checkpoints(tmp_path):
            break
    else:
        raise AssertionError("no checkpoint after any of five interrupts")


def specs(count: int) -> list[RunSpec]:
    how = {"steps": 60, "lengths": [2, 8], "validate_every": 10, "stop": "never"}
    return [run_spec("parity", "gru", seed=s, model_options={"width": 8}, training=how) for s in range(count)]


def deadly() -> Callable[[Event], None]:
    """Kills the first process that reports progress, as the system does when memory runs out."""
    killed: list[int] = []

    def tell(event: Event) -> None:
        if event.status and event.status.alive and not killed:
            killed.append(multiprocessing.active_children()[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    return tell


def test_a_worker_that_dies_leaves_a_record_and_the_others_go_on(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    sweep(specs(4), store, "cpu", 2, deadly())
    verdicts = Counter(r.verdict for r in store.records())
    assert verdicts["failed"] == 1
    assert sum(verdicts.values()) == 4
    failed = next(r for r in store.records() if r.verdict == "failed")
    assert "SIGKILL" in failed.error
    assert [s.digest for s in pending(specs(4), store)] == [failed.digest], "a failure is tried again"
    sweep(specs(4), store, "cpu", 2)
    assert pending(specs(4), store) == []


def test_who_was_not_alone_with_a_worker_that_dies_is_tried_alone(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    sweep(specs(4), store, "cpu", 2, deadly(), slots=2)
    records = store.records()
    assert {record.digest for record in records} == {spec.digest for spec in specs(4)}
    assert all(record.finished for record in records)
    assert sorted(record.population["slots"] for record in records) == [1, 1, 2, 2]


def test_what_each_device_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A CPU a run a process, of which there are as many as cores; a GPU a group a process, and its bytes are shared."""
    store, given = Store.create(tmp_path / "s"), []
    others = [run_spec("parity", "lstm", seed=s, training={"lengths": [2, 8]}) for s in range(2)]

    def side_by_side(pieces: Iterator[Piece], *rest: Any) -> None:
        given.append((rest[2], [len(piece.specs) for piece in pieces]))

    monkeypatch.setattr("assay.lab.sweep._side_by_side", side_by_side)
    monkeypatch.setattr("assay.lab.sweep._carry_out", lambda piece, *_: given.append((1, [len(piece.specs)])))
    monkeypatch.setattr("assay.lab.sweep.CORES", 5)
    sweep([*specs(3), *others], store, "cpu")
    sweep(specs(2), store, "cpu", jobs=1)
    assert given == [(5, [1] * 5), (1, [1]), (1, [1])]
    given.clear()
    sized: list[float] = []
    monkeypatch.setattr("assay.lab.sweep.device_named", torch.device)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (12_000, 20_000))
    monkeypatch.setattr("assay.lab.sweep.usual_slots", lambda those, _, within: sized.append(within) or len(those))
    sweep([*specs(3), *others], store, "cuda")
    sweep([*specs(3), *others], store, "cuda", jobs=4)
    assert given == [(1, [3]), (1, [2]), (4, [3, 2])]
    assert sized == pytest.approx([SHARE * 12_000] * 2 + [SHARE * 3_000] * 2)


def test_a_worker_that_dies_before_it_has_read_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, killed, give = Store.create(tmp_path / "s"), [], Worker.give

    def giving(worker: Worker, piece: Piece) -> None:
        if not killed:
            os.kill(worker.process.pid, signal.SIGKILL)
            killed.append(worker)
        give(worker, piece)

    monkeypatch.setattr(Worker, "give", giving)
    sweep(specs(3), store, "cpu", 2)
    assert sorted(r.verdict == "failed" for r in store.records()) == [False, False, True]


def test_side_by_side_gives_the_same_records_as_one_by_one(tmp_path: Path):
    both = []
    for jobs in (1, 2):
        store = Store.create(tmp_path / str(jobs))
        sweep(specs(3), store, "cpu", jobs)
        both.append({r.digest: facts(r) for r in store.records()})
    assert both[0] == both[1]
    assert len(both[0]) == 3
