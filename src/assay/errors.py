"""`BadInput`, the error for a user's mistake, and how errors are told; imported without other libraries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

USER_CODE_ERRORS = (Exception, SystemExit)  # what a user's module may raise when it is imported, built or called


class BadInput(ValueError):
    """A mistake of the user: the message is one line that says what is wrong and what would be right."""


def in_one_line(error: BaseException) -> str:
    """The first line of an error, with the name of its class unless it is a user's mistake.

    >>> in_one_line(RuntimeError("no such luck\\nand more")), in_one_line(AssertionError())
    ('RuntimeError: no such luck', 'AssertionError')
    """
    name, (first, *_) = type(error).__name__, str(error).splitlines() or [""]
    return first if isinstance(error, BadInput) else f"{name}: {first}" if first else name


def suggestion(name: str, valid: Iterable[str]) -> str:
    """
    >>> suggestion("partiy", ["parity", "dyck-1"])
    "; did you mean 'parity'?"
    >>> suggestion("zzz", ["parity", "dyck-1"])
    '; choose from: dyck-1, parity'
    """
    valid = sorted(valid)
    if not valid:
        return "; it has none"
    close = difflib.get_close_matches(name.lower(), valid, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; choose from: {', '.join(valid)}"
