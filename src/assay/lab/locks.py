"""Locks for groups that share a GPU, in threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

R = TypeVar("R")

# Held by whoever depends on global state of PyTorch other than numerical settings (the random generator, the choice of
# attention kernels), captures a graph or returns memory to the device. It is acquired after numerical settings, never
# before, so that no two threads wait for each other.
EXCLUSIVE = threading.RLock()


def one_at_a_time(function: Callable[..., R]) -> Callable[..., R]:
    """A cached function that computes what several threads need at once only once."""
    locks: dict[Hashable, threading.Lock] = {}

    @wraps(function)
    def call(*arguments: Hashable) -> R:
        with locks.setdefault(arguments, threading.Lock()):
            return function(*arguments)

    return call
