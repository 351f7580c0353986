"""Kills workers and nodes of a Ray cluster of several nodes on this machine (`ray.cluster_utils.Cluster`)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

TITLE = b"ray::GroupWorker"  # how the title of a worker's process begins


def kill_worker(cluster: Any, chance: Random) -> bool:
    """Kill the process of a random worker; returns False if there is none."""
    workers = [pid for pid, parent in _workers() if parent in {_raylet(node) for node in cluster.worker_nodes}]
    if not workers:
        return False
    with suppress(ProcessLookupError):
        os.kill(chance.choice(sorted(workers)), signal.SIGKILL)
    return True


def replace_node(cluster: Any, chance: Random, **options: Any) -> None:
    """Kill a random node other than the head, and let another one join; only the main thread may call this."""
    cluster.remove_node(chance.choice(sorted(cluster.worker_nodes, key=_raylet)), allow_graceful=False)
    cluster.add_node(**options)


def _raylet(node: Any) -> int:
    """The process that starts a node's workers."""
    return int(node.all_processes["raylet"][0].process.pid)


def _workers() -> list[tuple[int, int]]:
    """The processes of all workers, each with its parent."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(TITLE):
                _, _, fields = (folder / "stat").read_text().rpartition(") ")
                processes.append((int(folder.name), int(fields.split()[1])))
    return processes
