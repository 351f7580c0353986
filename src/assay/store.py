"""Stores: folders of records, and packed files of them."""

from __future__ import annotations

import gc
import io
import json
import lzma
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import ClassVar

from assay.description import BadInput
from assay.lines import read_lines, write_lines
from assay.record import Record

CHUNK = 1 << 22  # bytes of a packed file that are decompressed at a time


class Store:
    """A folder of records, or a packed file of them.

    Every write is a new segment file: written under a temporary name, synced, and renamed into place. So several
    processes can write to one store, and a kill leaves at most a temporary file that is never read.
    """

    MARK: ClassVar[str] = "assay-store.json"

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: Path | str) -> Store:
        """Open a store for writing; an empty or missing folder becomes one."""
        path = Path(path)
        mark = path / cls.MARK
        try:
            is_file, is_store = path.is_file(), mark.exists()
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None
        if is_file:
            raise BadInput(f"{path} is a file; a store to write to is a folder")
        if not is_store:
            # Another process may be creating the same store; its mark file comes first.
            occupied = path.is_dir() and any(not item.name.startswith(f".{cls.MARK}") for item in path.iterdir())
            if occupied and not mark.exists():
                raise BadInput(f"{path} is not a store (it has no {cls.MARK}); name a store, or a new or empty folder")
            write_synced(mark, json.dumps({"assay": "store", "format": 1}).encode())
        for folder in (path, path / "segments"):
            if folder.exists() and not os.access(folder, os.W_OK):
                raise BadInput(f"cannot write to {folder}: it is read-only")
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> Store:
        """Open a store or a packed file for reading."""
        path = Path(path)
        try:
            if not path.exists():
                raise BadInput(f"there is no store at {path}")
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}") from None
        if path.is_dir():
            mark = path / cls.MARK
            if not mark.exists():
                raise BadInput(f"{path} is not a store (it has no {cls.MARK})")
            _check_format(mark, _read(mark))
        return cls(path)

    def add(self, *records: Record) -> None:
        """Write records as one segment, after their weights; all is on disk when this returns."""
        for record in records:
            folder, names = self.path / "weights", {s: weights_name(record.digest, s) for s in record.weights}
            new = {folder / f"{name}.safetensors": record.weights[state] for state, name in names.items()}
            for path, weights in new.items():
                write_synced(path, weights)
            if record.origin is None and record.finished:  # a new run, not a new result of a stored one
                for old in {*folder.glob(f"{record.digest}*.safetensors")} - {*new}:
                    old.unlink(missing_ok=True)
            record.__dict__ |= {"weights": {}, "origin": self.path}
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        name = f"{now}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        write_synced(self.path / "segments" / name, write_lines(records))

    def history(self) -> Iterator[Record]:
        """Every record ever written, oldest segment first."""
        segments = sorted((self.path / "segments").glob("*.jsonl"))
        records = (read_lines(s, _split([_read(s)])) for s in segments) if self.path.is_dir() else (self._unpack(),)
        for record in chain.from_iterable(records):
            record.__dict__["origin"] = self.path
            yield record

    def records(self) -> list[Record]:
        """One record per run, failed runs included; of several the latest, finished ones first."""
        latest: dict[str, Record] = {}
        with no_garbage_collection():
            for record in self.history():
                previous = latest.get(record.digest)
                if previous is None or record.finished or not previous.finished:
                    latest[record.digest] = record
        return list(latest.values())

    def select(self, digests: Iterable[str]) -> list[Record]:
        """The records of these runs, in their order; runs without a record are left out."""
        records = {record.digest: record for record in self.records()}
        return [records[digest] for digest in dict.fromkeys(digests) if digest in records]

    def run(self, digest: str) -> Record:
        """The record of the run whose digest begins so."""
        records = self.records()
        matches = [record for record in records if record.digest.startswith(digest)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            number = len(matches)
            raise BadInput(f"{self.path} has {number} runs with a digest that begins with {digest}; give more of it")
        known = ", ".join(f"{record.digest[:8]} ({record.model} on {record.task})" for record in records[:3])
        raise BadInput(f"{self.path} has no run with a digest that begins with {digest}; it has {known or 'no runs'}")

    def weights_file(self, digest: str, state: str = "") -> Path | None:
        """The file with the weights of a run, which may hold those of others too; None if they were not kept.

        `state` names a further state of the run; without it, they are those of the tested one.
        """
        name = weights_name(digest, state)
        if self.path.is_dir():
            single = self.path / "weights" / f"{name}.safetensors"
            return single if single.is_file() else None
        packed = weights_beside(self.path)
        return packed if packed.is_file() and f'"{name}/'.encode() in _safetensors_header(packed) else None

    def pack(self, path: Path | str) -> int:
        """Write one compact file with the same bytes for the same records; returns the number of records."""
        records = sorted(self.records(), key=lambda r: (r.task, r.model, r.seed, r.digest))
        header = json.dumps({"assay": "pack", "format": 1}).encode() + b"\n"
        write_synced(Path(path), lzma.compress(header + write_lines(records), preset=9))
        return len(records)

    def _unpack(self) -> Iterator[Record]:
        """The records of a packed file; xz has checked their bytes, so long parts are parsed when they are needed."""
        try:
            lines = _split(_decompressed(_read(self.path)))
            _check_format(self.path, next(lines, b""))
            yield from read_lines(self.path, lines, lazily=True)
        except (lzma.LZMAError, EOFError):
            raise BadInput(f"{self.path} is not a packed store; `assay pack` makes one") from None


def _decompressed(data: bytes) -> Iterator[bytes]:
    """The content of an xz file in chunks; a thread decompresses the next chunk meanwhile."""
    with lzma.open(io.BytesIO(data)) as file, ThreadPoolExecutor(1) as pool:
        chunk = pool.submit(file.read, CHUNK)
        while part := chunk.result():
            chunk = pool.submit(file.read, CHUNK)
            yield part


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of chunks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A large store is a million small objects, none of them garbage: the collector would visit all of them often."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()  # all are now in the oldest generation, which is seldom visited
            gc.enable()


def _safetensors_header(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def weights_name(digest: str, state: str = "") -> str:
    """What the weights of a run's state are called, in a store and in a packed file.

    >>> weights_name("3f2a"), weights_name("3f2a", "watched")
    ('3f2a', '3f2a.watched')
    """
    return f"{digest}.{state}" if state else digest


def weights_beside(packed: Path) -> Path:
    """Where the weights of a packed store are: NAME.weights.safetensors beside NAME.jsonl.xz."""
    return packed.with_name(f"{packed.name.removesuffix('.jsonl.xz')}.weights.safetensors")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _check_format(path: Path, data: bytes) -> None:
    try:
        known = json.loads(data)["format"] == 1
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is damaged: it should say which format the records have") from None
    if not known:
        raise BadInput(f"{path} was written by a newer assay; update assay to read it")


def write_synced(path: Path, data: bytes) -> None:
    """Write a temporary file, sync it, rename it, sync the folder: the file is whole or absent at every moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
