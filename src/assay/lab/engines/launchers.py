"""The interface of a launcher, which starts workers: processes that lease their work from a store themselves."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

SAVE_SECONDS = 60.0  # that a worker is given to save its members
BAD_INPUT = 2  # the exit code of a worker that was given bad input
SAVED = 130  # the exit code of a worker that was asked to save its members


class Failure(NamedTuple):
    """Why a worker ended with an error, in one line; after bad input, another worker would end in the same way."""

    reason: str
    bad_input: bool


class Launcher(Protocol):
    """Starts workers somewhere, and knows which of them are still there.

    A worker exits with code 0 if there is nothing left that it could lease, with 130 after it has saved its members on
    SIGTERM, and with 2 after one line on stderr if its input is bad. It may get SIGTERM or SIGINT several times.
    """

    limit: int  # of the number of workers at a time

    def start(self, count: int) -> int:
        """Start up to `count` more workers; returns how many these are."""
        ...

    def alive(self) -> int:
        """The number of workers that run or are queued."""
        ...

    def failures(self) -> list[Failure]:
        """Of all workers that have ended with an error so far."""
        ...

    def stop(self) -> None:
        """Let all workers save their members and end; those that take too long are killed."""
        ...

    def preview(self, count: int) -> str:
        """What `start` would do, as text."""
        ...


def failure_of(worker: str, code: int, log: Path) -> Failure | None:
    """The failure of a worker that ended with an exit code (negative: the number of a signal), if it is one."""
    if code in (0, SAVED):
        return None
    last = last_line(log)
    if code == BAD_INPUT:
        return Failure(last.removeprefix("assay: ") or f"{worker} ended with exit code {code}", True)
    cause = f"signal {signal.Signals(-code).name} (out of memory, or killed)" if code < 0 else f"exit code {code}"
    return Failure(f"{worker} ended with {cause}" + (f": {last}" if last else ""), False)


def last_line(path: Path, ignored: tuple[str, ...] = ()) -> str:
    """The last line of a text file that is not empty, nor begins in an ignored way; an empty text if there is none."""
    with suppress(OSError):
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line and not line.startswith(ignored)), "")
    return ""
