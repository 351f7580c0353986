"""Leases: which process carries out which runs of a store, so that several processes can share the work.

A run is leased by creating the file leases/DIGEST.0 exclusively, which works on network file systems too. Its holder
shows that it is alive by rewriting workers/NAME.json (its heartbeat). Clocks of different machines are never compared:
an observer counts on its own clock how long a heartbeat has not changed. A lease whose holder is dead is taken over by
creating DIGEST.1, and so on; the largest number is valid.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from assay.errors import BadInput
from assay.lab.checkpoint import Checkpoints
from assay.store import StoreUnavailable, write_synced

HEARTBEAT = 10.0  # seconds between two heartbeats
NEWS_SECONDS = 1.0  # the same, while runs are leased
LIFETIME = 60.0  # seconds without a heartbeat after which a process counts as dead
SUSPICIOUS_DEATHS = 3  # of processes that carried out a run, without progress; then it is carried out alone
MOST_DEATHS = 5  # and then it counts as failed
MOST_BYTES = 1 << 20  # of a heartbeat; larger files are not read


@dataclass(frozen=True)
class Lease:
    """A run that this process may carry out.

    `deaths` is the number of processes that have died while they carried it out, since its checkpoint last advanced;
    `step` is the step of that checkpoint.
    """

    digest: str
    number: int
    deaths: int
    step: int = 0
    since: float = field(default_factory=time.monotonic, compare=False)


class Observation(NamedTuple):
    """A heartbeat as it was last seen, and since when it has been so, on this process's clock."""

    content: bytes | None
    since: float
    has_changed: bool = False


