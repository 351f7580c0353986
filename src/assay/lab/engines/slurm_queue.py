"""The launcher that starts workers as jobs of a Slurm cluster, by way of submitit.

The jobs are an array of equal workers, not one for each run. Slurm may stop them and queue them again at any time;
what each of them then does is in `slurm_job`.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assay.description import BadInput, suggestion
from assay.lab.engines.launchers import SAVE_SECONDS, Failure, failure_of, last_line
from assay.lab.engines.slurm_job import WorkerJob, exit_code_of, log_of

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
JOB_NAME = "assay"
TIMEOUTS = 1000  # how often a job may reach its time limit
WARNING_SECONDS = 90  # before the time limit, in which members are saved; less if the limit is short
QUERY_SECONDS = 60  # that Slurm is given to answer
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
GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task")
# States of jobs that have ended; every other state is one in which a job runs, or will run again.
CAUSES = {
    "CANCELLED": "was cancelled",
    "DEADLINE": "reached its deadline",
    "OUT_OF_MEMORY": "used more memory than it may",
    "TIMEOUT": "reached its time limit before it had saved its members",
}
LOST = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED")  # not an error of the worker: another one can go on
ENDED = (*CAUSES, *LOST, "COMPLETED", "FAILED")
GONE = "GONE"  # what a job is called here that Slurm does not know any more


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
        self.logs.mkdir(parents=True, exist_ok=True)
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


class Scheduler(Protocol):
    """Where submitit's jobs go."""

    limit: int  # of the number of jobs that are submitted at once

    def executor(self, logs: Path) -> Any: ...

    def submission_text(self, logs: Path, count: int) -> str: ...

    def add(self, jobs: Iterable[Any]) -> None:
        """Note jobs that were submitted."""
        ...

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        """The state of each job that is known; None if it cannot be found out now."""
        ...

    def interrupt(self, jobs: Iterable[str]) -> None:
        """Withdraw queued jobs; let workers that run save their members and end."""
        ...

    def cancel(self, jobs: Iterable[str]) -> None: ...


class Slurm:
    """The Slurm cluster of this machine; wrong options are bad input."""

    def __init__(self, options: dict[str, str], device: str) -> None:
        if missing := [name for name in COMMANDS if shutil.which(name) is None]:
            raise BadInput(
                f"there is no command '{missing[0]}' here: use slurm on a machine that submits jobs to Slurm"
            )
        self.options, self.device = options, device
        partitions = _partitions(options.get("partition"))
        if device == "cuda" and not any(partition.has_gpus for partition in partitions.values()):
            raise BadInput(f"no node of partition '{','.join(partitions)}' has a GPU; choose another, or --device cpu")
        self.limit = _array_limit()
        # submitit needs to know the time limit, and would otherwise choose five minutes.
        self.default_time = min((each.time for each in partitions.values()), key=minutes)
        self.minutes = minutes(self._time)

    @property
    def _time(self) -> str:
        return self.options.get("time", self.default_time)

    def executor(self, logs: Path) -> Any:
        from submitit import SlurmExecutor

        options = {"requeue": True, **self.options, "time": self._time}
        if self.device == "cuda" and not any(name in options for name in GPU_OPTIONS):
            resources = str(options.get("gres", ""))
            if "gpu" not in resources:
                options["gres"] = f"{resources},gpu:1".lstrip(",")
        cpus = options.get("cpus-per-task")
        path = os.environ.get("PYTHONPATH")
        executor = SlurmExecutor(logs, max_num_timeout=TIMEOUTS)
        executor.update_parameters(
            job_name=options.pop("job-name", JOB_NAME),
            time=self.minutes,  # for submitit; sbatch reads the option
            signal_delay_s=int(min(WARNING_SECONDS, 15 * self.minutes)),
            array_parallelism=self.limit,
            wckey=None,
            setup=[f"export PYTHONPATH={shlex.quote(path)}"] if path else None,
            srun_args=[f"--cpus-per-task={cpus}"] if cpus else None,  # srun does not read it from sbatch
            additional_parameters=options,
        )
        return executor

    def submission_text(self, logs: Path, count: int) -> str:
        executor = self.executor(logs)
        if count > 1:
            executor.parameters["map_count"] = count
        return str(executor._make_submission_file_text(executor._submitit_command_str, ""))

    def add(self, jobs: Iterable[Any]) -> None:
        pass

    def states(self, jobs: Iterable[str]) -> dict[str, str] | None:
        # Not `--jobs`, which fails as soon as one of them is forgotten.
        try:
            answer = _run("squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i %T")
        except (OSError, subprocess.SubprocessError):
            return None
        # Jobs that were cancelled before they ran are listed once for the whole array, as 7 or 7_[2-3].
        lines = [line.split(maxsplit=1) for line in answer.splitlines()]
        states = {job.partition("_[")[0]: state.strip() for job, state in lines}
        return {job: states.get(job) or states.get(job.partition("_")[0], GONE) for job in jobs}

    def interrupt(self, jobs: Iterable[str]) -> None:
        arrays = _arrays(jobs)
        self._scancel("--state=PENDING", *arrays)
        self._scancel("--signal=INT", *arrays)

    def cancel(self, jobs: Iterable[str]) -> None:
        self._scancel(*_arrays(jobs))

    def _scancel(self, *arguments: str) -> None:
        with suppress(OSError, subprocess.SubprocessError):  # a job that has ended in the meantime
            _run("scancel", "--quiet", *arguments)


