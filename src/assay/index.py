"""The index of a store: what each line of its segments is about, so that a store is opened without reading its records.

Beside a segment NAME.jsonl lies NAME.index with a short line for each of its records. The writer appends to it after
the record itself, so an index may be behind, but never ahead: whatever it does not cover yet is read from the segment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from assay.errors import BadInput
from assay.lines import read_lines
from assay.record import Record

SUFFIX = ".index"
LINES = [[str, str, str, str, int, seconds, int, int] for seconds in (float, int)]  # the types of a line's values


class Outcome(Protocol):
    """What a plan needs to know of a run that has ended: a record, or its entry in an index."""

    @property
    def digest(self) -> str: ...
    @property
    def finished(self) -> bool: ...


class Entry(NamedTuple):
    """A record in a store: which run it is of, how it ended, and where its line is."""

    digest: str
    verdict: str
    task: str
    model: str
    seed: int
    seconds: float
    segment: str
    offset: int
    length: int

    @property
    def finished(self) -> bool:
        return self.verdict != "failed"

    @property
    def place(self) -> str:
        """Where its line is; no two entries of a store have the same place."""
        return f"{self.segment}:{self.offset}"


def entry_of(record: Record, segment: str, offset: int, length: int) -> Entry:
    seconds = round(sum(record.seconds.values()), 3)
    description = (record.digest, record.verdict, record.task, record.model, record.seed, seconds)
    return Entry(*description, segment, offset, length)


def index_line(entry: Entry) -> bytes:
    digest, verdict, task, model, seed, seconds, _, offset, length = entry
    return json.dumps([digest, verdict, task, model, seed, seconds, offset, length]).encode() + b"\n"


def index_path(segment: Path) -> Path:
    return segment.with_suffix(SUFFIX)


@dataclass
class SegmentReader:
    """Reads the entries that a segment has received since the last time."""

    path: Path
    index_read: int = 0  # bytes of the index that were read
    indexed: int = 0  # bytes of the segment that these cover
    covered: int = 0  # bytes of the segment whose entries are known
    lines: int = 0  # of the segment, as far as it is covered
    index_is_good: bool = True

    def read(self) -> Iterator[Entry]:
        """New entries, from the index as far as it goes; BadInput if the segment is damaged."""
        for entry in self._from_index():
            if entry.offset >= self.covered:
                yield self._next(entry)
        yield from self._from_segment()

    def _next(self, entry: Entry) -> Entry:
        self.covered, self.lines = entry.offset + entry.length, self.lines + 1
        return entry

    def _from_index(self) -> Iterator[Entry]:
        """Entries of new lines of the index; the rest of an index with a damaged line is not used."""
        data, segment = b"", self.path.name
        with suppress(OSError), open(index_path(self.path), "rb") as file:
            file.seek(self.index_read)
            data = file.read()
        end = data.rfind(b"\n") + 1  # the writer may be in the middle of a line
        if not end or not self.index_is_good:
            return
        self.index_read += end
        try:
            # One call for all lines: a hundred thousand calls take seconds.
            for line in json.loads(b"[%s]" % data[: end - 1].replace(b"\n", b",")):
                digest, verdict, task, model, seed, seconds, offset, length = line
                if [*map(type, line)] not in LINES:
                    raise ValueError("not a line of an index")
                if offset != self.indexed or length < 1:
                    raise ValueError("a line is missing")
                self.indexed += length
                yield Entry(digest, verdict, task, model, seed, seconds, segment, offset, length)
        except (ValueError, TypeError, RecursionError):
            self.index_is_good = False

    def _from_segment(self) -> Iterator[Entry]:
        """Entries of whole lines beyond the index. A last line without its end was never reported as stored."""
        size = self.path.stat().st_size
        if size < self.indexed:
            with open(self.path, "rb") as file:  # a network file system may remember an old size until a file is opened
                size = os.fstat(file.fileno()).st_size
        if size < self.indexed:
            raise cut_short(self.path, self.lines)
        if size == self.covered:
            return
        with open(self.path, "rb") as file:
            file.seek(self.covered)
            data = file.read()
        lines = data.split(b"\n")[:-1]
        for line, record in zip(lines, read_lines(self.path, lines, first=self.lines + 1), strict=True):
            try:
                entry = entry_of(record, self.path.name, self.covered, len(line) + 1)
            except (AttributeError, TypeError, ValueError, OverflowError):
                raise BadInput(
                    f"{self.path}: line {self.lines + 1} is not a record (its spec names no task, model and seed); "
                    "restore the file or move it out of the store"
                ) from None
            yield self._next(entry)


def indexed_bytes(segment: Path) -> int:
    """How much of a segment its index covers: at least so much was stored once."""
    with suppress(OSError, ValueError, IndexError, TypeError):
        *_, offset, length = json.loads(index_path(segment).read_bytes().splitlines()[-1])
        return int(offset + length)
    return 0


def cut_short(path: Path, line: int) -> BadInput:
    return BadInput(
        f"{path}: line {max(line, 1)} is not a record (the file was cut short); restore the file or move it out of "
        "the store"
    )
