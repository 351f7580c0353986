"""What a page says that no record does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.findings import Comparison, Finding


@dataclass(frozen=True)
class About:
    """A page's title, what was asked and how to ask again, and what others found.

    Runs are named by their digests: those of a variant by its tasks, and those of a piece.
    """

    title: str
    asks: str
    command: str
    findings: Sequence[Finding] = ()
    comparisons: Sequence[Comparison] = ()
    variants: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    pieces: Mapping[str, Sequence[str]] = field(default_factory=dict)
