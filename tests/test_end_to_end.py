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
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from assay.lab import plan as planning
from assay.lab.carry_out import carry_out, local_engine
from assay.lab.engines import local_processes
from assay.lab.engines.engine import Event
from assay.lab.engines.local_processes import LocalProcesses, Worker
from assay.lab.engines.shared_device import SharedDevice
from assay.lab.engines.this_process import ThisProcess
from assay.lab.memory import USABLE_SHARE
from assay.lab.plan import Group, Plan
from assay.lab.status import Status
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store

STUDY = """
from assay.spec import run_spec
RUNS = [run_spec("parity", "gru", seed=s, model_options={"width": 8},
                 training={"steps": 400, "lengths": [2, 12], "validate_every": 10, "stop": "never"},
                 testing={"rows": 16})
        for s in range(5)]
"""


def start(folder: Path, jobs: int = 2, *options: str) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(STUDY)
    command = [sys.executable, "-m", "assay", "study", "mine.py", "--jobs", str(jobs), "--device", "cpu", *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)


def test_killed_again_and_again_it_ends_with_the_same_records(tmp_path: Path):
    """Two processes with two slots each, at random moments, each time later, since they go on from checkpoints."""
    options, chance = ("--checkpoint", "0", "--slots", "2"), random.Random(0)
    for _ in range(2):
        child = start(tmp_path, 2, *options)
        wait_for_more_checkpoints(tmp_path, child)
        time.sleep(chance.uniform(0, 0.5))
        child.send_signal(signal.SIGKILL)
        child.wait()
        time.sleep(1.0)  # for the orphans to go
    assert list((tmp_path / "assay-store" / "checkpoints").iterdir())
    kept = len(Store.open(tmp_path / "assay-store").records())
    last = start(tmp_path, 2, *options)
    assert last.wait(timeout=240) == 0
    assert last.stdout
    assert not kept or f"{kept} of 5 runs are already in" in last.stdout.read()
    assert len(list(Store.open(tmp_path / "assay-store").history())) == 5, "no finished run is repeated"
    records = Store.open(tmp_path / "assay-store").records()
    resumed = {r.digest for r in records if r.population.get("resumed")}
    assert resumed, "somebody was taken up in the middle"
    assert not checkpoints(tmp_path), "nothing is left behind"
    whole = tmp_path / "whole"
    whole.mkdir()
    assert start(whole, 1, "--slots", "2").wait(timeout=240) == 0  # other processes, the same records
    expected = Store.open(whole / "assay-store").records()
    assert {r.digest: r.result for r in records} == {r.digest: r.result for r in expected}


def wait_for_more_checkpoints(folder: Path, child: subprocess.Popen[str]) -> None:
    """Until this run has written one of its own."""
    before, deadline = checkpoints(folder), time.monotonic() + 120
    while checkpoints(folder) <= before and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def checkpoints(folder: Path) -> set[str]:
    return {path.name for path in (folder / "assay-store" / "checkpoints").glob("*.safetensors")}


def test_an_interrupt_saves_everything_and_says_how_to_go_on(tmp_path: Path):
    jobs, name = 1, "SIGINT"
    for _ in range(5):  # a run may end between the look and the signal, and its checkpoint with it
        child = start(tmp_path, jobs, "--checkpoint", "0")
        wait_for_more_checkpoints(tmp_path, child)
        child.send_signal(getattr(signal, name))
        assert child.wait(timeout=60) == 130
        assert child.stderr
        said = child.stderr.read()
        assert "runs are kept in assay-store, and unfinished runs are saved; continue with: assay study mine.py" in said
        assert "Traceback" not in said
        if checkpoints(tmp_path):
            break
    else:
        raise AssertionError("no checkpoint after any of five interrupts")


def test_a_signal_to_all_processes_at_once_saves_every_run(tmp_path: Path):
    """As schedulers send it: the workers receive it directly, and once more from their parent."""
    child = start(tmp_path, 2, "--checkpoint", "1000")
    deadline = time.monotonic() + 120
    while not list((tmp_path / "assay-store").glob("segments/*.jsonl")):  # both workers are in their runs then
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGTERM)
    assert child.wait(timeout=90) == 130
    records = Store.open(tmp_path / "assay-store").records()
    assert all(record.finished for record in records), "an interrupted worker is not a dead one"
    assert not list((tmp_path / "assay-store").glob("checkpoints/.*.tmp"))


