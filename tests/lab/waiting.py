"""Waiting in tests: for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait until a condition holds; fails with the name of what was expected."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} seconds: {what}"
        time.sleep(0.05)
