"""The code that the nodes of a Ray cluster run: the same versions as here, and the user's own modules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from assay.errors import BadInput
from assay.lab.provenance import difference
from assay.models.source import project_files


def check_code(own: dict[str, Any], other: dict[str, Any], host: str) -> None:
    """Raise BadInput if a node would not compute the same as this process."""
    if differing := difference(own, other):
        name, ours, theirs = differing
        raise BadInput(
            f"{name} differs: node {host} has {theirs}, and this process {ours}; install the same version on all nodes"
        )


def user_files(spec: dict[str, Any]) -> dict[str, bytes]:
    """The files of the user's own modules that plain data of a spec needs, by their paths below a folder."""
    files = dict[str, bytes]()
    for module in set(_modules_in(spec)):
        files |= _project_files(module)
    return files


_project_files = cache(project_files)


def _modules_in(data: Any) -> Iterator[str]:
    """The modules of the user that plain data of a spec names.

    >>> list(_modules_in({"task": {"kind": "my.tasks:Mine"}, "model": {"kind": "foreign", "path": "net:Net"}}))
    ['my.tasks', 'net']
    """
    if isinstance(data, dict):
        path = data.get("path") or data.get("kind")
        if isinstance(path, str) and ":" in path:
            yield path.partition(":")[0]
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, (list, tuple)) else ():
        yield from _modules_in(item)