class Local:
    """Processes of this machine, which submitit starts as if they were jobs."""

    limit = 1000

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}

    def executor(self, logs: Path) -> Any:
        from submitit import LocalExecutor

        executor = LocalExecutor(logs, max_num_timeout=TIMEOUTS)
        executor.update_parameters(timeout_min=365 * 24 * 60)
        return executor

    def submission_text(self, logs: Path, count: int) -> str:
        return str(self.executor(logs)._submitit_command_str)

    def add(self, jobs: Iterable[Any]) -> None:
        self.jobs |= {job.job_id: job for job in jobs}

    def states(self, jobs: Iterable[str]) -> dict[str, str]:
        return {job: "RUNNING" for job in jobs if self.jobs[job].state == "RUNNING"}

    def interrupt(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            with suppress(ProcessLookupError):
                os.kill(int(job), signal.SIGTERM)  # submitit passes it on

    def cancel(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.jobs[job].cancel()


def minutes(text: str) -> float:
    """A time limit as Slurm writes it: [days-]hours:minutes:seconds and its short forms.

    >>> [minutes(text) for text in ("90", "1:30", "1:30:00", "2-0", "1-12:30", "infinite")]
    [90.0, 1.5, 90.0, 2880.0, 2190.0, inf]
    """
    if text.lower() in ("unlimited", "infinite", "-1", "0"):
        return math.inf
    if not (match := re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)):
        raise BadInput(f"time={text} is not valid: write minutes, hours:minutes:seconds or days-hours:minutes:seconds")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, rest = numbers[0], [*numbers[1:], 0, 0]
        return int(days) * 1440 + hours * 60 + rest[0] + rest[1] / 60
    if len(numbers) == 3:
        return numbers[0] * 60 + numbers[1] + numbers[2] / 60
    return numbers[0] + (numbers[1] / 60 if len(numbers) == 2 else 0.0)


def _require_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ImportError:
        raise BadInput("slurm needs the package submitit: pip install 'assay[slurm]'") from None


def _array_limit() -> int:
    """The largest number of jobs in an array of this cluster; 1 where there are no arrays."""
    settings = _ask("scontrol", "show", "config")
    limits = [int(number) for number in re.findall(r"(?:MaxArraySize *= *|max_array_tasks=)(\d+)", settings)]
    return max(1, min(limits, default=1))


class Partition(NamedTuple):
    """A partition of a cluster."""

    time: str  # the limit of a job for which none is given
    has_gpus: bool


def _partitions(names: str | None) -> dict[str, Partition]:
    """The partitions with some names, separated by commas, or else the default one; they must exist."""
    partitions: dict[str, Partition] = {}
    default = ""
    for line in _ask("sinfo", "--all", "--noheader", "--format=%R|%L|%l|%P|%G").splitlines():
        name, default_time, limit, marked_name, resources = (part.strip() for part in line.split("|"))
        time_ = limit if default_time in ("n/a", "") else default_time
        has_gpus = "gpu" in resources or (name in partitions and partitions[name].has_gpus)
        partitions[name] = Partition(time_, has_gpus)
        default = name if marked_name.endswith("*") else default
    if not names and not default:
        raise BadInput(f"this cluster has no default partition: give partition=NAME{suggestion('', partitions)}")
    chosen = (names or default).split(",")
    for name in chosen:
        if name not in partitions:
            raise BadInput(f"there is no partition '{name}' on this cluster{suggestion(name, partitions)}")
    return {name: partitions[name] for name in chosen}


def _ask(*command: str) -> str:
    """What a command of Slurm says; it is bad input if that fails."""
    try:
        return _run(*command)
    except subprocess.CalledProcessError as error:
        lines = (error.stderr or "").strip().splitlines() or [f"exit code {error.returncode}"]
        raise BadInput(f"{command[0]} failed: {lines[-1]}") from None
    except subprocess.TimeoutExpired:
        raise BadInput(f"{command[0]} failed: Slurm has not answered for {QUERY_SECONDS} seconds") from None


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=True).stdout


@contextmanager
def _refusal_in_one_line(executor: Any) -> Iterator[None]:
    """What sbatch says when it refuses a job is bad input."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        yield
    except (FailedJobError, FailedSubmissionError) as error:
        lines = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in str(error).strip().splitlines()]
        options = executor.parameters["additional_parameters"]
        given = ", ".join(f"{name}={value}" for name, value in options.items() if value is not True)
        reason = lines[-1] if lines else "it gives no reason"
        raise BadInput(f"sbatch refuses the job: {reason} (with {given})") from None


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


def _arrays(jobs: Iterable[str]) -> list[str]:
    return sorted({job.partition("_")[0] for job in jobs})


def _read_number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _unknown_end(name: str, log: Path) -> Failure:
    """The failure of a job whose worker has left no exit code."""
    last = last_line(log, ignored=("srun:", "slurmstepd-"))
    return Failure(f"{name} ended without an exit code: {last or 'it wrote nothing'} ({log})", False)
