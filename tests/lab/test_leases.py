"""Several processes on one store: each run is carried out by one of them, whatever happens to the others."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.lab import carry_out as carrying_out
from assay.lab import leases as leasing
from assay.lab.carry_out import Work, carry_out, local_engine
from assay.lab.engines.engine import Event
from assay.lab.leases import MOST_DEATHS, SUSPICIOUS_DEATHS, Leases, reports
from assay.lab.plan import Plan
from assay.record import Record
from assay.spec import RunSpec, run_spec
from assay.store import Store
from tests.lab.waiting import wait_until

CPU = torch.device("cpu")


def specs(count: int, steps: int = 20) -> list[RunSpec]:
    training = {"steps": steps, "lengths": [2, 8], "validate_every": 10, "stop": "never"}
    options: dict[str, Any] = {"model_options": {"width": 8}, "training": training, "testing": {"rows": 16}}
    return [run_spec("parity", "gru", seed=seed, **options) for seed in range(count)]


def finished(spec: RunSpec) -> Record:
    return Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved")


def stand_still(leases: Leases) -> None:
    """Let a process have no heartbeat any more, as if its machine were suspended."""
    leases.stopped.set()
    leases.changed.set()
    leases.thread.join()


def of_another_machine(leases: Leases) -> Leases:
    leases.description["machine"] = "another"
    return leases


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "store")


def digests(leases: list[Any]) -> list[str]:
    return [lease.digest for lease in leases]


def test_a_run_is_leased_once(store: Store):
    with Leases(store.path) as first, Leases(store.path) as second:
        assert digests(first.lease("abc")[0]) == ["a", "b", "c"]
        assert digests(second.lease("bcd")[0]) == ["d"]
        assert second.others() == dict.fromkeys("abc", first.name)
        first.release("b")
        assert digests(second.lease("bc")[0]) == ["b"]
        assert [first.holds(name) for name in "abc"] == [True, False, True]
    assert not list((store.path / "leases").iterdir())
    assert not list((store.path / "workers").iterdir())


def test_two_processes_that_lease_at_the_same_moment(store: Store):
    """Each of many runs goes to exactly one of them."""
    names, taken = [f"{number:04}" for number in range(300)], dict[int, list[str]]()
    with Leases(store.path) as first, Leases(store.path) as second:

        def lease(number: int, leases: Leases) -> None:
            taken[number] = [d for name in names for d in digests(leases.lease([name])[0])]

        threads = [threading.Thread(target=lease, args=pair) for pair in enumerate((first, second))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken[0] + taken[1]) == names


@pytest.mark.parametrize("offset", [-100_000.0, 0.0, 100_000.0])
def test_a_process_of_another_machine_is_dead_when_its_heartbeat_stands_still(store: Store, offset: float):
    """However wrong the clock of that machine is: the observer counts on its own."""
    dead, alive = (of_another_machine(Leases(store.path, heartbeat=0.02)) for _ in range(2))
    with dead, alive, Leases(store.path, lifetime=0.5) as observer:
        dead.lease("a")
        alive.lease("b")
        stand_still(dead)
        path = store.path / "workers" / f"{dead.name}.json"
        os.utime(path, (time.time() + offset,) * 2)
        start = time.monotonic()
        wait_until(lambda: observer.lease("ab")[0], "a lease")
        assert time.monotonic() - start >= 0.5
        assert [*observer.held] == ["a"]
        assert [dead.holds("a"), observer.holds("a")] == [False, True]
        assert observer.has_beaten(alive.name)
        assert not observer.has_beaten(dead.name)


def test_an_empty_lease_file_is_taken_over_like_that_of_a_dead_process(store: Store):
    """Its holder died before it had written its name."""
    (store.path / "leases").mkdir()
    (store.path / "leases" / "a.0").touch()
    with Leases(store.path, lifetime=0.2) as leases:
        assert leases.lease("a") == ([], [])
        assert leases.others() == {"a": "unknown holder of a.0"}
        wait_until(lambda: leases.lease("a")[0], "a lease")


HOLD = """
import sys, time
from pathlib import Path
from assay.lab.leases import Leases
with Leases(Path(sys.argv[1])) as leases:
    leases.lease("ab")
    print("leased", flush=True)
    time.sleep(1000)
