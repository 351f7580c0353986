"""Reports render an analysis: tables, charts and pages. A kind of page is a module and one line here."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.analysis.subjects import PageKind, Subject

PAGES: dict[PageKind, str] = {
    "study": "study_page",
    "paper": "paper_page",
    "probes": "probes_page",
    "replication": "replication_page",
    "collection": "collection_page",
    "separations": "separations_page",
    "tracking": "tracking_page",
    "theory": "theory_page",
}


def write_page(subject: Subject, folder: Path) -> list[Path]:
    """Write the page of a subject, with its charts and the files beside it; returns the files."""
    files: list[Path] = importlib.import_module(f"assay.report.{PAGES[subject.kind]}").write(subject, folder)
    return files
