"""Runs a command that gets SIGTERM when its parent process dies: `python -I orphan_guard.py PARENT COMMAND...`.

A program of its own instead of `preexec_fn`, which is not safe in a process with threads. USR1 and USR2 are ignored:
Slurm sends its warnings to all processes of a job, but only the parent knows what they mean.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # of Linux


def guarded(command: Sequence[str]) -> list[str]:
    """The command of a child of this process that is to end with it."""
    return [sys.executable, "-I", __file__, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(130)  # the parent died before this line
    for name in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(name, signal.SIG_IGN)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