class Leases:
    """The leases of this process on one store. As a context it has a heartbeat; at the end it returns all leases."""

    def __init__(self, store: Path, device: str = "", heartbeat: float = HEARTBEAT, lifetime: float = LIFETIME) -> None:
        self.folder, self.workers, self.checkpoints = store / "leases", store / "workers", Checkpoints(store)
        self.heartbeat, self.lifetime = heartbeat, lifetime
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.held: dict[str, Lease] = {}
        self.holders: dict[tuple[str, int], str] = {}  # of the leases of other processes
        self.observed: dict[str, Observation] = {}  # of the heartbeats of other processes
        self.description: dict[str, Any] = {
            "name": self.name,
            "host": socket.gethostname(),
            "machine": machine(),
            "pid": os.getpid(),
            "process": process_start(os.getpid()),
            "device": device,
            "command": " ".join(["assay", *sys.argv[1:]]),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self.activity: Callable[[], dict[str, Any]] = dict  # what the heartbeat says of the work
        self.start, self.beats = time.monotonic(), 0
        self.stopped, self.changed = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True)

    def __enter__(self) -> Leases:
        self._beat()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.changed.set()
        self.thread.join()
        self.release(list(self.held))
        dead = [name for name in self.observed if not self.is_alive(name)]
        for name in (self.name, *dead):
            with suppress(OSError):
                (self.workers / f"{name}.json").unlink(missing_ok=True)

    def lease(self, digests: Iterable[str]) -> tuple[list[Lease], list[str]]:
        """Lease runs; those that another process holds are left out.

        Also returns suspects, which are not leased: runs during which several processes have died. Each is to be leased
        alone, by `lease_suspect`, so that it is clear whose fault the next death is.
        """
        newest, alive = self._listing(), dict[str, bool]()
        leases, suspects = list[Lease | None](), list[str]()
        for digest in digests:
            if digest in self.held and self.held[digest].number == newest.get(digest):
                leases.append(self.held[digest])  # from an attempt that an error ended
            elif digest not in newest:
                leases.append(self._take(Lease(digest, 0, 0)))
            elif orphan := self._orphan(digest, newest[digest], alive):
                if orphan.deaths >= SUSPICIOUS_DEATHS:
                    suspects.append(digest)
                else:
                    leases.append(self._take_over(orphan))
        return [lease for lease in leases if lease], suspects

    def lease_suspect(self, digest: str) -> Lease | None:
        """Lease a run whose holder is dead; None if another process was faster."""
        number = self._listing().get(digest)
        if number is None:
            return self._take(Lease(digest, 0, 0))
        orphan = self._orphan(digest, number, {})
        return self._take_over(orphan) if orphan else None

    def holds(self, digest: str) -> bool | None:
        """Whether a lease is still valid: a process that did not beat for long may have lost it.

        None if its file has disappeared: perhaps with the store, perhaps because another process has ended the run.
        """
        lease = self.held.get(digest)
        if lease is None or self._file(lease, 1).exists():
            return False
        holder = self._content(digest, lease.number).get("worker")
        if holder is None:  # or it was deleted when the lease was taken over a second time
            return False if self._listing().get(digest, 0) > lease.number else None
        return bool(holder == self.name)

    def release(self, digests: Iterable[str]) -> None:
        for digest in digests:
            lease = self.held.pop(digest, None)
            if lease and self._content(digest, lease.number).get("worker") == self.name:  # it may have been lost
                with suppress(OSError):
                    self._file(lease).unlink(missing_ok=True)

    def others(self) -> dict[str, str]:
        """The names of the processes that hold leases, other than this one, by the digest of the run."""
        holders = dict[tuple[str, int], str]()
        alive = {name: self.is_alive(name) for name in {*self.holders.values()}}
        for lease in self._listing().items():
            # There may be thousands of files, on another machine: none is read again while its holder is alive.
            known = self.holders.get(lease, "")
            holder = known if alive.get(known) else self._holder(*lease)
            if holder not in ("", self.name):
                holders[lease] = holder
        self.holders = holders
        return {digest: holder for (digest, _), holder in holders.items()}

    # -- files ---------------------------------------------------------------------------------------------------------

    def _listing(self) -> dict[str, int]:
        """The largest number of each leased run."""
        newest = dict[str, int]()
        with suppress(OSError), os.scandir(self.folder) as files:
            for file in files:
                digest, _, number = file.name.partition(".")
                if number.isdigit():
                    newest[digest] = max(newest.get(digest, -1), int(number))
        return newest

    def _file(self, lease: Lease, later: int = 0) -> Path:
        return self.folder / f"{lease.digest}.{lease.number + later}"

    def _content(self, digest: str, number: int) -> dict[str, Any]:
        """The content of a lease's file; nothing while it is being written."""
        with suppress(OSError, ValueError):
            content = json.loads((self.folder / f"{digest}.{number}").read_bytes())
            if isinstance(content, dict) and "worker" in content:
                return content
        return {}

    def _holder(self, digest: str, number: int) -> str:
        """Who has a lease; a name that no process has if its file is damaged, nothing if there is no file."""
        if holder := self._content(digest, number).get("worker"):
            return str(holder)
        return _unknown(digest, number) if (self.folder / f"{digest}.{number}").exists() else ""

    def _take(self, lease: Lease) -> Lease | None:
        """Create the file of a lease; None if another process was faster."""
        content = json.dumps({"worker": self.name, "deaths": lease.deaths, "step": lease.step}).encode()
        try:
            self.folder.mkdir(exist_ok=True)
            file = os.open(self._file(lease), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"cannot write {self.folder}: {error.strerror}") from None
        try:
            os.write(file, content)
        except OSError as error:
            with suppress(OSError):
                self._file(lease).unlink()
            raise StoreUnavailable(f"cannot write {self.folder}: {error.strerror}") from None
        finally:
            os.close(file)
        self.held[lease.digest] = lease
        self.changed.set()
        if not self.holds(lease.digest):  # a listing may be old on a network file system
            self.release([lease.digest])
            return None
        return lease

    def _orphan(self, digest: str, number: int, alive: dict[str, bool]) -> Lease | None:
        """The lease that takes the place of one whose holder is dead; None if the holder is alive."""
        content = self._content(digest, number)
        holder = content.get("worker", _unknown(digest, number))
        if holder not in alive:
            alive[holder] = holder != self.name and self.is_alive(holder)
        if alive[holder]:
            return None
        step = self.checkpoints.progress(digest)
        if holder == self.name:  # its file could not be deleted when this process returned the lease
            return Lease(digest, number + 1, content.get("deaths", 0), step)
        return Lease(digest, number + 1, 1 if step > content.get("step", 0) else content.get("deaths", 0) + 1, step)

    def _take_over(self, orphan: Lease) -> Lease | None:
        lease = self._take(orphan)
        for old in range(orphan.number if lease else 0):
            with suppress(OSError):
                (self.folder / f"{orphan.digest}.{old}").unlink(missing_ok=True)
        return lease

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def is_alive(self, name: str) -> bool:
        """Whether another process has shown a heartbeat within its lifetime, as far as this one has observed."""
        content = _read(self.workers / f"{name}.json")
        if content and _is_gone(content):
            return False
        now, previous = time.monotonic(), self.observed.get(name)
        if previous is None:
            self.observed[name] = Observation(content, now)
        elif content != previous.content:
            self.observed[name] = Observation(content, now, has_changed=True)
        return now - self.observed[name].since < self.lifetime

    def has_beaten(self, name: str) -> bool:
        """Whether the heartbeat of another process has changed while `is_alive` was asked again and again."""
        return name in self.observed and self.observed[name].has_changed

    def _keep_beating(self) -> None:
        while not self.stopped.wait(min(NEWS_SECONDS, self.heartbeat)):
            self.changed.wait(self.heartbeat)
            self.changed.clear()
            with suppress(OSError, BadInput):  # the store may come back
                self._beat()

    def _beat(self) -> None:
        self.beats += 1
        seconds = round(time.monotonic() - self.start, 1)
        report = self.description | {"beat": self.beats, "seconds": seconds} | self.activity()
        write_synced(self.workers / f"{self.name}.json", json.dumps(report).encode())


