"""The base class of all tasks: an oracle that answers any input, and a sampler that draws inputs."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from assay.description import Description
from assay.errors import BadInput
from assay.rng import Rng
from assay.tasks.bins import LONGEST, Bin, doubling_bins
from assay.tasks.probes import MOST_SYMBOLS, Probe, probes_of_lassos, rows_of, short_lassos, with_runs
from assay.tasks.words import Lasso

PAD = 0  # the token to the right of every sequence; symbol number i of a task is token i + 1
IGNORE = -100  # the target at positions without a question (the number that torch's cross-entropy skips)
DEAD = "dead"  # the answer to a prefix that no continuation brings into the language
LONGEST_LASSO = 4  # the tokens of an access word and a loop


@dataclass(frozen=True)
class Batch:
    """Inputs [rows, time] (or [rows, time, features] for real vectors) and their targets.

    Both may have the same further axes in front, as of steps and members of a population.
    """

    inputs: Tensor
    targets: Int[Tensor, "*axes rows time"]


@dataclass(frozen=True, repr=False)
class Sample(Batch):
    """Drawn inputs with their targets, which prints as words with their answers."""

    task: Task

    @property
    def words(self) -> list[str]:
        """The inputs, symbol by symbol; empty for real-valued inputs."""
        if self.task.features:
            return []
        return [
            _joined([self.task.symbols[token - 1] for token in row if token != PAD]) for row in self.inputs.tolist()
        ]

    @property
    def answers(self) -> list[str]:
        """The answers, one per symbol: `.` where there is no question, `!` for dead."""
        rows = zip(self.targets.tolist(), unpadded(self.inputs).sum(1).tolist(), strict=True)
        return [_joined(self.task.shown(row[:length])) for row, length in rows]

    def __repr__(self) -> str:
        if not self.words:
            return (
                f"{len(self.inputs)} inputs of {self.task.kind}, {self.task.features} numbers at each of their points"
            )
        return "\n".join(f"{word}\n{answers}" for word, answers in zip(self.words, self.answers, strict=True))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


class Shape(NamedTuple):
    """The sizes that a model needs: number of tokens (with padding), of real-valued features, and of answers."""

    vocab: int
    features: int
    answers: int


def unpadded(inputs: Shaped[Tensor, "rows time *features"]) -> Bool[Tensor, "rows time"]:
    """True before the first padding; tokens after it do not count."""
    filled = inputs != PAD if inputs.ndim == 2 else torch.linalg.vector_norm(inputs, dim=-1) > 0
    return filled.cumprod(1).bool()


def columns(inputs: Shaped[Tensor, "rows time *features"]) -> Int[Tensor, "time"]:
    """0, 1, 2, ... along time."""
    return torch.arange(inputs.shape[1], device=inputs.device)


@lru_cache(maxsize=256)
def on_device(table: Tensor, device: torch.device) -> Tensor:
    """A table on a device, copied only once: a copy makes the host wait, and cannot be part of a CUDA graph."""
    return table.to(device)


class Task(Description, ABC):
    """An exact question about sequences.

    A subclass names its symbols and answers, answers any input (`answer`), and draws inputs of given lengths (`draw`).
    If it has required options, `example` holds values for them.
    """

    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "everywhere"
    train_lengths: ClassVar[tuple[int, int]] = (2, 50)
    example: ClassVar[dict[str, Any]] = {}

    # -- symbols and answers -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def symbols(self) -> tuple[str, ...]:
        """The input symbols without padding; empty for real-valued inputs."""

    @property
    @abstractmethod
    def answers(self) -> tuple[str, ...]:
        """The answers, in the order of their numbers."""

    @property
    def features(self) -> int:
        """The width of a real-valued input, or 0 for tokens."""
        return 0

    @cached_property
    def shape(self) -> Shape:
        return Shape(0 if self.features else len(self.symbols) + 1, self.features, len(self.answers))

    # -- the oracle --------------------------------------------------------------------------------------------

    @abstractmethod
    def answer(self, inputs: Tensor) -> Int[Tensor, "rows time"]:
        """The answer to every prefix, IGNORE where there is no question; answers at padding may be arbitrary."""

    def solve(self, inputs: Tensor) -> Int[Tensor, "rows time"]:
        """The targets of any input: `answer`, with IGNORE at padding and where there is no question."""
        if not inputs.shape[1]:
            return inputs.new_zeros(inputs.shape[:2], dtype=torch.int64)
        questions = unpadded(inputs)
        if self.answer_positions == "at the end":
            questions = questions & ~torch.nn.functional.pad(questions[:, 1:], (0, 1))
        return self.answer(inputs).where(questions, IGNORE)

    # -- the sampler -------------------------------------------------------------------------------------------

    @abstractmethod
    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Tensor:
        """Inputs of exactly these lengths, one generator per row; tokens beyond a row's length are arbitrary."""

    def fits(self, length: int) -> bool:
        """Whether the task has an input of this length."""
        return length >= 1

    def inputs(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int | None = None) -> Tensor:
        """Inputs of exactly these lengths, right-padded to `width` (by default the longest of them)."""
        if not rng.keys.ndim:
            raise BadInput(
                "a generator without rows would draw equal inputs: give it one per row, with rng.rows(count)"
            )
        width = int(lengths.max()) if width is None else width
        drawn = self.draw(lengths, rng, width)
        beyond = torch.arange(width, device=lengths.device) >= lengths[:, None]
        return drawn.masked_fill(beyond if drawn.ndim == 2 else beyond[..., None], PAD)

    def batch(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int | None = None) -> Batch:
        """Inputs and their targets."""
        inputs = self.inputs(lengths, rng, width)
        return Batch(inputs, self.solve(inputs))

    def sample(self, rows: int = 8, length: int | tuple[int, int] | None = None, *, seed: int = 0) -> Sample:
        """Some inputs and their targets; row i is the same for any number of rows.

        All have the given length, or one between two given ones; by default one of the training lengths.
        """
        low, high = _range(self.train_lengths if length is None else length)
        if isinstance(rows, bool) or not isinstance(rows, Integral) or rows < 1:
            raise BadInput(f"rows = {rows!r} is not valid: a number of inputs, at least 1")
        if not isinstance(seed, Integral) or not -(2**63) <= seed < 2**63:
            raise BadInput(f"seed = {seed!r} is not valid: a whole number of at most 64 bits")
        fitting, rng = torch.tensor(self.lengths(low, high)), Rng.seeded(int(seed), "sample").rows(int(rows))
        lengths = fitting[rng.child("lengths").integers(1, len(fitting))[:, 0]]
        batch = self.batch(lengths, rng.child("inputs"))
        return Sample(batch.inputs, batch.targets, self)

    # -- lengths -----------------------------------------------------------------------------------------------

    def lengths(self, low: int, high: int) -> list[int]:
        """The lengths between low and high at which the task has inputs."""
        if (low, high) not in self.known_lengths:
            fitting = [length for length in range(max(low, 1), high + 1) if self.fits(length)]
            self.known_lengths[low, high] = fitting
        if not self.known_lengths[low, high]:
            span = f"{low} to {high}" if low < high else str(low)
            raise BadInput(f"{self.kind} has no input of length {span}{self._nearest_lengths(low, high)}")
        return list(self.known_lengths[low, high])

    def _nearest_lengths(self, low: int, high: int) -> str:
        """The next shorter and the next longer length with inputs, in words; empty where there is none nearby."""
        around = range(min(low, LONGEST + 1) - 1, 0, -1), range(high + 1, min(2 * high + 1024, LONGEST) + 1)
        nearest = [str(length) for lengths in around if (length := next(filter(self.fits, lengths), None))]
        return f"; the nearest {'are' if nearest[1:] else 'is'} {' and '.join(nearest)}" if nearest else ""

    @cached_property
    def known_lengths(self) -> dict[tuple[int, int], list[int]]:
        """The results of `lengths`, kept because a study needs the same ones for each of its runs."""
        return {}

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        """The test bins for training on lengths low to high: Bin0 has these lengths, the others longer ones."""
        return doubling_bins(low, high)

    def doubled_bins(self, low: int, high: int) -> tuple[Bin, ...]:
        """Bin0 from low to high, and bins of one length: 2, 4 and 8 times high, or the next shorter one with inputs."""
        bins = [Bin(name="Bin0", low=low, high=high)]
        for i in (1, 2, 3):
            shorter = range(min(high << i, LONGEST), bins[-1].high, -1)
            if length := next(filter(self.fits, shorter), None):
                bins.append(Bin(name=f"Bin{i}", low=length, high=length))
        return tuple(bins)

    def in_bin(self, bin_: Bin) -> Task:
        """The task with the options of a bin, by which the bin's inputs are drawn."""
        return type(self)(**{**self.plain(), **dict(bin_.options)}) if bin_.options else self

    def log2_inputs(self, length: int) -> float:
        """The logarithm of the number of inputs of this length, or of those with the rarer label; never too high.

        Lengths with too few inputs are not split between training and testing.
        """
        return math.inf if self.features else length * math.log2(len(self.symbols))

    # -- published strings -------------------------------------------------------------------------------------

    @property
    def is_published(self) -> bool:
        """Whether training and held-out sets are drawn by `published`, not by `inputs`."""
        return False

    def published(self, low: int, high: int, rng: Rng) -> Tensor:
        """Inputs as a published generator draws them for these lengths, one per row, of the width `width(high)`.

        Their lengths follow from the generator.
        """
        raise BadInput(f"{self.kind} has no published strings")

    def other_strings(self) -> Task:
        """The same task with published strings, or without them if it has them."""
        raise BadInput(f"{self.kind} has no published strings")

    def width(self, high: int) -> int:
        """The length of the longest input of a set for lengths up to `high`."""
        return high

    # -- probes ------------------------------------------------------------------------------------------------

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Inputs that are made to expose a shortcut, or a memory that leaks, from the shortest training length on.

        By default, for a task that answers everywhere: lassos u w w w ... of short words, and random inputs with a long
        run of one symbol in the middle. Inputs with a `dead` prefix are left out, because training does not show them.
        """
        if self.features or self.answer_positions == "at the end":
            return []
        return self.lasso_probes(longest) + self.run_probes(trained[1], longest)

    def lasso_probes(self, longest: int) -> list[Probe]:
        """The infinite words u w w w ... of short u and w, as far as `longest`."""

        def possible(lassos: list[Lasso]) -> list[Lasso]:
            alive = self.alive(rows_of(lasso.word(4 * LONGEST_LASSO) for lasso in lassos)).tolist()
            return [lasso for lasso, lives in zip(lassos, alive, strict=True) if lives]

        probes = probes_of_lassos(short_lassos(len(self.symbols), possible), longest)
        return [probe for found in probes for probe in self._probe(*found)]

    def run_probes(self, random_part: int, longest: int) -> list[Probe]:
        """Random inputs of about this length, with a long run of one symbol in the middle."""
        lengths = [n for n in range(1, min(random_part, longest - 1) + 1) if self.fits(n)][-1:] * 4
        if not lengths:
            return []
        random = self.inputs(torch.tensor(lengths), Rng.seeded(0, "runs").rows(len(lengths)))
        symbols = range(1, min(len(self.symbols), MOST_SYMBOLS) + 1)
        return self._probe("runs", with_runs(random, symbols, longest))

    def _probe(self, name: str, rows: Int[Tensor, "rows time"]) -> list[Probe]:
        rows = rows[self.alive(rows)].unique(dim=0)
        return [Probe(name, rows)] if len(rows) else []

    def alive(self, inputs: Int[Tensor, "rows time"]) -> Bool[Tensor, "rows"]:
        """The rows without a prefix whose answer is `dead`."""
        if DEAD not in self.answers or not len(inputs):
            return torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        return (self.solve(inputs) != self.answers.index(DEAD)).all(1)

    # -- for people --------------------------------------------------------------------------------------------

    def encode(self, text: str) -> Int[Tensor, "1 time"]:
        """The tokens of a text: one symbol per character, or per word where symbols have several characters."""
        number = {symbol: i + 1 for i, symbol in enumerate(self.symbols)}
        words = list(text) if _one_letter_each(self.symbols) else text.split()
        unknown = [word for word in words if word not in number]
        if unknown:
            raise BadInput(f"{self.kind} has no symbol '{unknown[0]}'")
        return torch.tensor([[number[word] for word in words]], dtype=torch.int64)

    def explain(self, text: str) -> str:
        """The answers to a text, one per symbol: `.` where there is no question, `!` for dead."""
        words = self.shown(self.solve(self.encode(text))[0].tolist())
        return ("" if _one_letter_each((*self.symbols, *words)) else " ").join(words)

    def shown(self, targets: Iterable[int]) -> list[str]:
        """Targets as text: `.` where there is no question, `!` for dead."""
        names = {IGNORE: ".", **dict(enumerate(self.answers))}
        return ["!" if names[target] == DEAD else names[target] for target in targets]


def _range(length: Any) -> tuple[int, int]:
    """The shortest and the longest of one length or two, which may be numbers of numpy.

    >>> _range(5), _range([2, 7])
    ((5, 5), (2, 7))
    """
    ends = (length, length) if isinstance(length, Integral) else tuple(length) if isinstance(length, Sequence) else ()
    low, high = map(int, ends) if len(ends) == 2 and all(isinstance(end, Integral) for end in ends) else (0, 0)
    if not 1 <= low <= high <= LONGEST:
        raise BadInput(f"length = {length!r} is not valid: a length or two, shortest first, from 1 to {LONGEST:,}")
    return low, high


def _joined(words: Sequence[str]) -> str:
    return ("" if _one_letter_each(words) else " ").join(words)


def _one_letter_each(words: Sequence[str]) -> bool:
    return all(len(word) == 1 for word in words)


def symbols_named(prefix: str, count: int) -> tuple[str, ...]:
    """
    >>> symbols_named("s", 3)
    ('s0', 's1', 's2')
    """
    return tuple(f"{prefix}{i}" for i in range(count))
