"""A task from two text files: inputs in one, their answers in the other."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.errors import BadInput
from assay.rng import Rng, mix
from assay.tasks.bins import LONGEST
from assay.tasks.probes import Probe
from assay.tasks.task import IGNORE, PAD, Task, columns, on_device, unpadded

NO_QUESTION = "."  # in the file of answers
MOST_BYTES = 1 << 28  # of a file
MOST_PLACES = 1 << 26  # lines times the words of the longest one, which are held in memory as numbers


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of both files as tensors, sorted by length, with the hash of every input."""

    symbols: tuple[str, ...]
    answers: tuple[str, ...]
    inputs: Int[Tensor, "lines time"]
    targets: Int[Tensor, "lines time"]
    counts: Int[Tensor, "lengths"]  # of the lines of each length, from 0 on
    by_hash: Int[Tensor, "lines"]  # the numbers of the lines, in the order of their hashes
    hashes: Int[Tensor, "lines"]


class Pairs(Task):
    """The lines of PATH.src, with words between spaces, and their answers in PATH.tgt.

    A line of answers has one for each word of its input (a full stop where there is no question), or a single one,
    which is asked for at the end. Only these inputs have answers: the task asks nothing about others, so it has no
    probes, and lengths that no line has are not tested. Training, validation and testing share the lines as they share
    the inputs of any task.
    """

    path: Annotated[str, Field(description="the files without .src and .tgt")]
    sha256: Annotated[str, Field(description="of both files; computed if it is not given")] = ""

    @model_validator(mode="before")
    @classmethod
    def _name_the_content(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("path"), str):
            return data
        content = hashlib.sha256(b"\0".join(_read(data["path"], suffix) for suffix in ("src", "tgt"))).hexdigest()
        if data.get("sha256", "") not in ("", content):
            raise ValueError(f"the files of {data['path']} are not those of this run any more")
        return data | {"sha256": content}

    @cached_property
    def lines(self) -> Lines:
        return _parse(self.path)

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.lines.symbols

    @property
    def answers(self) -> tuple[str, ...]:
        return self.lines.answers

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        lengths = self.lines.counts.nonzero()[:, 0]
        return int(lengths[0]), int(lengths[-1])

    def fits(self, length: int) -> bool:
        return 0 < length < len(self.lines.counts) and bool(self.lines.counts[length])

    def log2_inputs(self, length: int) -> float:
        return math.log2(self.lines.counts[length]) if self.fits(length) else -math.inf

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """None: a probe without questions would count as passed."""
        return []

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        lines, time = self.lines, inputs.shape[1]
        by_hash, known, targets = (on_device(x, inputs.device) for x in (lines.by_hash, lines.hashes, lines.targets))
        inputs = inputs.where(unpadded(inputs), PAD)
        place = torch.searchsorted(known, _hash(inputs)).clamp(max=len(known) - 1)
        line = by_hash[place]
        found = _fitted(on_device(lines.inputs, inputs.device)[line], time, PAD)
        is_known: Bool[Tensor, "rows"] = (found == inputs).all(1)
        return _fitted(targets[line], time, IGNORE).where(is_known[:, None], IGNORE)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        counts = on_device(self.lines.counts, lengths.device)
        first = counts.cumsum(0) - counts
        line = first[lengths] + rng.integers(1, counts[lengths][:, None])[:, 0]
        return _fitted(on_device(self.lines.inputs, lengths.device)[line], width, PAD)


def _read(path: str, suffix: str) -> bytes:
    file = Path(f"{path}.{suffix}")
    try:
        size = file.stat().st_size
        if not file.is_file():
            raise BadInput(f"cannot read {file}: not a file")
        if size > MOST_BYTES:
            raise BadInput(f"{file} has {size:,} bytes; a file may have {MOST_BYTES:,}")
        return file.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {file}: {error.strerror}") from None


def _words(path: str, suffix: str) -> list[list[str]]:
    """The words of each line."""
    try:
        lines = _read(path, suffix).decode().split("\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}.{suffix} is not text in UTF-8: see byte {error.start:,}") from None
    return [line.split() for line in (lines if lines[-1] else lines[:-1])]


def _parse(path: str) -> Lines:
    sources, answers = (_words(path, suffix) for suffix in ("src", "tgt"))
    if len(sources) != len(answers):
        raise BadInput(f"{path}.src has {len(sources)} lines and {path}.tgt has {len(answers)}; make them equal")
    pairs: dict[tuple[str, ...], tuple[str, ...]] = {}
    for number, (words, named) in enumerate(zip(map(tuple, sources), answers, strict=True), 1):
        if not words or len(named) not in (1, len(words)):
            right = f"{len(words)} answers, or one" if words else "at least one word"
            raise BadInput(f"line {number} of {path}.{'tgt' if words else 'src'} must have {right}, not {len(named)}")
        if len(words) > LONGEST:
            raise BadInput(f"line {number} of {path}.src has {len(words):,} words; a line may have {LONGEST:,}")
        full = tuple(named) if len(named) == len(words) else (NO_QUESTION,) * (len(words) - 1) + tuple(named)
        if pairs.setdefault(words, full) != full:
            raise BadInput(f"line {number} of {path}.src occurs in an earlier line with another answer")
    if not pairs:
        raise BadInput(f"{path}.src has no lines")
    ordered = sorted(pairs.items(), key=lambda pair: len(pair[0]))
    symbols = tuple(sorted({word for words in pairs for word in words}))
    names = tuple(sorted({name for named in pairs.values() for name in named} - {NO_QUESTION}))
    if not names:
        raise BadInput(f"{path}.tgt has no answers, only full stops")
    width = len(ordered[-1][0])
    if len(ordered) * width > MOST_PLACES:
        raise BadInput(
            f"{path}.src has {len(ordered):,} different lines of up to {width:,} words, {len(ordered) * width:,} "
            f"places in all; it may have {MOST_PLACES:,}: leave out the longest lines"
        )
    tokens = {word: number for number, word in enumerate(symbols, 1)}
    inputs = _table([[tokens[word] for word in words] for words, _ in ordered], PAD)
    numbers = {name: number for number, name in enumerate(names)} | {NO_QUESTION: IGNORE}
    targets = _table([[numbers[name] for name in named] for _, named in ordered], IGNORE)
    hashes, by_hash = _hash(inputs).sort()
    counts = torch.bincount(torch.tensor([len(words) for words, _ in ordered]))
    return Lines(symbols, names, inputs, targets, counts, by_hash, hashes)


def _table(rows: list[list[int]], filling: int) -> Int[Tensor, "rows width"]:
    width = max(map(len, rows))
    return torch.tensor([row + [filling] * (width - len(row)) for row in rows])


def _fitted(table: Int[Tensor, "rows width"], width: int, filling: int) -> Int[Tensor, "rows {width}"]:
    """Rows that are cut or filled to a width."""
    return torch.nn.functional.pad(table[:, :width], (0, max(0, width - table.shape[1])), value=filling)


def _hash(inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows"]:
    """A 64-bit hash of each row, whatever the padding; equal hashes are compared word by word."""
    return mix((inputs * (mix(columns(inputs) + 1) | 1)).sum(1))