def test_a_worker_that_ended_its_group_as_the_stop_began_is_not_waited_for():
    worker = Worker.__new__(Worker)
    worker.number, worker.busy, worker.waiting, worker.process = 0, True, False, Mock()
    worker.pipe, other_end = multiprocessing.Pipe()
    other_end.send_bytes(b'{"type": "done"}')
    started = time.monotonic()
    local_processes._stop([worker], lambda _: None)
    assert time.monotonic() - started < 30
    with pytest.raises(EOFError):
        other_end.recv_bytes()


def specs(count: int) -> list[RunSpec]:
    training = {"steps": 60, "lengths": [2, 8], "validate_every": 10, "stop": "never"}
    return [run_spec("parity", "gru", seed=s, model_options={"width": 8}, training=training) for s in range(count)]


def run_all(
    specs: list[RunSpec],
    store: Store,
    jobs: int | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
    slots: int | None = None,
) -> Plan:
    plan = Plan(specs, store.index().values(), torch.device("cpu"), jobs, slots)
    records = carry_out(plan, store, local_engine(plan, store), on_event)
    assert [record.digest for record in records] == [spec.digest for spec in specs]
    return plan


def pending(specs: list[RunSpec], store: Store) -> list[RunSpec]:
    return [*Plan(specs, store.index().values(), torch.device("cpu")).pending.values()]


def kill_first_worker() -> Callable[[Event], None]:
    """Kills the first process that reports progress, as the system does when memory runs out."""
    killed: list[int] = []

    def on_event(event: Event) -> None:
        if isinstance(event.status, Status) and event.status.alive and not killed:
            killed.append(multiprocessing.active_children()[0].pid or 0)
            os.kill(killed[0], signal.SIGKILL)

    return on_event


