"""Records, the stored outcomes of runs; and stores, folders or packed files of records."""

from __future__ import annotations

import gc
import hashlib
import json
import lzma
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from assay.description import BadInput, Description

Verdict = Literal["solved", "refuted", "partly solved", "collapsed", "diverged", "censored", "failed"]
Outcome = Literal["proved", "refuted", "conditional", "open"]


class LengthScore(Description):
    """The shares of right sequences and right answers among the rows of one length."""

    kind: ClassVar[str] = "length-score"
    length: int
    rows: int
    sequences: float
    answers: float


class Score(Description):
    """The accuracy in one test bin: the shares of sequences without a mistake, and of right answers.

    `probe` names another distribution of the task's inputs. `shared` counts rows that training may have shown, since
    their length has too few strings to be split. `favourite` is the share of the most common answer of the model.
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
    """One check during training: the mean loss since the previous check, and validation accuracies by bin."""

    kind: ClassVar[str] = "point"
    step: int
    loss: float
    sequences: dict[str, float]
    answers: dict[str, float]


class ProbeScore(Description):
    """How many inputs of one probe are wrong, and the shortest wrong one as a readable word."""

    kind: ClassVar[str] = "probe-score"
    name: str
    rows: int
    wrong: int
    length: int | None = None  # of the shortest wrong input
    word: str = ""  # empty for real-valued inputs


class Probing(Description):
    """The probes that a run was tested with, after the test bins; `probes` is their version."""

    kind: ClassVar[str] = "probing"
    probes: int
    scores: tuple[ProbeScore, ...]
    seconds: float

    @property
    def shortest_wrong(self) -> ProbeScore | None:
        """The probe with the shortest wrong input."""
        wrong = [score for score in self.scores if score.length is not None]
        return min(wrong, key=lambda score: score.length or 0, default=None)


class Certified(Description):
    """One result of `assay certify` on a run: what is known about every input, or about every input up to a length.

    `numbers` is the format to which the carried state is rounded; the result is then about the rounded machine. The
    certificate is a file beside the records.
    """

    kind: ClassVar[str] = "certified"
    method: str
    outcome: Outcome
    numbers: str = "float32"
    length: int | None = None  # up to which every input is right (None: every length), or of the wrong word
    states: int | None = None  # pairs of model state and task state that were visited
    word: str = ""  # the shortest wrong word, if refuted
    detail: str = ""  # one sentence
    certificate: str = ""  # a file name

    @property
    def rounded(self) -> bool:
        """Whether the result is about the machine with a rounded state, not about the model itself."""
        return self.numbers != "float32"


class Record(Description):
    """The outcome of one run. The spec is plain data: a record can be read without the code of task and model."""

    kind: ClassVar[str] = "record"
    added: ClassVar[tuple[str, ...]] = ("ended", "tested_at", "probing", "certified", "traceback", "weights_sha256")
    digest: str
    spec: dict[str, Any]
    verdict: Verdict
    first_failing_length: int | None = None
    stopped: Literal["solved", "steps", "diverged", "error"]
    steps: int = 0
    solved_at: int | None = None
    tested_at: int | None = None  # the step of the tested state, with training.keep = "best"
    scores: tuple[Score, ...] = ()
    probing: Probing | None = None  # None: not probed
    certified: tuple[Certified, ...] = ()
    weights_sha256: str = ""  # of the weights that were kept, so that others are never taken for them
    curve: tuple[Point, ...] = ()
    error: str | None = None
    traceback: str = ""  # of the error
    seconds: dict[str, float] = Field(default_factory=dict)
    parameters: int = 0
    state_floats: int | None = None  # unknown for a user's own module
    state_bits: int | None = None
    commit: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    device: str = ""
    backend: dict[str, str] = Field(default_factory=dict)
    population: dict[str, Any] = Field(default_factory=dict)  # how it was trained: slots, CUDA graphs, fallbacks
    started: str = ""
    ended: str = ""

    @cached_property
    def weights(self) -> bytes | None:
        """The tested state of the model, until the record is stored; not part of the record's data."""
        return None

    @cached_property
    def origin(self) -> Path | None:
        """The store from which the record was read."""
        return None

    def with_weights(self, weights: bytes | None) -> Record:
        """The same record, with the weights that are to be stored beside it."""
        digest = hashlib.sha256(weights).hexdigest() if weights is not None else ""
        copy = self.model_copy(update={"weights_sha256": digest})
        copy.__dict__["weights"] = weights
        return copy

    @property
    def rung(self) -> str:
        """How much of the verdict `solved` was checked: random, probed, exhaustive to n or proved; else empty.

        A proof of the machine with a rounded state names the format. `assay certify` may refute what the tests did not.
        """
        if self.verdict != "solved":
            return ""
        if any(result.outcome == "refuted" and not result.rounded for result in self.certified):
            return "refuted"
        proofs = [result for result in self.certified if result.outcome == "proved"]
        if formats := [result.numbers for result in proofs if result.length is None]:
            return "proved" if "float32" in formats else f"proved ({formats[0]})"
        if lengths := [result.length for result in proofs if result.length]:
            return f"exhaustive to {max(lengths)}"
        return "probed" if self.probing and any(score.rows for score in self.probing.scores) else "random"

    @property
    def wrong_word(self) -> str:
        """The shortest wrong input whose symbols are known, in readable form; empty if there is none.

        A wrong input of the test bins may be shorter (`first_failing_length`), but only its length is recorded.
        """
        return self.shortest_wrong[1]

    @property
    def shortest_wrong(self) -> tuple[int, str]:
        """The length and the readable form of the shortest wrong input whose symbols are known; (0, "") without one."""
        probe = self.probing.shortest_wrong if self.probing else None
        words = [(probe.length or 0, probe.word)] if probe else []
        refutations = [result for result in self.certified if result.outcome == "refuted" and not result.rounded]
        words += [(result.length or 0, result.word) for result in refutations]
        return min(words, default=(0, ""))

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
        """The names of the test bins, from short to long."""
        bins: list[dict[str, Any]] = self.spec["testing"]["bins"]
        return [str(bin_["name"]) for bin_ in sorted(bins, key=lambda bin_: int(bin_["high"]))]

    @property
    def tested(self) -> Point | None:
        """The check of the state that was tested."""
        last = self.curve[-1] if self.curve else None
        return next((point for point in self.curve if point.step == self.tested_at), last)

    @property
    def finished(self) -> bool:
        """Whether the run has a result; a failed run is tried again."""
        return self.verdict != "failed"

    def score(self, bin_: str, probe: str = "") -> Score | None:
        return next((score for score in self.scores if (score.bin, score.probe) == (bin_, probe)), None)


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
            weights = self.path / "weights" / f"{record.digest}.safetensors"
            if record.weights is not None:
                write_synced(weights, record.weights)
            elif record.origin is None and record.finished:  # a new run, not a new result of a stored one
                weights.unlink(missing_ok=True)
            record.__dict__ |= {"weights": None, "origin": self.path}
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        name = f"{now}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        write_synced(self.path / "segments" / name, _lines(records))

    def history(self) -> Iterator[Record]:
        """Every record ever written, oldest segment first."""
        segments = sorted((self.path / "segments").glob("*.jsonl"))
        records = (_read_lines(s, _read(s)) for s in segments) if self.path.is_dir() else (self._unpack(),)
        for record in chain.from_iterable(records):
            record.__dict__["origin"] = self.path
            yield record

    def records(self) -> list[Record]:
        """One record per run, failed runs included; of several the latest, finished ones first."""
        latest: dict[str, Record] = {}
        with _no_garbage_collection():
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

    def weights_file(self, digest: str) -> Path | None:
        """The file with the weights of a run, which may hold those of others too; None if they were not kept."""
        if self.path.is_dir():
            single = self.path / "weights" / f"{digest}.safetensors"
            return single if single.is_file() else None
        packed = weights_beside(self.path)
        return packed if packed.is_file() and f'"{digest}/'.encode() in _safetensors_header(packed) else None

    def pack(self, path: Path | str) -> int:
        """Write one compact file with the same bytes for the same records; returns the number of records."""
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


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A large store is a million small objects, none of them garbage: the collector would visit all of them often."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _safetensors_header(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(int.from_bytes(file.read(8), "little"))


def weights_beside(packed: Path) -> Path:
    """Where the weights of a packed store are: NAME.weights.safetensors beside NAME.jsonl.xz."""
    return packed.with_name(f"{packed.name.removesuffix('.jsonl.xz')}.weights.safetensors")


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
            reason = str(error).splitlines()[0]
            raise BadInput(
                f"{path}: line {number} is not a record ({reason}); restore the file or move it out of the store"
            ) from None


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
