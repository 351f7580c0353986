"""Stores: folders of records, and packed files of them."""

from __future__ import annotations

import gc
import io
import json
import lzma
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import ClassVar

from assay.errors import BadInput
from assay.index import Entry, SegmentReader, cut_short, entry_of, index_line, index_path, indexed_bytes
from assay.lines import read_lines, write_lines
from assay.record import Record

TIME = "%Y%m%dT%H%M%S%f"  # how the name of a segment begins
PLANS = "plans"  # the folder of what commands are about
CHUNK = 1 << 22  # bytes of a packed file that are decompressed at a time


class StoreUnavailable(BadInput):
    """A store that cannot be written at the moment: its disk is full, or its folder has disappeared."""


class Store:
    """A folder of records, or a packed file of them.

    Each object that writes has a file of its own (a segment), to which it appends: so several processes, also of
    several machines, can write to one store. A record is on disk when `add` returns. A kill leaves at most an
    unfinished last line, which is never read.
    """

    MARK: ClassVar[str] = "assay-store.json"

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._segment: Path | None = None  # where new runs are appended
        self._readers: dict[str, SegmentReader] = {}
        self._latest: dict[str, Entry] = {}

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
            write_synced(mark, json.dumps({"assay": "store", "format": 1}).encode(), parents=True)
        for folder in (path, path / "segments"):
            if folder.exists() and not os.access(folder, os.W_OK):
                raise BadInput(f"cannot write to {folder}: it is read-only")
        make_folder(path / "segments")
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
        """Append records, after their weights; all is on disk when this returns."""
        if not (self.path / self.MARK).exists():  # an empty mount point must not become another store
            raise StoreUnavailable(f"cannot write {self.path}: the store has disappeared")
        is_new = all(record.origin is None for record in records)  # not new results of stored runs
        for record in records:
            self._write_weights(record)
        lines = [write_lines([record]) for record in records]
        segment = self._segment if is_new and self._segment else self._new_segment()
        try:
            start = _append_synced(segment, lines)
        except OSError as error:
            self._segment = None  # what the file ends with is not known
            raise StoreUnavailable(f"cannot write {segment}: {error.strerror}") from None
        if is_new:
            self._segment = segment
        entries = list[bytes]()
        for record, line in zip(records, lines, strict=True):
            entries.append(index_line(entry_of(record, segment.name, start, len(line))))
            start += len(line)
            record.__dict__ |= {"weights": {}, "origin": self.path}
        with suppress(OSError), open(index_path(segment), "ab") as index:  # it may be behind
            index.write(b"".join(entries))

    def _write_weights(self, record: Record) -> None:
        folder, names = self.path / "weights", {state: weights_name(record.digest, state) for state in record.weights}
        new = {folder / f"{name}.safetensors": record.weights[state] for state, name in names.items()}
        for path, weights in new.items():
            write_synced(path, weights)
        if record.origin is None and record.finished:
            for old in {*folder.glob(f"{record.digest}*.safetensors")} - {*new}:
                old.unlink(missing_ok=True)

    def _new_segment(self) -> Path:
        """The path of a segment that comes after all that are there, also those of a machine whose clock is ahead."""
        times = [
            datetime.now(UTC).strftime(TIME),
            *(segment.name.partition("-")[0] for segment in self._segments()[-1:]),
        ]
        time = max(times)
        if time != times[0]:
            with suppress(ValueError):  # another name: a person put the file there
                time = (datetime.strptime(time, TIME) + timedelta(microseconds=1)).strftime(TIME)
        return self.path / "segments" / f"{time}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"

    def history(self) -> Iterator[Record]:
        """Every record ever written, oldest segment first."""
        segments = self._segments()
        records = (read_lines(s, _whole_lines(s)) for s in segments) if self.path.is_dir() else (self._unpack(),)
        for record in chain.from_iterable(records):
            record.__dict__["origin"] = self.path
            yield record

    def _segments(self) -> list[Path]:
        folder = self.path / "segments"
        try:
            return sorted(folder / name for name in os.listdir(folder) if name.endswith(".jsonl"))
        except (FileNotFoundError, NotADirectoryError):  # it has disappeared, or is a packed file
            return []
        except OSError as error:
            raise BadInput(f"cannot read {folder}: {error.strerror}") from None

    def news(self) -> list[Entry]:
        """The entries of records that were added, by any process, since this object was last asked."""
        entries = list[Entry]()
        for segment in self._segments():
            reader = self._readers.setdefault(segment.name, SegmentReader(segment))
            try:
                entries += reader.read()
            except OSError as error:
                raise BadInput(f"cannot read {segment}: {error.strerror}") from None
        for entry in entries:
            previous = self._latest.get(entry.digest)
            if previous is None or entry.finished or not previous.finished:
                self._latest[entry.digest] = entry
        return entries

    def index(self) -> dict[str, Entry]:
        """One entry per run, chosen as in `records`, without reading the records."""
        if self.path.is_dir():
            self.news()
            return dict(self._latest)
        return {record.digest: entry_of(record, self.path.name, 0, 0) for record in self.records()}

    def load(self, entry: Entry) -> Record:
        """The record of an entry."""
        segment = self.path / "segments" / entry.segment
        try:
            with open(segment, "rb") as file:
                file.seek(entry.offset)
                line = file.read(entry.length)
        except OSError as error:
            raise BadInput(f"cannot read {segment}: {error.strerror}") from None
        (record,) = read_lines(segment, [line.rstrip(b"\n")])
        if record.digest != entry.digest:
            raise BadInput(f"{segment} is not what its index says; delete {index_path(segment).name} beside it")
        record.__dict__["origin"] = self.path
        return record

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
        if self.path.is_dir():
            entries = self.index()
            with no_garbage_collection():
                return [self.load(entries[digest]) for digest in dict.fromkeys(digests) if digest in entries]
        records = {record.digest: record for record in self.records()}
        return [records[digest] for digest in dict.fromkeys(digests) if digest in records]

    def run(self, digest: str) -> Record:
        """The record of the run whose digest begins with this text."""
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
        write_synced(Path(path), lzma.compress(header + write_lines(records), preset=9), parents=True)
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