def test_a_worker_that_dies_leaves_a_record_and_the_others_go_on(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    run_all(specs(4), store, 2, kill_first_worker())
    verdicts = Counter(r.verdict for r in store.records())
    assert verdicts["failed"] == 1
    assert sum(verdicts.values()) == 4
    failed = next(r for r in store.records() if r.verdict == "failed")
    assert "SIGKILL" in str(failed.error)
    assert [s.digest for s in pending(specs(4), store)] == [failed.digest], "a failure is tried again"
    run_all(specs(4), store, 2)
    assert pending(specs(4), store) == []


def test_runs_that_share_a_worker_that_dies_are_tried_again_alone(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    run_all(specs(4), store, 2, kill_first_worker(), slots=2)
    records = store.records()
    assert {record.digest for record in records} == {spec.digest for spec in specs(4)}
    assert all(record.finished for record in records)
    assert sorted(record.population["slots"] for record in records) == [1, 1, 2, 2]


def test_a_worker_that_dies_between_its_last_record_and_its_next_group(tmp_path: Path):
    """It leaves nothing behind: its run is recorded, and the others are carried out by its successor."""
    store, killed = Store.create(tmp_path / "s"), list[int]()

    def on_event(event: Event) -> None:
        if event.record and not killed:
            killed.append(multiprocessing.active_children()[event.worker].pid or 0)
            for child in multiprocessing.active_children():  # whichever sent the record
                os.kill(child.pid or 0, signal.SIGKILL)

    run_all(specs(3), store, 2, on_event)
    assert killed
    records = list(store.history())
    assert len(records) == len({record.digest for record in records}) == 3, "each run has one record"
    assert sorted(record.finished for record in records) == [False, True, True], "the other worker was in a run"


def test_a_record_that_was_not_stored_is_not_lost(tmp_path: Path):
    """A parent that dies before it has stored a record leaves a checkpoint of the run behind."""
    store, jobs = Store.create(tmp_path / "s"), 2
    plan = Plan(specs(2), [], torch.device("cpu"), jobs)

    class ParentDied(BaseException):
        pass

    def on_event(event: Event) -> None:
        if event.record:
            raise ParentDied

    with pytest.raises(ParentDied):
        LocalProcesses(plan.device, jobs, store.path).run(plan.groups(), on_event)
    assert not multiprocessing.active_children()
    assert not store.records()
    assert list((store.path / "checkpoints").glob("*.safetensors"))
    run_all(specs(2), store, 1)
    assert [record.population.get("resumed") for record in store.records()].count(50) >= 1


def test_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A CPU gets one run per process, and as many processes as cores; a GPU one group per program, which share it."""
    lstms = [run_spec("parity", "lstm", seed=s, training={"lengths": [2, 8]}) for s in range(2)]
    runs, cpu, cuda = [*specs(3), *lstms], torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr(planning, "CORES", 5)
    plan = Plan(runs, [], cpu)
    assert (plan.jobs, [len(group.specs) for group in plan.groups()]) == (5, [1] * 5)
    assert Plan(runs[:2], [], cpu).jobs == 2, "no more processes than runs"
    assert [len(group.specs) for group in Plan(runs[:2], [], cpu, jobs=1).groups()] == [1, 1]
    stacked = Plan(runs[:3], [], cpu, jobs=2, slots=2)
    first = next(stacked.groups())
    done = [Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved") for spec in runs[:2]]
    resumed = Plan(runs[:3], done, cpu, jobs=2, slots=2)
    assert (resumed.jobs, [group.slots for group in resumed.groups()]) == (1, [first.slots]), "as many slots as before"
    limits: list[float] = []
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (12_000, 20_000))

    def fitting(_: RunSpec, __: object, wanted: int, ___: object, limit: float) -> tuple[int, float]:
        limits.append(limit)
        return wanted, 100.0 * wanted

    monkeypatch.setattr(planning, "slots_that_fit", fitting)
    for jobs in (None, 4):
        plan = Plan(runs, [], cuda, jobs)
        assert plan.jobs == (jobs or 5), "so many groups at a time, in one process"
        groups = [planning.sized(group, cuda, plan.memory_limit) for group in plan.groups()]
        assert [(len(g.specs), g.slots, g.memory) for g in groups] == [(3, 3, 300.0), (2, 2, 200.0)]
        engine = local_engine(plan, Store.create(tmp_path / "s"))
        assert isinstance(engine, SharedDevice)
        assert (engine.jobs, engine.memory) == (plan.jobs, plan.memory_limit)
    assert limits == pytest.approx([USABLE_SHARE * 12_000] * 4), "each may use all, if it is alone"


def test_a_plan_reads_its_inputs_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Each digest is computed once and each record is read once, however many runs there are."""
    digests, reads, load, plain = list[int](), list[str](), Store.load, RunSpec.plain
    monkeypatch.setattr(Store, "load", lambda store, entry: reads.append(entry.digest) or load(store, entry))
    monkeypatch.setattr(RunSpec, "plain", lambda spec: digests.append(spec.seed) or plain(spec))
    store, runs = Store.create(tmp_path / "s"), specs(4)
    plan = run_all(runs, store, 1)
    assert reads == [spec.digest for spec in runs], "at the end"
    assert sorted(digests) == sorted([0, 1, 2, 3] * 2), "once for its digest, once for its record"
    assert plan.finished == {spec.digest for spec in runs}
    assert isinstance(local_engine(plan, store), ThisProcess)


def test_a_worker_that_dies_before_it_has_read_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, killed, assign = Store.create(tmp_path / "s"), list[Worker](), Worker.assign

    def kill_and_assign(worker: Worker, group: Group) -> None:
        if not killed:
            os.kill(worker.process.pid or 0, signal.SIGKILL)
            killed.append(worker)
        assign(worker, group)

    monkeypatch.setattr(Worker, "assign", kill_and_assign)
    run_all(specs(3), store, 2)
    assert sorted(r.verdict == "failed" for r in store.records()) == [False, False, True]


def test_a_run_that_does_not_fit_in_memory_is_refused(tmp_path: Path):
    """By a forecast that allocates nothing; the other runs are carried out."""
    store = Store.create(tmp_path / "s")
    huge = run_spec("parity", "transformer", model_options={"width": 65536, "layers": 8})
    run_all([huge, *specs(1)], store, 1)
    records = {record.model: record for record in store.records()}
    assert records["gru"].finished
    assert records["transformer"].verdict == "failed"
    assert "needs about" in str(records["transformer"].error)
    assert "GiB" in str(records["transformer"].error)
