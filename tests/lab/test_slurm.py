"""Workers as Slurm jobs, on a cluster of this machine: what ends early saves and goes on; what is wrong is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.lab.engines import slurm_queue, slurm_schedulers
from assay.lab.engines.launchers import Failure
from assay.lab.engines.slurm_queue import SlurmQueue, sbatch_options

from .slurm_cluster import ARRAY_LIMIT, output, slurm
from .waiting import wait_until
from .workers import Workers, is_running

__all__ = ["slurm"]  # a fixture


@contextmanager
def launcher_of(workers: Workers, *options: str, device: str = "cpu", cluster: str = "slurm") -> Iterator[SlurmQueue]:
    """A launcher whose workers are stopped at the end."""
    logs = workers.folder / "logs"
    launcher = SlurmQueue(workers.command, logs, sbatch_options(options), device, cluster, poll_seconds=0.2)
    try:
        yield launcher
    finally:
        launcher.stop()


def wait_for(workers: Workers, event: str, count: int, name: str | None = None) -> None:
    wait_until(lambda: len(workers.notes(event, name)) == count, f"{count} workers that {event} ({name or 'of all'})")


def job_of(launcher: SlurmQueue, task: int = 0) -> str:
    return next(job for job in sorted(launcher.running) if "_" not in job or job.endswith(f"_{task}"))


@pytest.mark.usefixtures("slurm")
def test_an_array_of_workers_that_end(tmp_path: Path):
    """No larger than the cluster allows; what `--dry-run` shows is what is submitted."""
    workers = Workers(tmp_path)
    with launcher_of(workers, "time=7", "partition=low", "comment=a b") as launcher:
        assert launcher.limit == ARRAY_LIMIT
        preview, text = launcher.preview(ARRAY_LIMIT + 3), launcher.submission_text(ARRAY_LIMIT)
        assert preview.startswith(f"{ARRAY_LIMIT} workers: {sys.executable} -c ")
        assert preview.endswith(f"\n\n{text}")
        assert "#SBATCH --time=7\n" in text
        assert launcher.start(ARRAY_LIMIT + 3) == ARRAY_LIMIT
        (submitted,) = (tmp_path / "logs").glob("*_submission.sh")
        assert submitted.read_text() == text
        wait_for(workers, "started", ARRAY_LIMIT)
        assert workers.names("started") == ["0", "1", "2", "3"]
        assert launcher.alive() == ARRAY_LIMIT
        assert launcher.start(1) == 0
        assert len({job.partition("_")[0] for job in launcher.running}) == 1, "one array"
        workers.end()
        wait_until(lambda: launcher.alive() == 0, "the end of the jobs")
        assert launcher.failures() == []
        assert not workers.notes("saved")
        preview = launcher.preview(1)
        assert preview.startswith("1 worker: ")
        assert "--array" not in preview


@pytest.mark.usefixtures("slurm")
def test_what_ends_early_saves_and_goes_on(tmp_path: Path):
    """The warning before the time limit, a signal, and a job that is queued again by hand; a cancelled one ends."""
    workers = Workers(tmp_path)
    with launcher_of(workers) as launcher:
        launcher.start(4)
        wait_for(workers, "started", 4)
        subprocess.run(["scancel", "--signal=USR2", job_of(launcher, 0)], check=True)
        subprocess.run(["scancel", "--signal=TERM", job_of(launcher, 1)], check=True)
        subprocess.run(["scontrol", "requeue", job_of(launcher, 2)], check=True)
        cancelled = job_of(launcher, 3)
        subprocess.run(["scancel", cancelled], check=True)
        for name in "0123":
            wait_for(workers, "saved", 1, name)
        wait_until(lambda: launcher.alive() == 3, "the end of the cancelled job")
        for name in "012":
            wait_for(workers, "started", 2, name)
        assert launcher.failures() == [Failure(f"the worker of job {cancelled} was cancelled", False)]
        assert launcher.alive() == 3
    assert [len(workers.notes("saved", name)) for name in "0123"] == [2, 2, 2, 1]
    assert len(workers.notes("started", "3")) == 1


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("partition", ["low", "patient"])
def test_a_preempted_worker_saves_and_goes_on(tmp_path: Path, partition: str):
    """Slurm ends it at once and queues it again, or gives it time, in which it queues itself again."""
    workers = Workers(tmp_path)
    with launcher_of(workers, f"partition={partition}") as launcher:
        launcher.start(1)
        wait_for(workers, "started", 1)
        urgent = ["sbatch", "--parsable", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null"]
        job = output([*urgent, "--wrap", "sleep 60"]).strip()
        wait_for(workers, "saved", 1)
        wait_until(lambda: output(["squeue", "-h", "-j", job, "-o", "%T"]).strip() == "RUNNING", "the urgent job")
        assert (launcher.alive(), launcher.failures()) == (1, []), "it waits"
        assert len(workers.notes("started")) == 1
        subprocess.run(["scancel", job], check=True)
        wait_for(workers, "started", 2)
        workers.end()
        wait_until(lambda: launcher.alive() == 0, "the end of the worker")
        assert launcher.failures() == []


@pytest.mark.usefixtures("slurm")
def test_stop_withdraws_queued_workers_and_lets_the_others_save(tmp_path: Path):
    workers = Workers(tmp_path)
    with launcher_of(workers, "cpus-per-task=4") as launcher:
        launcher.start(4)
        wait_for(workers, "started", 2)
        assert launcher.alive() == 4
        launcher.stop()
        assert (launcher.alive(), launcher.failures()) == (0, [])
        assert sorted(workers.notes("saved")) == sorted(workers.notes("started"))
        assert len(workers.notes("started")) == 2
        assert not output(["squeue", "--noheader"]).strip()
        assert not any(map(is_running, workers.notes("started")))


@pytest.mark.usefixtures("slurm")
def test_a_worker_on_a_gpu_that_fails(tmp_path: Path):
    workers = Workers(tmp_path, exit_code=2)
    with launcher_of(workers, "gres=gpu:1", device="cuda") as launcher, launcher_of(workers, device="cuda") as same:
        assert launcher.submission_text(1) == same.submission_text(1), "a GPU is asked for if the user does not"
        workers.end("assay: no GPU")
        launcher.start(1)
        wait_for(workers, "started", 1)
        assert workers.names("started") == ["0"], "CUDA_VISIBLE_DEVICES"
        wait_until(lambda: launcher.alive() == 0, "the end of the worker")
        assert launcher.failures() == [Failure("no GPU", True)]


@pytest.mark.usefixtures("slurm")
def test_bad_input_is_one_line(tmp_path: Path):
    workers, nothing = Workers(tmp_path), tmp_path / "none"
    with pytest.raises(BadInput, match=r"^there is no partition 'hihg' on this cluster; did you mean 'high'\?$"):
        SlurmQueue(workers.command, nothing, {"partition": "low,hihg"})
    with pytest.raises(BadInput, match=r"^time=soon is not valid: write minutes, "):
        SlurmQueue(workers.command, nothing, {"time": "soon"})
    with pytest.raises(BadInput, match=r"^no node of partition 'cpu' has a GPU; choose another, or --device cpu$"):
        SlurmQueue(workers.command, nothing, {"partition": "cpu"}, device="cuda")
    refused = SlurmQueue(workers.command, nothing, {"mem": "2T", "partition": "cpu,low"}, device="cuda")
    reason = "Batch job submission failed: Requested node configuration is not available"
    options = "with mem=2T, partition=cpu,low, time=5:00, gres=gpu:1"
    with pytest.raises(BadInput, match=rf"^sbatch refuses the job: {reason} \({options}\)$"):
        refused.start(2)
    assert refused.alive() == 0
    assert "#SBATCH --time=5:00\n" in SlurmQueue(workers.command, nothing, {"partition": "cpu"}).submission_text(1)
    assert "#SBATCH --time=10:00\n" in SlurmQueue(workers.command, nothing).submission_text(1), "the default partition"


def test_options_of_sbatch():
    assert sbatch_options(["--qos=long", "cpus_per_task=2"]) == {"qos": "long", "cpus-per-task": "2"}
    for texts, message in {
        ("partitoin=x",): "'partitoin' is unknown, or set by assay; did you mean 'partition'",
        ("array=0-9",): "'array' is unknown, or set by assay",
        ("mem",): "'mem' is not valid: write mem=VALUE",
        ("mem=1\n#SBATCH --array=0-9",): "is not valid: write mem=VALUE",
        ("mem=1G", "mem=2G"): "'mem' is given twice",
    }.items():
        with pytest.raises(BadInput, match=message):
            sbatch_options(texts)


def test_without_slurm_or_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=r"^there is no command 'sbatch' here: use slurm on a machine that submits jobs"):
        SlurmQueue(["true"], tmp_path)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(BadInput, match=r"^slurm needs the package submitit: pip install 'assay\[slurm\]'$"):
        SlurmQueue(["true"], tmp_path)


def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Bad input at first; later, the workers are still believed to be there."""
    for name in slurm_schedulers.COMMANDS:
        (tmp_path / name).write_text("#!/bin/sh\necho 'sinfo: error: no controller' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BadInput, match=r"^sinfo failed: sinfo: error: no controller$"):
        SlurmQueue(["true"], tmp_path)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho 'MaxArraySize = 1001'; echo 'X = a,max_array_tasks=20'\n")
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'all|n/a|infinite|all*|(null)'\n")
    launcher = SlurmQueue(["true"], tmp_path, poll_seconds=0)
    assert launcher.limit == 20
    launcher.running = {"7_0", "7_1", "7_2"}
    assert launcher.alive() == 3
    (tmp_path / "squeue").write_text("#!/bin/sh\necho '7_0 COMPLETED'; echo '7_1 NODE_FAIL'; echo '7_2 FAILED'\n")
    assert (launcher.alive(), launcher.failures()) == (1, []), "its exit code may still become visible"
    monkeypatch.setattr(slurm_queue, "OUTCOME_SECONDS", 0.0)
    log = tmp_path / "7_2_0_log.err"
    log.write_text("Traceback\nModuleNotFoundError: No module named 'x'\n\nsrun: error: n1: task 0: Exited\n")
    reason = f"the worker of job 7_2 ended without an exit code: ModuleNotFoundError: No module named 'x' ({log})"
    assert launcher.failures() == [Failure(reason, False)]
    assert launcher.alive() == 0


def test_a_job_that_submits_others_keeps_its_own_settings(monkeypatch: pytest.MonkeyPatch):
    own = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_CPU": "64", "SUBMITIT_EXECUTOR": "slurm"}
    for name, value in {**own, "SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "mine"}.items():
        monkeypatch.setenv(name, value)
    with slurm_queue._clean_environment():
        assert not own.keys() & os.environ.keys()
        assert {"SLURM_CONF", "SBATCH_ACCOUNT"} <= os.environ.keys()
    assert own.items() <= os.environ.items()


def test_submitit_without_slurm(tmp_path: Path):
    """Its local executor starts the same jobs as processes."""
    workers = Workers(tmp_path)
    with launcher_of(workers, cluster="local") as launcher:
        assert launcher.start(2) == 2
        wait_for(workers, "started", 2)
        guard = workers.notes("started")[0]
        job = int(Path(f"/proc/{guard}/stat").read_text().rpartition(") ")[2].split()[1])
        os.kill(job, signal.SIGUSR2)  # the time limit is near
        wait_for(workers, "saved", 1)
        wait_for(workers, "started", 3)
        assert launcher.alive() == 2
        launcher.stop()
        assert (launcher.alive(), launcher.failures()) == (0, [])
    assert sorted(workers.notes("saved")) == sorted(workers.notes("started"))
    failing = Workers(tmp_path, exit_code=2)
    failing.end("assay: no GPU")
    with launcher_of(failing, cluster="local") as launcher:
        launcher.start(1)
        wait_until(lambda: launcher.alive() == 0, "the end of the worker")
        assert launcher.failures() == [Failure("no GPU", True)]