def noted_runs(store: Path) -> dict[str, tuple[str, str]]:
    """Task and model of all runs that commands on this store are or were about, until all had ended, by digest."""
    runs = dict[str, tuple[str, str]]()
    for path in sorted((store / PLANS).glob("*.runs")):
        with suppress(OSError, ValueError, TypeError, RecursionError):
            for task, model, names in json.loads(path.read_bytes()):
                runs |= dict.fromkeys(map(str, names), (str(task), str(model)))
    return runs


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


def _whole_lines(segment: Path) -> Iterator[bytes]:
    """The lines of a segment; a last line without its end was never reported as stored."""
    indexed = indexed_bytes(segment)  # first: other processes append to both files
    data = _read(segment)
    *lines, _ = data.split(b"\n")
    yield from lines
    if indexed > len(data):
        raise cut_short(segment, len(lines) + 1)


def _append_synced(path: Path, lines: Sequence[bytes]) -> int:
    """Append lines to a file and sync it; returns where they begin. OSError if not all could be written."""
    with open(path, "ab", buffering=0) as file:  # a buffer would be written once more when the file is closed
        start, data = file.tell(), memoryview(b"".join(lines))
        try:
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(path, start)
            raise
    if not start:
        _sync_folder(path.parent)
    return start


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def require_writable(folder: Path) -> None:
    """BadInput if files could not be written to a folder, asked before the work that they are about.

    Nothing is made: the folder may be one of a command that has other bad input.
    """
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir():
        raise BadInput(f"cannot write {folder}: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise BadInput(f"cannot write {folder}: {place} is read-only")


def make_folder(path: Path) -> None:
    """Make a folder of a store unless it is there; the store itself, which may have disappeared, is not made."""
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {path}: {error.strerror}") from None


def write_synced(path: Path, data: bytes, parents: bool = False) -> None:
    """Write a temporary file, sync it, rename it, sync the folder: the file is whole or absent at every moment.

    The folder is made if it is missing; the folders above it only with `parents`, since a store that has disappeared
    must not be made anew where it was mounted.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=parents, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreUnavailable(f"cannot write {path}: {error.strerror}") from None
