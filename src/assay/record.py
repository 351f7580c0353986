"""What came out of a run, and where it is kept."""

from __future__ import annotations

import json
import lzma
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from assay.description import BadInput, Description

Verdict = Literal["solved", "partly solved", "collapsed", "diverged", "censored", "failed"]


class LengthScore(Description):
    """How many of some rows of one length were right, whole and answer by answer."""

    kind: ClassVar[str] = "length-score"
    length: int
    rows: int
    sequences: float
    answers: float


class Score(Description):
    """One test bin: the share of sequences that are right everywhere, and of single answers.

    `probe` names another distribution of the task's inputs. `shared` counts rows at lengths with too few strings for a
    split of their own: they may have been trained on. `favourite` is the share of the commonest prediction.
    """

    kind: ClassVar[str] = "score"
    bin: str
    probe: str = ""
    rows: int
    shared: int
    sequences: float
    answers: float
    favourite: float
    lengths: tuple[LengthScore, ...]


class Point(Description):
    """One check on the way: the mean training loss since the last one, and validation accuracy by bin."""

    kind: ClassVar[str] = "point"
    step: int
    loss: float
    sequences: dict[str, float]
    answers: dict[str, float]


class Record(Description):
    """One run and all that there is to know of it. The spec is plain data: a record needs no code to be read."""

    kind: ClassVar[str] = "record"
    added: ClassVar[tuple[str, ...]] = ("ended", "tested_at")
    digest: str
    spec: dict[str, Any]
    verdict: Verdict
    first_failing_length: int | None = None
    stopped: Literal["solved", "steps", "diverged", "error"]
    steps: int = 0
    solved_at: int | None = None
    tested_at: int | None = None  # the step of the state that was tested, where `keep` asks for the best
    scores: tuple[Score, ...] = ()
    curve: tuple[Point, ...] = ()
    error: str | None = None
    seconds: dict[str, float] = Field(default_factory=dict)
    parameters: int = 0
    state_floats: int | None = None  # unknown for a foreign module
    state_bits: int | None = None
    commit: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    device: str = ""
    backend: dict[str, str] = Field(default_factory=dict)
    population: dict[str, Any] = Field(default_factory=dict)  # how it was trained: slots, graphs, what was given up
    started: str = ""
    ended: str = ""

    @property
    def task(self) -> str:
        return str(self.spec.get("task", {}).get("kind", "?"))

    @property
    def model(self) -> str:
        return str(self.spec.get("model", {}).get("name", "?"))

    @property
    def seed(self) -> int:
        return int(self.spec.get("seed", 0))

    @property
    def rate(self) -> float:
        return float(self.spec["training"]["lr"])

    @property
    def bins(self) -> list[str]:
        """The names of its test bins, from short to long."""
        windows: list[dict[str, Any]] = self.spec["testing"]["bins"]
        return [str(window["name"]) for window in sorted(windows, key=lambda window: int(window["high"]))]

    @property
    def tested(self) -> Point | None:
        """The check of the state that was tested."""
        last = self.curve[-1] if self.curve else None
        return next((point for point in self.curve if point.step == self.tested_at), last)

    @property
    def finished(self) -> bool:
        """Whether the run came to an end of its own (an error is to be tried again)."""
        return self.verdict != "failed"

    def score(self, bin_: str, probe: str = "") -> Score | None:
        return next((score for score in self.scores if (score.bin, score.probe) == (bin_, probe)), None)


class Store:
    """A folder of records, or a packed file of them.

    Every write is a new segment: written aside, synced, and renamed into place. So writers never meet, a kill leaves at
    most a file that nobody reads, and what was finished stays.
    """

    MARK: ClassVar[str] = "assay-store.json"

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path | str) -> Store:
        """Open a store to write to; an empty or missing folder becomes one."""
        path = Path(path)
        mark = path / cls.MARK
        try:
            is_file, is_store = path.is_file(), mark.exists()
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}") from None
        if is_file:
            raise BadInput(f"{path} is a file; a store to write to is a folder")
        if not is_store:
            # Another writer may be making the same store: its mark appears before anything else does.
            foreign = path.is_dir() and any(not item.name.startswith(f".{cls.MARK}") for item in path.iterdir())
            if foreign and not mark.exists():
                raise BadInput(f"{path} is not a store (it has no {cls.MARK}); name a store, or a new or empty folder")
            write_synced(mark, json.dumps({"assay": "store", "format": 1}).encode())
        for folder in (path, path / "segments"):
            if folder.exists() and not os.access(folder, os.W_OK):
                raise BadInput(f"cannot write to {folder}: it is read-only")
        return cls.open(path)

    @classmethod
    def open(cls, path: Path | str) -> Store:
        """Open a store, or a packed file, to read from."""
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
        """Write records as one segment; they are on disk when this returns."""
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        name = f"{now}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        write_synced(self.path / "segments" / name, _lines(records))

    def history(self) -> Iterator[Record]:
        """Every record ever written, oldest segment first."""
        if self.path.is_dir():
            for segment in sorted((self.path / "segments").glob("*.jsonl")):
                yield from _read_lines(segment, _read(segment))
        else:
            yield from self._unpack()

    def records(self) -> list[Record]:
        """One record per run, failures beside successes; of several the last that finished."""
        latest: dict[str, Record] = {}
        for record in self.history():
            before = latest.get(record.digest)
            if before is None or record.finished or not before.finished:
                latest[record.digest] = record
        return list(latest.values())

    def select(self, digests: Iterable[str]) -> list[Record]:
        """The records of these runs, in their order; runs without a record are left out."""
        found = {record.digest: record for record in self.records()}
        return [found[digest] for digest in dict.fromkeys(digests) if digest in found]

    def pack(self, path: Path | str) -> int:
        """Write the store as one compact file with the same bytes for the same records; returns how many."""
        records = sorted(self.records(), key=lambda r: (r.task, r.model, r.seed, r.digest))
        header = json.dumps({"assay": "pack", "format": 1}).encode() + b"\n"
        write_synced(Path(path), lzma.compress(header + _lines(records), preset=9))
        return len(records)

    def _unpack(self) -> Iterator[Record]:
        try:
            header, _, body = lzma.decompress(_read(self.path)).partition(b"\n")
        except lzma.LZMAError:
            raise BadInput(f"{self.path} is not a packed store; `assay pack` makes one") from None
        _check_format(self.path, header)
        yield from _read_lines(self.path, body)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None


def _lines(records: Iterable[Record]) -> bytes:
    return b"".join(record.model_dump_json().encode() + b"\n" for record in records)


def _read_lines(path: Path, data: bytes) -> Iterator[Record]:
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            yield Record(**json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            what = str(error).splitlines()[0]
            raise BadInput(
                f"{path}: line {number} is not a record ({what}); restore the file or move it out of the store"
            ) from None


def _check_format(path: Path, data: bytes) -> None:
    try:
        known = json.loads(data)["format"] == 1
    except (ValueError, KeyError, TypeError):
        raise BadInput(f"{path} is damaged: it should say which format the records have") from None
    if not known:
        raise BadInput(f"{path} was written by a newer assay; update assay to read it")


def write_synced(path: Path, data: bytes) -> None:
    """Write aside, sync, rename, sync the folder: at every moment the file is whole or absent."""
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
