"""Schedulers of the Slurm launcher: Slurm itself, or processes of this machine that submitit starts like jobs."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assay.errors import BadInput, suggestion

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
JOB_NAME = "assay"
TIMEOUTS = 1000  # how often a job may reach its time limit
WARNING_SECONDS = 90  # before the time limit, in which members are saved; less if the limit is short
QUERY_SECONDS = 60  # that Slurm is given to answer
GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task")
GONE = "GONE"  # what a job is called here that Slurm does not know any more


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


def _arrays(jobs: Iterable[str]) -> list[str]:
    return sorted({job.partition("_")[0] for job in jobs})
