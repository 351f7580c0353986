"""What the weights of a study's runs show, as a small file beside its records: `assay inspect` makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.errors import BadInput

PARTS = {"study", "command", "attention", "explicit", "states"}


def inspection_file(source: Path) -> Path:
    """Where the inspection of a store or a packed file is.

    >>> inspection_file(Path("results/mine.jsonl.xz")).name
    'mine.inspection.json'
    """
    if source.name.endswith(".jsonl.xz"):
        return source.with_name(f"{source.name.removesuffix('.jsonl.xz')}.inspection.json")
    return source / "inspection.json"


def read_inspection(source: Path) -> dict[str, Any] | None:
    """The inspection beside a source of records; None if none was made."""
    path = inspection_file(source)
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read {path}: {error}; `assay inspect` makes it again") from None
    if not isinstance(data, dict) or not set(data) >= PARTS:
        raise BadInput(f"{path} is not an inspection; `assay inspect` makes one")
    return data
