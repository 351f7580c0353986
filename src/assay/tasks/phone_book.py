"""A phone book: a number looked up by a name, the natural form of recall that Bhattamishra et al. 2024 speak of."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.bins import Bin, doubling_bins
from assay.tasks.probes import Probe, rows_of
from assay.tasks.recall import distinct
from assay.tasks.task import DEAD, IGNORE, Task, columns

NAMES = (
    "Ada Alan Amina Ana Anton Bruno Carla Chen Clara Daniel David Elena Emma Fatima Felix Grace "
    "Hana Hugo Ines Ivan James Jana Karim Laura Leila Lucas Maria Nina Omar Pavel Rosa Yuki",
    "Adams Ahmed Bauer Berg Brown Costa Dubois Evans Fischer Garcia Gray Hansen Ito Jansen Jones Khan "
    "Kim Kowalski Lee Lopez Martin Meyer Moreau Nguyen Novak Okafor Patel Rossi Silva Smith Tanaka Wang",
)
FIRST, LAST = (tuple(names.split()) for names in NAMES)


class PhoneBook(Task):
    """name number ; name number ; ... name > number: from > on, the answer is the next digit of the number.

    A name is a first and a last name; every name of a book is another one, and names and digits are uniform. Digits
    are asked one by one, each after the right ones before it, and a sequence is right if all of them are. The number
    of a name is that of its first entry `name number ;`; without one, or after a wrong digit, the answer is `dead`.

    >>> PhoneBook(digits=2).explain("Ada Gray 4 7 ; Ada Kim 0 7 ; Ada Kim > 0")
    '. . . . . . . . . . . . 0 7'
    >>> PhoneBook(digits=2).explain("Ada Gray 4 7 ; Ada Kim 0 7 ; Ada Gray > 0")
    '. . . . . . . . . . . . 4 !'
    """

    kind: ClassVar[str] = "phone-book"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "everywhere"
    digits: Annotated[int, Field(ge=1, le=12, description="digits of a number")] = 4
    names: Annotated[int, Field(ge=2, le=32, description="first names, and as many last names")] = 32

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*FIRST[: self.names], *LAST[: self.names], *map(str, range(10)), ";", ">")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*map(str, range(10)), DEAD)

    @property
    def entry(self) -> int:
        """The tokens of an entry: a name, its number and a semicolon."""
        return self.digits + 3

    @property
    def train_lengths(self) -> tuple[int, int]:  # type: ignore[override]
        return self.length(2), self.length(min(10, self.names**2))

    def length(self, entries: int) -> int:
        """The tokens of a book and a query, whose number lacks its last digit."""
        return entries * self.entry + self.digits + 2

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        time, at = inputs.shape[1], columns(inputs)
        wide = torch.nn.functional.pad(inputs, (2, self.entry))
        name = self._names(wide)[:, : time + self.entry]  # that ends at each position of `wide` less 1
        ask = torch.where(inputs == len(self.symbols), at, time).amin(1, keepdim=True)
        query = name.gather(1, ask)  # the name that ends before the first >
        is_entry = self._entries(wide) & (name[:, 2 : time + 2] == query) & (query >= 0) & (at + self.entry <= ask - 2)
        entry = torch.where(is_entry, at, time).amin(1, keepdim=True)
        said = at - ask  # digits that were said before the answer
        number = wide.gather(1, (entry + 4 + said.clamp(0, self.digits - 1)).clamp(max=wide.shape[1] - 1))
        before = wide.gather(1, (entry + 3 + said.clamp(0, self.digits)).clamp(max=wide.shape[1] - 1))
        wrong = ((said > 0) & (before != inputs)).cumsum(1) > 0
        digit = torch.where(wrong | (entry == time), 10, number - 2 * self.names - 1)
        return torch.where((said >= 0) & (said < self.digits), digit, IGNORE)

    def _names(self, tokens: Int[Tensor, "rows time"]) -> Int[Tensor, "rows less"]:
        """The number of the name in every two tokens, -1 if there is none."""
        first, last = tokens[:, :-1] - 1, tokens[:, 1:] - 1 - self.names
        is_name = (first >= 0) & (first < self.names) & (last >= 0) & (last < self.names)
        return torch.where(is_name, first * self.names + last, -1)

    def _entries(self, wide: Int[Tensor, "rows wide"]) -> Bool[Tensor, "rows time"]:
        """Whether digits and a semicolon follow a name that begins at each position."""
        time = wide.shape[1] - self.entry - 2
        digit = (wide > 2 * self.names) & (wide <= 2 * self.names + 10)
        number = torch.stack([digit[:, 4 + i : 4 + i + time] for i in range(self.digits)]).all(0)
        return number & (wide[:, 4 + self.digits : 4 + self.digits + time] == len(self.symbols) - 1)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        entries = (lengths - self.digits - 2) // self.entry
        most = max(1, min((width - self.digits - 2) // self.entry, self.names**2))
        book = self._book(most, rng)
        tokens = torch.nn.functional.pad(book.flatten(1), (0, max(0, width - most * self.entry)))[:, :width]
        asked = rng.child("query").integers(1, entries[:, None])
        entry = book.gather(1, asked[..., None].expand(-1, -1, self.entry))[:, 0]
        mark = torch.full_like(asked, len(self.symbols))
        question = torch.cat([entry[:, :2], mark, entry[:, 2 : self.digits + 1]], dim=1)
        begin = (entries * self.entry)[:, None]
        return tokens.scatter(1, begin + columns(question), question)

    def _book(self, entries: int, rng: Rng) -> Int[Tensor, "rows entries tokens"]:
        """Entries with different names, as tokens."""
        name = distinct(entries, self.names**2, rng.child("names"))
        digits = rng.child("digits").integers(entries * self.digits, 10).unflatten(1, (entries, self.digits))
        return self._tokens(name, digits)

    def _tokens(self, name: Tensor, digits: Tensor) -> Int[Tensor, "rows entries tokens"]:
        first, last = name // self.names + 1, name % self.names + 1 + self.names
        end = torch.full_like(first, len(self.symbols) - 1)
        return torch.cat([first[..., None], last[..., None], digits + 2 * self.names + 1, end[..., None]], dim=-1)

    def log2_inputs(self, length: int) -> float:
        entries = (length - self.digits - 2) // self.entry
        orders = math.lgamma(self.names**2 + 1) - math.lgamma(self.names**2 - entries + 1)
        # The last digit of the number that is asked stands in the book alone.
        return orders / math.log(2) + entries * self.digits * math.log2(10) + math.log2(entries)

    def fits(self, length: int) -> bool:
        entries, rest = divmod(length - self.digits - 2, self.entry)
        return rest == 0 and 1 <= entries <= self.names**2

    def bins(self, low: int, high: int) -> tuple[Bin, ...]:
        return doubling_bins(low, high, longest=max(high, self.length(self.names**2)))

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Extreme positions; books in which all names share a part; and numbers that differ in their last digit."""
        extreme, alike, close = [], [], []
        for length in sorted({self.lengths(trained[0], longest)[i] for i in (0, -1)}):
            entries = (length - self.digits - 2) // self.entry
            rng = Rng.seeded(0, "probes").rows(1)
            random = self._book(entries, rng)
            share = torch.arange(min(entries, self.names))
            digits = rng.child("digits").integers(len(share) * self.digits, 10).unflatten(1, (-1, self.digits))
            last_digit = torch.zeros_like(random[:, :, : self.digits])
            last_digit[..., -1] = torch.arange(entries) % 10
            name = (random[..., 0] - 1) * self.names + random[..., 1] - 1 - self.names
            for asked in sorted({0, 1, entries // 2, entries - 2, entries - 1} & set(range(entries))):
                extreme.append(self._asked(random[0], asked))
                close.append(self._asked(self._tokens(name, last_digit)[0], asked))
                alike += [
                    self._asked(self._tokens(names[None], digits)[0], min(asked, len(share) - 1))
                    for names in (share, share * self.names)
                ]
        named = {"extreme positions": extreme, "names that share a part": alike, "close numbers": close}
        return [Probe(name, rows_of(rows)) for name, rows in named.items()]

    def _asked(self, book: Int[Tensor, "entries tokens"], entry: int) -> list[int]:
        """A book and the question for the number of one of its entries."""
        tokens: list[int] = book[entry].tolist()
        return [*book.flatten().tolist(), *tokens[:2], len(self.symbols), *tokens[2 : self.digits + 1]]
