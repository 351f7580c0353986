"""What a Slurm job does: it runs one worker, and lets it save its members when the job is about to end.

submitit pickles a `WorkerJob`, so this module imports little, and its class holds only texts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.lab.engines.launchers import BAD_INPUT, SAVE_SECONDS, SAVED
from assay.lab.engines.orphan_guard import guarded

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

QUERY_SECONDS = 20  # that Slurm is given to answer
RUNNING = ("RUNNING", "SIGNALING")  # what Slurm calls a job that it does not intend to end


class WorkerJob:
    """The function that submitit calls in a job; the job ends with the exit code of its worker.

    - SIGUSR2, before the time limit (on some clusters also before preemption): submitit calls `checkpoint`, and the
      job is queued again.
    - SIGTERM: the worker saves its members. A job that Slurm lets run for a while, though it will be preempted, is
      queued again. One that Slurm has cancelled, or queues again itself, ends.
    - SIGINT: the worker saves its members, and the job ends.
    """

    def __init__(self, command: Sequence[str], folder: str, logs: str) -> None:
        self.command, self.folder, self.logs = tuple(command), folder, logs

    def __call__(self) -> None:
        from submitit import JobEnvironment

        self._environment = JobEnvironment()
        self._warning = getattr(signal, f"SIG{JobEnvironment.USR_SIG}")
        self._worker: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        signal.signal(signal.SIGINT, self._handle_sigint)
        log, exit_code = log_of(self.logs, self._environment.job_id), exit_code_of(self.logs, self._environment.job_id)
        exit_code.unlink(missing_ok=True)
        with log.open("w") as stderr:
            self._worker = subprocess.Popen(guarded(self.command), cwd=self.folder, stderr=stderr)
        # Not Popen.wait: it holds a lock, for which a signal handler that interrupts it would wait.
        os.waitid(os.P_PID, self._worker.pid, os.WEXITED | os.WNOWAIT)
        self._ignore_signals()
        self._end(self._worker.wait())

    def checkpoint(self) -> DelayedSubmission:
        """The job to queue instead of this one, whose worker saves its members first."""
        from submitit.helpers import DelayedSubmission

        self._ignore_signals()
        code = self._stop_worker()
        if code in (0, BAD_INPUT):
            self._end(code)  # the worker has ended already
        return DelayedSubmission(WorkerJob(self.command, self.folder, self.logs))

    def _handle_sigterm(self, *_: Any) -> None:
        requeue = self._ignore_signals()
        code = self._stop_worker()
        if code not in (0, BAD_INPUT) and self._is_running():
            requeue(self._warning, None)
        self._end(code)

    def _handle_sigint(self, *_: Any) -> None:
        self._ignore_signals()
        self._end(self._stop_worker())

    def _ignore_signals(self) -> Any:
        """Ignore all further signals, and return submitit's handler, which queues the job again."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return signal.signal(self._warning, signal.SIG_IGN)

    def _stop_worker(self) -> int:
        """Let the worker save its members; returns its exit code."""
        if self._worker is None:
            return SAVED
        self._worker.terminate()
        try:
            return self._worker.wait(SAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            return self._worker.wait()

    def _is_running(self) -> bool:
        """Whether Slurm itself would let this job go on for now."""
        if self._environment.cluster != "slurm":
            return False
        command = ["squeue", "--noheader", f"--jobs={self._environment.job_id}", "--format=%T"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return answer.stdout.strip() in RUNNING

    def _end(self, code: int) -> None:
        """End the job, and leave the exit code of its worker behind."""
        path = exit_code_of(self.logs, self._environment.job_id)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(str(code))
        temporary.rename(path)
        sys.exit(code if code >= 0 else 128 - code)


def log_of(logs: str | Path, job: str) -> Path:
    """What the worker of a job has written to stderr."""
    return Path(logs) / f"{job}.stderr"


def exit_code_of(logs: str | Path, job: str) -> Path:
    """The file with the exit code of the worker of a job that has ended; negative: the number of a signal."""
    return Path(logs) / f"{job}.exit"
