"""Words that people can read: `1 0^25` for a 1 and twenty-five 0s, and words that a loop repeats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from assay.errors import BadInput

LONGEST_LOOP = 8  # symbols of a loop that `readable` looks for


class Lasso(NamedTuple):
    """The infinite word u w w w ...: an access word and a loop, both as tokens."""

    access: tuple[int, ...]
    loop: tuple[int, ...]

    def word(self, length: int) -> tuple[int, ...]:
        """Its first `length` tokens."""
        repeats = max(0, length - len(self.access)) // len(self.loop) + 1
        return (self.access + self.loop * repeats)[:length]


def lassos(tokens: int, access: int, loop: int) -> list[Lasso]:
    """All lassos over tokens 1 to `tokens` with an access word and a loop of at most these lengths, shortest first.

    Each infinite word occurs once: neither `1 (0 0)` nor `1 0 (0)` is listed beside `1 (0)`.

    >>> [readable(lasso.word(4), "ab") for lasso in lassos(2, access=1, loop=1)]
    ['a^4', 'b^4', 'a b^3', 'b a^3']
    """
    alphabet, found = range(1, tokens + 1), dict[tuple[int, ...], Lasso]()
    words = sorted(
        (
            (u, w)
            for n in range(access + 1)
            for u in product(alphabet, repeat=n)
            for k in range(1, loop + 1)
            for w in product(alphabet, repeat=k)
        ),
        key=lambda pair: len(pair[0]) + len(pair[1]),
    )
    telling = access + 2 * loop * loop  # two lassos that agree so far agree forever
    for u, w in words:
        lasso = Lasso(u, w)
        found.setdefault(lasso.word(telling), lasso)
    return list(found.values())


def readable(tokens: Sequence[int], symbols: Sequence[str]) -> str:
    """A word with powers; the longest repetition from the left is taken first.

    A repeated group stands between brackets, or between bars where the symbols are brackets.

    >>> readable([2] + [1] * 25, "01")
    '1 0^25'
    >>> readable([1, 2, 1, 2, 1, 2, 1], "ab")
    '(a b)^3 a'
    """
    left, right = "||" if "(" in symbols else "()"
    parts, i, n = [], 0, len(tokens)
    while i < n:
        repeats, loop = max(
            ((_repeats(tokens, i, size), size) for size in range(1, min(LONGEST_LOOP, n - i) + 1)),
            key=lambda found: (found[0] * found[1] if found[0] > 1 else 1, -found[1]),
        )
        if repeats * loop < 3 or repeats == 1:
            repeats, loop = 1, 1
        names = [symbols[token - 1] for token in tokens[i : i + loop]]
        base = names[0] if loop == 1 else f"{left}{' '.join(names)}{right}"
        parts.append(base if repeats == 1 else f"{base}^{repeats}")
        i += repeats * loop
    return " ".join(parts)


def _repeats(tokens: Sequence[int], start: int, size: int) -> int:
    """How often the `size` tokens at `start` follow each other."""
    loop, count = tuple(tokens[start : start + size]), 1
    while tuple(tokens[start + count * size : start + (count + 1) * size]) == loop:
        count += 1
    return count


def tokens_of(word: str, symbols: Sequence[str]) -> list[int]:
    """The tokens of a readable word: the inverse of `readable`.

    >>> tokens_of("1 0^3 (0 1)^2", "01")
    [2, 1, 1, 1, 1, 2, 1, 2]
    >>> tokens_of("(^2 |( )|^2", "()")
    [1, 1, 1, 2, 1, 2]
    """
    group = r"\|([^|]+)\|" if "(" in symbols else r"\(([^()]+)\)"
    number = {symbol: i + 1 for i, symbol in enumerate(symbols)}
    tokens: list[int] = []
    for bracket, single, power in re.findall(rf"(?:{group}|(\S+?))(?:\^(\d+))?(?:\s+|$)", word):
        names = bracket.split() if bracket else [single]
        unknown = [name for name in names if name not in number]
        if unknown:
            raise BadInput(f"'{unknown[0]}' in the word {word!r} is not a symbol; choose from: {', '.join(symbols)}")
        tokens += [number[name] for name in names] * int(power or 1)
    return tokens
