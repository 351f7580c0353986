"""Why workers of a Ray cluster died or did not start, as far as Ray knows."""

from __future__ import annotations

import re

from assay.errors import BadInput
from assay.lab.engines.ray_connection import import_ray


def check_start(error: Exception) -> None:
    """Raise BadInput if a worker's own code failed when it started: it would fail again."""
    if getattr(error, "actor_init_failed", False) or isinstance(error, import_ray().exceptions.RayTaskError):
        address = re.search(r"\bip=([\w.:]+)", str(error))
        where = f" on node {address[1]}" if address else ""
        raise BadInput(f"a worker cannot start{where}: {_last_line(error)}; install the same assay on all nodes")


def is_lost(error: Exception) -> bool:
    """Whether a worker was lost with its node or with the connection."""
    errors = import_ray().exceptions
    lost = (errors.ActorUnavailableError, errors.NodeDiedError, errors.ObjectLostError)
    return isinstance(error, lost) or getattr(error, "preempted", False) or "node has died" in str(error)


def cause_of(error: Exception) -> str:
    """Why a worker process died, as far as Ray knows.

    >>> cause_of(RuntimeError("Task was killed due to the node running low on memory. And more"))
    "killed by Ray's memory monitor"
    """
    text = str(error)
    if "running low on memory" in text or "memory monitor" in text:
        return "killed by Ray's memory monitor"
    if "SIGKILL" in text or "connection error code" in text:  # Ray lists what is common
        return "its process ended unexpectedly (killed, out of memory, or crashed)"
    return _last_line(error)


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
