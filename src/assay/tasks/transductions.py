"""From a string to another string, which is the answer after the whole first one: reversed, sorted, copied in part."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bins import Bin
from assay.tasks.probes import Probe, rows_of
from assay.tasks.task import DEAD, IGNORE, Task, columns, symbols_named, unpadded

BLANK = "_"


class Result(NamedTuple):
    """What a string is transformed to: answers (arbitrary from `length` on), and from where the string is malformed."""

    answers: Int[Tensor, "rows time"]
    length: Int[Tensor, "rows 1"]
    malformed: Bool[Tensor, "rows time"] | None = None


class Transduction(Task):
    """A string, then blanks (`_`): at the j-th blank, the answer is the j-th symbol of another string.

    The answer at a symbol after a blank, and from there on, is `dead`.
    """

    train_lengths: ClassVar[tuple[int, int]] = (2, 40)
    more_blanks: ClassVar[int] = 0  # than symbols in the string

    @property
    @abstractmethod
    def letters(self) -> tuple[str, ...]:
        """The symbols of the string."""

    @abstractmethod
    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        """The result of strings of these sizes, with zeros behind them."""

    @abstractmethod
    def string(self, sizes: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        """Random strings of these sizes; what is behind them is arbitrary."""

    def size(self, length: int) -> int:
        """The size of the string in an input of this length; the rest is blanks."""
        return (length - self.more_blanks) // 2

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*self.letters, BLANK)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        blank, inside, time = len(self.symbols), unpadded(inputs), columns(inputs)
        first = torch.where((inputs == blank) | ~inside, time, inputs.shape[1]).amin(1, keepdim=True)
        result = self.transform(inputs.where(time < first, 0), first)
        number = time - first
        answers = result.answers.gather(1, number.clamp(min=0))
        answers = torch.where((number >= 0) & (number < result.length), answers, IGNORE)
        wrong = (inputs != blank) & inside & (number > 0)
        if result.malformed is not None:
            wrong |= result.malformed & inside
        return torch.where(wrong.cumsum(1) > 0, self.answers.index(DEAD), answers)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        sizes = self.sizes(lengths)
        string = self.string(sizes, rng, width)
        return torch.where(columns(string) < sizes[:, None], string, len(self.symbols))

    def sizes(self, lengths: Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
        """`size` of many lengths."""
        return (lengths - self.more_blanks) // 2

    def fits(self, length: int) -> bool:
        return self.size(length) >= 1 and (length - self.more_blanks) % 2 == 0

    def log2_inputs(self, length: int) -> float:
        return self.size(length) * math.log2(len(self.letters))

    def probe(self, name: str, strings: list[list[int]]) -> Probe:
        """Strings with their blanks."""
        blank = len(self.symbols)
        return Probe(name, rows_of([*x, *[blank] * (len(x) + self.more_blanks)] for x in strings))

    def extreme_strings(self, trained: tuple[int, int], longest: int) -> list[list[int]]:
        """Constant strings, with and without another symbol at the ends or in the middle, and an alternating one."""
        strings = []
        for size in sorted({self.size(self.lengths(trained[0], longest)[i]) for i in (0, -1)}):
            strings += [[1] * size, [2] * size, ([1, 2] * size)[:size]]
            strings += [[2 if i == place else 1 for i in range(size)] for place in sorted({0, size // 2, size - 1})]
        return list(map(list, dict.fromkeys(map(tuple, strings))))

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        return [self.probe("constant, or one different symbol", self.extreme_strings(trained, longest))]


class LetterTransduction(Transduction):
    """A transduction whose result has as many letters as its string, of the same alphabet."""

    alphabet: int

    @property
    def letters(self) -> tuple[str, ...]:
        return ("0", "1") if self.alphabet == 2 else symbols_named("s", self.alphabet)

    @property
    def answers(self) -> tuple[str, ...]:
        return (*self.letters, DEAD)

    def string(self, sizes: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, self.alphabet).add_(1)


class Reverse(LetterTransduction):
    """x, then x backwards (Delétang et al. 2023).

    >>> Reverse().explain("0010____")
    '....0100'
    >>> Reverse().explain("01_0_")
    '..1!!'
    """

    kind: ClassVar[str] = "reverse"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 2

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        backwards = string.gather(1, (size - 1 - columns(string)).clamp(min=0))
        return Result(backwards - 1, size)


class OddsFirst(LetterTransduction):
    """x, then its first, third, fifth ... symbol, then its second, fourth ... one.

    As Delétang et al. 2023 define it; their code answers in the opposite order.

    >>> OddsFirst().explain("00110_____")
    '.....01001'
    """

    kind: ClassVar[str] = "odds-first"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 2

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        odds, number = (size + 1) // 2, columns(string)
        place = torch.where(number < odds, 2 * number, 2 * (number - odds) + 1)
        return Result(string.gather(1, place.clamp(max=string.shape[1] - 1)) - 1, size)


class BucketSort(LetterTransduction):
    """x, then its symbols in ascending order (Delétang et al. 2023).

    >>> BucketSort(alphabet=3).explain("s2 s0 s1 s0 _ _ _ _")
    '. . . . s0 s0 s1 s2'
    """

    kind: ClassVar[str] = "bucket-sort"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 5

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        return Result(string.where(string > 0, self.alphabet + 1).sort(dim=1).values - 1, size)

    def extreme_strings(self, trained: tuple[int, int], longest: int) -> list[list[int]]:
        """Also strings in ascending and in descending order, with all symbols there is space for."""
        strings = super().extreme_strings(trained, longest)
        for size in sorted({len(x) for x in strings}):
            ascending = sorted(i % self.alphabet + 1 for i in range(size))
            strings += [ascending, ascending[::-1]]
        return list(map(list, dict.fromkeys(map(tuple, strings))))


class SelectiveCopying(Transduction):
    """Symbols at random places among dots; the answers are the symbols without the dots (Gu and Dao 2023).

    The places are uniform. (The code of Poli et al. 2024 draws them from a generator without a seed.)

    >>> SelectiveCopying(alphabet=3, tokens=2).explain("s2 . . s0 . _ _")
    '. . . . . s2 s0'
    """

    kind: ClassVar[str] = "selective-copying"
    alphabet: Annotated[int, Field(ge=2, le=2**20, description="number of symbols")] = 14
    tokens: Annotated[int, Field(ge=1, le=2**12, description="symbols to be copied")] = 16

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return max(256, 4 * self.tokens), max(256, 4 * self.tokens)

    @property
    def letters(self) -> tuple[str, ...]:
        return (*symbols_named("s", self.alphabet), ".")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*symbols_named("s", self.alphabet), DEAD)

    def transform(self, string: Int[Tensor, "rows time"], size: Int[Tensor, "rows 1"]) -> Result:
        copied = (string > 0) & (string <= self.alphabet)
        order = (~copied).long().argsort(dim=1, stable=True)
        return Result(string.gather(1, order) - 1, copied.sum(1, keepdim=True))

    def string(self, sizes: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        symbols = rng.child("symbols").integers(width, self.alphabet) + 1
        words = rng.child("places").words(width)
        outside = columns(symbols) >= sizes[:, None]
        order = words.masked_fill(outside, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
        return torch.full_like(symbols, self.alphabet + 1).scatter(
            1, order[:, : self.tokens], symbols[:, : self.tokens]
        )

    def size(self, length: int) -> int:
        return length - self.tokens

    def sizes(self, lengths: Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
        return lengths - self.tokens

    def fits(self, length: int) -> bool:
        return length >= 2 * self.tokens

    def log2_inputs(self, length: int) -> float:
        places = math.comb(self.size(length), self.tokens)
        return self.tokens * math.log2(self.alphabet) + math.log2(places)

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        return self.doubled_bins(low, high)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """All symbols at the start, at the end, or as far apart as possible; different ones, and all alike but one."""
        count, probes = self.tokens, []
        drawn = (Rng.seeded(0, "probes").integers(count, self.alphabet) + 1).tolist()
        contents = [drawn, *([2 if i == place else 1 for i in range(count)] for place in (0, count - 1))]
        places: dict[str, Callable[[int, int], int]] = {
            "at the start": lambda i, size: i,
            "at the end": lambda i, size: size - count + i,
            "far apart": lambda i, size: i * (size - 1) // max(1, count - 1),
        }
        for name, place_of in places.items():
            rows = []
            for size in sorted({self.size(self.lengths(trained[0], longest)[i]) for i in (0, -1)}):
                for symbols in contents:
                    row = [self.alphabet + 1] * size
                    for i, symbol in enumerate(symbols):
                        row[place_of(i, size)] = symbol
                    rows.append([*row, *[len(self.symbols)] * count])
            probes.append(Probe(name, rows_of(rows)))
        return probes
