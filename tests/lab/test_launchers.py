"""Workers of this machine: one for each GPU, and what becomes of those that fail, are stopped, or are orphaned."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from assay.lab.engines import local_devices
from assay.lab.engines.launchers import Failure
from assay.lab.engines.local_devices import LocalDevices, visible_gpus
from assay.lab.engines.orphan_guard import guarded
from assay.store import StoreUnavailable

from .waiting import wait_until
from .workers import Workers, is_running


def test_every_gpu_gets_one_worker(tmp_path: Path):
    workers = Workers(tmp_path)
    launcher = LocalDevices(workers.command, tmp_path / "logs", gpus=["2", "5"])
    assert launcher.start(1) == 1
    assert launcher.start(7) == 1, "there is one other GPU"
    wait_until(lambda: workers.notes("started") and len(workers.notes("started")) == 2, "two workers")
    assert workers.names("started") == ["2", "5"]
    assert (launcher.alive(), launcher.start(1)) == (2, 0)
    workers.end()
    wait_until(lambda: launcher.alive() == 0, "the end of the workers")
    assert launcher.failures() == []
    assert not list((tmp_path / "logs").iterdir()), "logs of failures only"
    assert "\nCUDA_VISIBLE_DEVICES=5 " in launcher.preview(2)
    assert launcher.start(2) == 2, "places become free again"
    launcher.stop()


@pytest.mark.parametrize(
    ("exit_code", "failure"),
    [
        (2, Failure("there is no CUDA device here", True)),
        (3, Failure("worker 0 ended with exit code 3: assay: there is no CUDA device here", False)),
    ],
)
def test_a_failure_is_one_line(tmp_path: Path, exit_code: int, failure: Failure):
    workers = Workers(tmp_path, exit_code)
    launcher = LocalDevices(workers.command, tmp_path / "logs", cpu_workers=1)
    workers.end("assay: there is no CUDA device here\n\n")
    launcher.start(1)
    wait_until(lambda: launcher.alive() == 0, "the end of the worker")
    assert launcher.failures() == [failure]
    assert launcher.start(1) == 1
    wait_until(lambda: launcher.alive() == 0, "the end of the next worker")
    assert launcher.failures() == [failure] * 2, "each worker counts"


def test_no_worker_is_started_while_the_store_has_disappeared(tmp_path: Path):
    """Nothing is made where it was."""
    launcher = LocalDevices(["true"], tmp_path / "store" / "logs")
    with pytest.raises(StoreUnavailable, match=r"cannot write .*logs: No such file or directory"):
        launcher.start(1)
    assert not (tmp_path / "store").exists()


def test_a_command_that_does_not_exist(tmp_path: Path):
    launcher = LocalDevices([str(tmp_path / "nothing")], tmp_path / "logs")
    launcher.start(1)
    wait_until(lambda: launcher.alive() == 0, "the end of the worker")
    (failure,) = launcher.failures()
    assert failure.reason.endswith("nothing cannot be started: No such file or directory")


def test_stopped_workers_save_and_are_no_failures(tmp_path: Path):
    workers = Workers(tmp_path)
    launcher = LocalDevices(workers.command, tmp_path / "logs", cpu_workers=2)
    launcher.start(2)
    wait_until(lambda: len(workers.notes("started")) == 2, "two workers")
    launcher.stop()
    assert sorted(workers.notes("saved")) == sorted(workers.notes("started"))
    assert (launcher.alive(), launcher.failures()) == (0, [])


def test_a_worker_that_does_not_save_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local_devices, "SAVE_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    launcher = LocalDevices([sys.executable, "-c", f"open({str(tmp_path / 'on')!r}, 'w'); {deaf}"], tmp_path / "logs")
    launcher.start(1)
    wait_until((tmp_path / "on").exists, "the start of the worker")
    pid = launcher.workers[0].process.pid
    launcher.stop()
    assert not is_running(pid)
    assert (launcher.alive(), launcher.failures()) == (0, [])


def test_an_orphan_saves_and_ends(tmp_path: Path):
    """Even if the process that started it was killed, and could not stop it."""
    workers = Workers(tmp_path)
    driver = f"""
import time
from pathlib import Path
from assay.lab.engines.local_devices import LocalDevices
LocalDevices({workers.command!r}, Path({str(tmp_path / "logs")!r})).start(1)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", driver])
    wait_until(lambda: workers.notes("started"), "the start of the worker")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: workers.notes("saved") == workers.notes("started"), "that the orphan saves", seconds=5)
    wait_until(lambda: not is_running(workers.notes("saved")[0]), "the end of the orphan", seconds=5)


def test_a_child_whose_parent_is_gone_already_does_not_start():
    program, isolated, script, _, *command = guarded([sys.executable, "-c", "print('started')"])
    child = [program, isolated, script, "1", *command]
    ended = subprocess.run(child, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (130, "")


def test_visible_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6, GPU-1a,-1,3")
    assert visible_gpus() == ["6", "GPU-1a"], "CUDA stops counting at an invalid one"
