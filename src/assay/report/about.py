"""What a page says that no record does."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.findings import Comparison, Finding

Span = tuple[int, int]  # least and most


@dataclass(frozen=True)
class Setup:
    """How a task is asked: in words, and the lengths, steps and rows to a batch of its runs."""

    says: str
    trained: Span
    bins: Sequence[Span]
    validated: int
    steps: Span
    batch: Span


@dataclass(frozen=True)
class About:
    """A page's title, what was asked, the study's name for commands, and what others found.

    Runs are named by their digests: those of a variant by its tasks, and those of a piece.
    """

    title: str
    asks: str
    name: str
    findings: Sequence[Finding] = ()
    comparisons: Sequence[Comparison] = ()
    variants: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    pieces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tasks: Mapping[str, Setup] = field(default_factory=dict)

    @property
    def study_command(self) -> str:
        return f"assay study {shlex.quote(self.name)}"

    @property
    def report_command(self) -> str:
        return f"assay report {shlex.quote(self.name)}"

    @property
    def made_by(self) -> str:
        return f"Made by `{self.study_command}`, and this page by `{self.report_command}`."
