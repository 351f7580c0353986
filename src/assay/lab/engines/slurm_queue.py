"""The launcher that starts workers as jobs of a Slurm cluster, by way of submitit.

The jobs are an array of equal workers, not one for each run. Slurm may stop them and queue them again at any time;
what each of them then does is in `slurm_job`.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from assay.errors import BadInput, suggestion
from assay.lab.engines.launchers import SAVE_SECONDS, Failure, failure_of, last_line
from assay.lab.engines.slurm_job import WorkerJob, exit_code_of, log_of
from assay.lab.engines.slurm_schedulers import GONE, Local, Scheduler, Slurm
from assay.store import make_folder

POLL_SECONDS = 5.0  # between two looks at the queue
STOP_POLL_SECONDS = 1.0  # the same while workers are being stopped
OUTCOME_SECONDS = 30.0  # until a file that was written on another machine is visible here
# The options of sbatch that make sense for a worker, by their long names; all others are set here, or not at all.
OPTION_NAMES = """
    account bb begin comment constraint cpus-per-gpu cpus-per-task deadline dependency distribution exclude exclusive
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-task gres gres-flags hint job-name licenses mail-type mail-user mem
    mem-per-cpu mem-per-gpu mincpus nice nodelist partition prefer priority qos reservation switches threads-per-core
    time tmp wckey