"""


def test_a_process_that_was_killed_on_this_machine_is_dead_at_once(store: Store):
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout
    child.stdout.readline()
    with Leases(store.path) as leases:
        assert leases.lease("ab") == ([], [])
        child.send_signal(signal.SIGKILL)
        child.wait()
        (report,) = [report for report in reports(store.path) if report["name"] != leases.name]
        assert report["gone"]
        assert digests(leases.lease("ab")[0]) == ["a", "b"]
    assert not list((store.path / "workers").iterdir()), "the heartbeat of a dead process is removed"


def die(store: Store, digest: str, times: int) -> None:
    """Let processes lease a run and die, one after the other."""
    for _ in range(times):
        leases = Leases(store.path)
        with leases:
            leases.lease_suspect(digest)
            file = leases._file(leases.held[digest])
            content = file.read_bytes()
        file.write_bytes(content)  # as if the process had not been able to return it
        report = leases.description | {"pid": 2**30, "age": 0}
        (store.path / "workers" / f"{leases.name}.json").write_text(json.dumps(report))


def test_a_run_during_which_several_processes_have_died_is_carried_out_alone(store: Store):
    runs = specs(2)
    die(store, runs[0].digest, SUSPICIOUS_DEATHS)
    groups = list[int]()

    class Engine:
        def run(self, leased: Any, on_event: Callable[[Event], None]) -> None:
            for group in leased:
                groups.append(len(group.specs))
                for spec in group.specs:
                    on_event(Event(record=finished(spec)))

    plan = Plan(runs, [], CPU, jobs=1, slots=2)
    assert [len(group.specs) for group in plan.groups()] == [2]
    carry_out(plan, store, Engine())
    assert groups == [1, 1]


def test_a_run_that_was_the_end_of_too_many_processes_has_failed(store: Store):
    runs = specs(2)
    die(store, runs[0].digest, MOST_DEATHS)
    plan = Plan(runs, [], CPU, jobs=1)
    records = carry_out(plan, store, local_engine(plan, store))
    assert [record.finished for record in records] == [False, True]
    assert f"{MOST_DEATHS} processes died" in str(records[0].error)


def test_the_record_of_a_process_that_lost_its_lease_is_not_stored(store: Store):
    """It stood still for so long that another one took the run over."""
    (spec,) = specs(1)
    events = list[Event]()
    with of_another_machine(Leases(store.path)) as slow, Leases(store.path, lifetime=0.1) as other:
        work = Work(Plan([spec], [], CPU), store, slow, events.append)
        assert list(work.groups())
        stand_still(slow)
        wait_until(lambda: other.lease([spec.digest])[0], "a lease")
        work.receive(Event(record=finished(spec)))
    assert not events
    assert not list(store.history())


def test_a_process_that_lost_its_lease_leaves_the_leases_of_others_alone(store: Store):
    """Nor does it store a record while the second of those that took the run over carries it out."""
    (spec,) = specs(1)
    first, second, third = (of_another_machine(Leases(store.path, lifetime=0.05)) for _ in range(3))
    with first, second, third:
        assert first.lease([spec.digest])[0]
        stand_still(first)
        wait_until(lambda: second.lease([spec.digest])[0], "a lease")
        stand_still(second)
        wait_until(lambda: third.lease([spec.digest])[0], "a lease")
        assert first.holds(spec.digest) is False
        third.release([spec.digest])
        assert third.lease([spec.digest])[0][0].number == 0, "the same file as that of the first"
        first.release([spec.digest])
        assert third.holds(spec.digest)


def test_a_process_waits_for_those_that_took_its_runs_over(store: Store):
    """It asks for them neither again and again, nor for itself."""
    (spec,) = specs(1)
    events = list[Event]()
    with of_another_machine(Leases(store.path)) as slow, Leases(store.path, heartbeat=0.02, lifetime=0.3) as other:
        work = Work(Plan([spec], [], CPU), store, slow, events.append)
        assert list(work.groups())
        stand_still(slow)
        wait_until(lambda: other.lease([spec.digest])[0], "a lease")
        work.receive(Event(record=finished(spec)))
        assert not work.wait_for_others(wait=False), "the other one has shown that it is alive"
        assert slow.others() == {spec.digest: other.name}


def test_a_lease_that_could_not_be_deleted_is_taken_again(store: Store, monkeypatch: pytest.MonkeyPatch):
    """The store had disappeared when this process returned the lease, and is there again."""
    (spec,) = specs(1)
    with Leases(store.path) as leases:
        assert leases.lease([spec.digest])[0]
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", lambda *_, **__: None)
            leases.release([spec.digest])
        assert not leases.others()
        assert digests(leases.lease([spec.digest])[0]) == [spec.digest]


def test_a_lease_that_is_cut_short_has_an_unknown_holder(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Its run is left alone for as long as that of a process without a heartbeat."""
    monkeypatch.setattr(carrying_out, "POLL_SECONDS", 0.01)
    (spec,) = specs(1)
    (store.path / "leases").mkdir()
    (store.path / "leases" / f"{spec.digest}.0").touch()
    plan, messages = Plan([spec], [], CPU, jobs=1), list[str]()
    engine = local_engine(plan, store)
    calls = list[Any]()
    monkeypatch.setattr(engine, "run", lambda *arguments, run=engine.run: (calls.append(1), run(*arguments)))
    carry_out(plan, store, engine, lambda event: messages.append(event.message), Leases(store.path, lifetime=0.3))
    assert len(calls) == 2, "before and after the wait"
    assert f"waiting for runs of other processes (1 left): unknown holder of {spec.digest}.0" in messages


