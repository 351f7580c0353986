"""Records as lines of JSON text.

Most of a line is two kinds of lists: the lengths of each score, and the curve. They are cut out and read by themselves,
either at once or when they are first needed. A text without such a list is valid JSON exactly if the whole line is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from assay.description import explanation, with_tuples
from assay.errors import BadInput
from assay.record import LengthScore, Part, Point, Record

Item = TypeVar("Item", bound=Part)
START = re.compile(r'\{"kind":"record","version":1,"digest":"[^"\\]*","spec":')
SEED, LENGTHS, CURVE = ',"seed":', '"lengths":[', '"curve":['
ADAPTERS: dict[type[Part], TypeAdapter[Any]] = {
    Point: TypeAdapter(tuple[Point, ...]),
    LengthScore: TypeAdapter(tuple[LengthScore, ...]),
}


class Lazy(Sequence[Item]):
    """A sequence that is parsed when it is first needed; equal to a tuple of the same items."""

    def __init__(self, part: type[Item], text: str, parse: Callable[[str], tuple[Item, ...]]) -> None:
        self._part, self._text, self._parse = part, text, parse

    @cached_property
    def items(self) -> tuple[Item, ...]:
        items = self._parse(self._text)
        del self._text, self._parse
        return items

    @cached_property
    def last(self) -> tuple[Item, ...]:
        """The last item, if there is one: it is parsed alone, since of most curves nothing else is needed."""
        if "items" not in self.__dict__:
            # Every item begins so, and nothing within one does, since texts have their quotes escaped.
            start = self._text.rfind(f'{{"kind":"{self._part.model_fields["kind"].default}"')
            if start > 0:
                return self._parse(f"[{self._text[start:]}")
        return self.items[-1:]

    def __reversed__(self) -> Iterator[Item]:
        yield from self.last
        yield from self.items[-2::-1]

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self.items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        return self.items == (other.items if isinstance(other, Lazy) else other)

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return repr(self.items)


def write_lines(records: Iterable[Record]) -> bytes:
    return b"".join(record.whole().model_dump_json().encode() + b"\n" for record in records)


def read_lines(path: Path, lines: Iterable[bytes], lazily: bool = False, first: int = 1) -> Iterator[Record]:
    """The records of the lines of a file; `lazily` leaves long lists as text until they are needed.

    `first` is the number of the first line in the file, for messages.
    """

    def checked(number: int, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (ValueError, TypeError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise BadInput(
                f"{path}: line {number} is not a record ({reason}); restore the file or move it out of the store"
            ) from None

    for number, line in enumerate(lines, start=first):

        def parsed(part: type[Item], text: str, number: int = number) -> Sequence[Item]:
            if lazily:
                return Lazy(part, text, lambda some: checked(number, partial(_parse, part, some)))
            return _parse(part, text)

        yield checked(number, partial(_read_line, line, parsed))


def _parse(part: type[Item], text: str) -> tuple[Item, ...]:
    try:
        items: tuple[Item, ...] = ADAPTERS[part].validate_json(text)
        return items
    except ValidationError as error:
        raise BadInput(explanation(error, part.model_fields["kind"].default, part.model_fields)) from None


def _read_line(line: bytes, parsed: Callable[[type[Any], str], Any]) -> Record:
    text = line.decode()
    try:
        cut = _cut(text)
        record = Record(**json.loads(cut.rest))
        scores = list(zip(record.scores, cut.lengths, strict=True))
        if record.spec or record.curve or any(score.lengths for score in record.scores):
            raise ValueError("cut at other places")
    except ValueError:  # not as `write_lines` writes it, or no record at all
        return Record(**json.loads(text))
    # Frozen data is completed here, not changed.
    record.__dict__ |= {"spec": cut.spec, "curve": parsed(Point, cut.curve)}
    for score, lengths in scores:
        score.__dict__["lengths"] = parsed(LengthScore, lengths)
    return record


class Cut(NamedTuple):
    """A line in parts: `rest` is the text of the whole with an empty spec and empty lists."""

    spec: dict[str, Any]
    lengths: list[str]
    curve: str
    rest: str


def _cut(line: str) -> Cut:
    """Cut a line; ValueError if it cannot be cut.

    The spec, which may have any keys and values, is parsed first, and so its end is known. Up to the curve all keys are
    our own. A name that contains a bracket would end a list too soon; then the rest is not valid JSON.
    """
    start = START.match(line)
    if start is None:
        raise ValueError("another order")
    spec_start = start.end()
    seed_start = line.index(SEED, spec_start)
    end = line.index("}", seed_start) + 1
    spec = _spec(line[spec_start:seed_start]) | {"seed": json.loads(line[seed_start + len(SEED) : end - 1])}
    curve_start = line.index(CURVE, end) + len(CURVE)
    curve_end = line.index("]", curve_start)
    rest, lengths = [line[:spec_start], "{}"], []
    while (key := line.find(LENGTHS, end, curve_start)) >= 0:
        lengths_start = key + len(LENGTHS)
        rest.append(line[end:lengths_start])
        end = line.index("]", lengths_start)
        lengths.append(f"[{line[lengths_start:end]}]")
    rest += [line[end:curve_start], line[curve_end:]]
    return Cut(spec, lengths, f"[{line[curve_start:curve_end]}]", "".join(rest))


@lru_cache(maxsize=1024)
def _spec(text: str) -> dict[str, Any]:
    """A spec without its seed, which comes last: parsed once for all seeds."""
    spec: dict[str, Any] = with_tuples(json.loads(f"{text}}}"))
    return spec