"""
OPTIONS = frozenset(OPTION_NAMES.split())
# States of jobs that have ended; every other state is one in which a job runs, or will run again.
CAUSES = {
    "CANCELLED": "was cancelled",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "used more memory than it may",
    "TIMEOUT": "reached its time limit before it had saved its members",
}
LOST = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED")  # not an error of the worker: another one can go on
ENDED = (*CAUSES, *LOST, "COMPLETED", "FAILED")


def sbatch_options(texts: Iterable[str]) -> dict[str, str]:
    """Options of sbatch that were written as KEY=VALUE.

    >>> sbatch_options(["partition=gpu", "--time=4:00:00"])
    {'partition': 'gpu', 'time': '4:00:00'}
    """
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.removeprefix("--").partition("=")
        name = name.strip().replace("_", "-")
        if name not in OPTIONS:
            raise BadInput(f"sbatch option '{name}' is unknown, or set by assay{suggestion(name, OPTIONS)}")
        if name in options:
            raise BadInput(f"sbatch option '{name}' is given twice")
        if not (equals and value.strip() and value.isprintable()):
            raise BadInput(f"sbatch option '{text}' is not valid: write {name}=VALUE")
        options[name] = value.strip()
    return options


class SlurmQueue:
    """Starts workers as jobs of a Slurm cluster; with `cluster="local"`, as processes here that submitit runs.

    `options` are those of sbatch; with the device `cuda`, every worker gets one GPU. Submitted files and what workers
    write to stderr are kept in a folder of logs, which all machines must see.
    """

    def __init__(
        self,
        command: Sequence[str],
        logs: Path,
        options: Mapping[str, str] | None = None,
        device: str = "cpu",
        cluster: str = "slurm",
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        _require_submitit()
        self.command, self.logs, self.poll_seconds = list(command), logs.absolute(), poll_seconds
        self.scheduler: Scheduler = Local() if cluster == "local" else Slurm(dict(options or {}), device)
        self.limit = self.scheduler.limit
        self.running: set[str] = set()  # jobs that have not ended
        self.unseen: dict[str, float] = {}  # since when a job has ended whose exit code is not visible yet
        self.ended: list[Failure] = []
        self.stopping = False
        self.updated = -math.inf

    def start(self, count: int) -> int:
        """Submit up to `count` workers as one array; returns how many these are."""
        count = min(count, self.limit - len(self.running))
        if count < 1:
            return 0
        self.stopping = False
        make_folder(self.logs)
        job = WorkerJob(self.command, os.getcwd(), str(self.logs))
        executor = self.scheduler.executor(self.logs)
        with _clean_environment(), _refusal_in_one_line(executor), executor.batch():
            jobs = [executor.submit(job) for _ in range(count)]
        self.scheduler.add(jobs)
        self.running |= {job.job_id for job in jobs}
        return count

    def alive(self) -> int:
        """The number of workers that run or are queued; the queue is looked at every few seconds."""
        if self.running and time.monotonic() - self.updated >= self.poll_seconds:
            self._update()
        return len(self.running)

    def failures(self) -> list[Failure]:
        self.alive()
        return list(self.ended)

    def stop(self) -> None:
        """Let all workers save their members and end; those that take too long are cancelled."""
        self.stopping, deadline = True, time.monotonic() + SAVE_SECONDS
        try:
            while self.running and time.monotonic() < deadline:
                self.scheduler.interrupt(self.running)  # again and again: a job that is starting does not notice
                time.sleep(min(STOP_POLL_SECONDS, self.poll_seconds))
                self._update()
        finally:
            if self.running:
                self.scheduler.cancel(self.running)

    def preview(self, count: int) -> str:
        """The number of workers, their command, and the file that sbatch would be given."""
        count = min(count, self.limit)
        noun = "worker" if count == 1 else "workers"
        return f"{count} {noun}: {shlex.join(self.command)}\n\n{self.submission_text(count)}"

    def submission_text(self, count: int) -> str:
        """The file that `start` gives to sbatch."""
        return self.scheduler.submission_text(self.logs, count)

    def _update(self) -> None:
        """Find out which jobs have ended, and why."""
        states = self.scheduler.states(self.running)
        self.updated = time.monotonic()
        if states is None:  # Slurm did not answer
            return
        for job in sorted(self.running):
            state = states.get(job, GONE)
            if state in (*ENDED, GONE):
                self._note_end(job, state)
            else:
                self.unseen.pop(job, None)

    def _note_end(self, job: str, state: str) -> None:
        """Note the failure of a job that has ended, if it is one, as soon as the exit code of its worker is visible."""
        name, log, failure = f"the worker of job {job}", log_of(self.logs, job), None
        if state in CAUSES:
            failure = Failure(f"{name} {CAUSES[state]}", False)
        elif state not in LOST and state != "COMPLETED":
            code = _read_number(exit_code_of(self.logs, job))
            if code is None and time.monotonic() - self.unseen.setdefault(job, self.updated) < OUTCOME_SECONDS:
                return
            log_of_job = self.logs / f"{job}_0_log.err"
            failure = failure_of(name, code, log) if code is not None else _unknown_end(name, log_of_job)
        self.running.discard(job)
        self.unseen.pop(job, None)
        if failure and not self.stopping:
            self.ended.append(failure)


def _require_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise BadInput("slurm needs the package submitit: pip install 'assay[slurm]'") from None


@contextmanager
def _refusal_in_one_line(executor: Any) -> Iterator[None]:
    """What sbatch says when it refuses a job is bad input."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        yield
    except (FailedJobError, FailedSubmissionError) as error:
        lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in str(error).strip().splitlines()]
        options = executor.parameters["additional_parameters"]
        settings = ", ".join(f"{name}={value}" for name, value in options.items() if value is not True)
        reason = lines[-1] if lines else "it gives no reason"
        raise BadInput(f"sbatch refuses the job: {reason} (with {settings})") from None


@contextmanager
def _clean_environment() -> Iterator[None]:
    """An environment in which a job that submits others does not pass on what holds for itself."""
    own = (
        []
        if "SLURM_JOB_ID" not in os.environ
        else [name for name in os.environ if name.startswith(("SLURM_", "SRUN_", "SUBMITIT_")) and name != "SLURM_CONF"]
    )
    removed = {name: os.environ.pop(name) for name in own}
    try:
        yield
    finally:
        os.environ.update(removed)


def _read_number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _unknown_end(name: str, log: Path) -> Failure:
    """The failure of a job whose worker has left no exit code."""
    last = last_line(log, ignored=("srun:", "slurmstepd-"))
    return Failure(f"{name} ended without an exit code: {last or 'it wrote nothing'} ({log})", False)
