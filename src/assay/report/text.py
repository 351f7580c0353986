"""Numbers as short text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def in_percent(interval: tuple[float, float]) -> str:
    """
    >>> in_percent((0.4385, 1.0))
    '44-100'
    """
    low, high = interval
    return f"{100 * low:.0f}-{100 * high:.0f}"


def percent(share: float | None) -> str:
    """A share in percent, rounded down: only 1 is 100.

    >>> percent(1.0), percent(0.9996), percent(0.5), percent(None)
    ('100', '99.9', '50.0', '-')
    """
    if share is None:
        return "-"
    return "100" if share == 1 else f"{math.floor(share * 1000) / 10:.1f}"


def or_dash(number: float | None) -> str:
    """
    >>> or_dash(1234.4), or_dash(None)
    ('1,234', '-')
    """
    return "-" if number is None else f"{number:,.0f}"


def distinct(values: Iterable[str]) -> str:
    """
    >>> distinct(["b", "a", "b"])
    'a, b'
    """
    return ", ".join(sorted(set(values)))


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