def test_leases_wait_for_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Files can be created there, but not written."""
    failures, write = [1, 2, 3], os.write

    def full(file: int, data: bytes) -> int:
        if failures and "/leases/" in os.readlink(f"/proc/self/fd/{file}"):
            failures.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(carrying_out, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(os, "write", full)
    plan, messages = Plan(specs(2), [], CPU, jobs=1), list[str]()
    carry_out(plan, store, local_engine(plan, store), lambda event: messages.append(event.message))
    assert not failures
    assert len(list(store.history())) == 2
    assert any("No space left on device; trying again" in message for message in messages)


def test_a_run_that_another_process_has_ended_is_not_carried_out(store: Store):
    """It was left out of the plan's reading of the store, and its lease was returned before this one looked."""
    runs, events = specs(2), list[Event]()
    plan = Plan(runs, store.index().values(), CPU, jobs=1)
    Store.open(store.path).add(finished(runs[0]))
    records = carry_out(plan, store, local_engine(plan, store), events.append)
    assert [record.verdict == "solved" for record in records] == [True, False]
    assert len(list(store.history())) == 2
    assert [event.stored for event in events if event.record] == [True, False]


def test_a_full_disk_is_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Nothing is lost and nothing is stored twice; a line that was written in part is not left behind."""
    failures, fsync = [1, 2, 3], os.fsync
    messages = list[str]()

    def full(file: int) -> None:
        if failures and os.readlink(f"/proc/self/fd/{file}").endswith(".jsonl"):
            failures.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(carrying_out, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(os, "fsync", full)
    plan = Plan(specs(2), [], CPU, jobs=1)
    carry_out(plan, store, local_engine(plan, store), lambda event: messages.append(event.message))
    assert not failures
    assert len(list(store.history())) == 2
    assert any("No space left on device; trying again" in message for message in messages)


def test_a_store_that_disappears_and_returns(store: Store, monkeypatch: pytest.MonkeyPatch):
    """As a network file system does: nothing is written where it was, and the record waits."""
    away, absences = store.path.with_name("away"), list[float]()

    def on_event(event: Event) -> None:
        if event.status and not absences:
            store.path.rename(away)
            absences.append(time.monotonic())
            threading.Timer(
                0.6, lambda: (store.path.exists() and absences.append(-1.0), away.rename(store.path))
            ).start()

    monkeypatch.setattr(carrying_out, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(leasing, "NEWS_SECONDS", 0.02)
    plan = Plan(specs(3, 50), [], CPU, jobs=1)
    with_heartbeat = Leases(store.path, heartbeat=0.02)
    carry_out(plan, store, local_engine(plan, store, 0.0), on_event, with_heartbeat)
    assert len(absences) == 1, "no folder was made in the place of the store"
    assert [r.digest for r in store.history()] == [spec.digest for spec in specs(3, 50)]


STUDY = """
from assay.spec import run_spec
RUNS = [run_spec("parity", "gru", seed=s, model_options={"width": 8},
                 training={"steps": 800, "lengths": [2, 12], "validate_every": 10, "stop": "never"},
                 testing={"rows": 16})
        for s in range(6)]
"""


def start(folder: Path) -> subprocess.Popen[str]:
    (folder / "mine.py").write_text(STUDY)
    command = [sys.executable, "-m", "assay", "study", "mine.py", "--jobs", "1", "--device", "cpu", "--checkpoint", "0"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_commands_share_a_study_and_one_finishes_it_when_the_other_is_killed(tmp_path: Path):
    first, second = start(tmp_path), start(tmp_path)
    held = tmp_path / "assay-store" / "leases"
    wait_until(lambda: len(set(Leases(held.parent).others().values())) == 2, "leases of both", 60)
    first.send_signal(signal.SIGKILL)
    first.wait()
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0, output
    assert "0/6" in output, "the table has all runs"
    history = [record.digest for record in Store.open(tmp_path / "assay-store").history()]
    assert len(history) == len(set(history)) == 6
