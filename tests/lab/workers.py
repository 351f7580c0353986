"""A program that behaves like a worker, but only notes what happens to it."""

from __future__ import annotations

import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

folder, exit_code = Path(sys.argv[1]), int(sys.argv[2])
name = os.environ.get("SLURM_ARRAY_TASK_ID", os.environ.get("CUDA_VISIBLE_DEVICES", ""))

def note(event):
    with (folder / "notes").open("a") as file:
        file.write(f"{event} {name} {os.getpid()}\\n")

def save(*_):
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    note("saved")
    sys.exit(130)

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
note("started")
while not (folder / "end").exists():
    time.sleep(0.02)
print("a warning\\n" + (folder / "end").read_text(), file=sys.stderr)
note("ended")
sys.exit(exit_code)
"""


class Workers:
    """The command of stand-in workers, and what they have noted in a folder."""

    def __init__(self, folder: Path, exit_code: int = 0) -> None:
        self.folder = folder
        self.command = [sys.executable, "-c", PROGRAM, str(folder), str(exit_code)]

    def notes(self, event: str, name: str | None = None) -> list[int]:
        """The ids of the processes to which an event has happened, of all workers or of one."""
        path = self.folder / "notes"
        lines = [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []
        return [int(pid) for noted, worker, pid in lines if noted == event and name in (None, worker)]

    def names(self, event: str) -> list[str]:
        """The names of the workers to which an event has happened: their places in an array, or their GPUs."""
        lines = [line.split(" ") for line in (self.folder / "notes").read_text().splitlines()]
        return sorted(name for noted, name, _ in lines if noted == event)

    def end(self, message: str = "") -> None:
        """Let all workers end with their exit code, after a message on stderr."""
        (self.folder / "end.tmp").write_text(message)
        (self.folder / "end.tmp").rename(self.folder / "end")


def is_running(pid: int) -> bool:
    """Whether a process exists, and is not one that has ended but was not waited for."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
