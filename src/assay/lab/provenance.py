"""Where and with what a record was made: commit, versions, device."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

COMPARED = ("assay", "torch", "numpy")  # versions that must be equal on all machines


@cache
def provenance(device: torch.device) -> dict[str, Any]:
    """The fields `commit`, `versions` and `device` of a record."""
    versions = {name: _version(name) for name in ("assay", "torch", "numpy")} | {"python": platform.python_version()}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"
    return {"commit": commit(), "versions": versions, "device": name}


def difference(here: Mapping[str, Any], there: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What differs between the code of two machines, so that results might, and its version on both.

    Builds for CPU and GPU are not told apart. A commit is compared where both are known.

    >>> here, there = ({"versions": {"torch": version}, "commit": "3f"} for version in ("2.1+cpu", "2.1"))
    >>> difference(here, there)
    >>> difference(here, there | {"versions": {"torch": "2.0"}})
    ('torch', '2.1', '2.0')
    >>> difference(here, there | {"commit": "4a+"})
    ('the commit of assay', '3f', '4a')
    """
    for name in COMPARED:
        ours, theirs = (place["versions"].get(name, "none").partition("+")[0] for place in (here, there))
        if ours != theirs:
            return name, ours, theirs
    ours, theirs = (place["commit"].rstrip("+") for place in (here, there))
    return ("the commit of assay", ours, theirs) if ours and theirs and ours != theirs else None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from its source folder
        return "source"


def commit() -> str:
    """The commit of this code, followed by + if tracked files differ from it; empty outside of a checkout.

    The environment variable ASSAY_COMMIT overrides it, for copies of a checkout without its history.
    """
    if override := os.environ.get("ASSAY_COMMIT"):
        return override
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=False)
        if tracked.returncode:
            return ""
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changes = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changes.stdout.strip() else "")