def file_time(folder: Path) -> float:
    """The time by the file system's own clock: that of a file which is written now."""
    probe = folder / f".now-{os.getpid()}-{secrets.token_hex(4)}"
    with suppress(OSError):
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
        return now
    return time.time()


def reports(store: Path, now: float | None = None) -> Iterator[dict[str, Any]]:
    """The heartbeats in a store, of processes that may be dead; each with its age in seconds.

    The age compares two times of the file system's own clock: those of the heartbeat and `now`.
    """
    folder = store / "workers"
    now = file_time(folder) if now is None else now
    for path in sorted(folder.glob("*.json")):
        with suppress(OSError, ValueError, RecursionError):
            if path.stat().st_size > MOST_BYTES:
                continue
            content = path.read_bytes()
            report = json.loads(content)
            if isinstance(report, dict) and "name" in report:
                yield report | {"age": max(0.0, now - path.stat().st_mtime), "gone": _is_gone(content)}


def _unknown(digest: str, number: int) -> str:
    """The name of the holder of a lease whose file is empty, because the holder is about to write it, or died."""
    return f"unknown holder of {digest}.{number}"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _is_gone(heartbeat: bytes) -> bool:
    """Whether the process of a heartbeat ran on this machine and does not run any more."""
    with suppress(ValueError, KeyError, TypeError):
        report = json.loads(heartbeat)
        if report["machine"] == machine():
            return bool(process_start(report["pid"]) != report["process"])
    return False


@cache
def machine() -> str:
    """A name of this machine that no other has, and no other container on it: a host's name is not enough."""
    parts = [_read(Path("/proc/sys/kernel/random/boot_id")) or socket.gethostname().encode()]
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid").encode())
    return "/".join(part.decode().strip() for part in parts)


def process_start(pid: int) -> str | None:
    """When a process of this machine was started, in the system's own count; None if there is none.

    Numbers of processes are used again, but not with the same start.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "running"
