"""The made-up study and its records; charts are drawn only where a test is about them."""

from __future__ import annotations

import pytest

from assay.record import Record
from assay.report import figures, paper_figures
from assay.studies import Study
from tests.report.paper_study import load_study, made_up


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return load_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def records(study: Study) -> list[Record]:
    """All but those of elman on dyck-1: what was not run."""
    return [made_up(run) for run in study.runs if (run.model.name, run.task.kind) != ("elman", "dyck-1")]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without charts, which take longer than all else."""
    monkeypatch.setattr(figures, "draw", lambda chart: ("<svg/>", b""))
    for name in ("table", "by_rate", "by_length", "losses"):
        monkeypatch.setattr(paper_figures, name, lambda *_: "a chart")
