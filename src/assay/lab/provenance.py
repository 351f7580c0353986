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


def differing_version(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The first package whose version is another one on another machine, so that results might differ, and both.

    Builds of a version for CPU and GPU are not told apart.

    >>> differing_version({"assay": "1", "torch": "2.1+cpu"}, {"assay": "1", "torch": "2.1"})
    >>> differing_version({"assay": "1", "torch": "2.1+cpu"}, {"assay": "1", "torch": "2.0"})
    ('torch', '2.1', '2.0')
    """
    for name in COMPARED:
        ours, theirs = (versions.get(name, "none").partition("+")[0] for versions in (here, there))
        if ours != theirs:
            return name, ours, theirs
    return None


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
