"""The records that ship with the package, read once for all tests."""

from __future__ import annotations

from functools import cache

from assay.record import Record
from assay.store import Store
from assay.studies import RESULTS


@cache
def shipped(name: str) -> list[Record]:
    return Store.open(RESULTS / f"{name}.jsonl.xz").records()
