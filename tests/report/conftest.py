"""The made-up study and its records; charts are drawn only where a test is about them."""

from __future__ import annotations

import pytest

from assay.record import Record
from assay.report import figures
from assay.studies import Study
from tests.report.paper_study import made_up, study


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def records(asked: Study) -> list[Record]:
    """All but those of elman on dyck-1: what was not run."""
    return [made_up(run) for run in asked.runs if (run.model.name, run.task.kind) != ("elman", "dyck-1")]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "draw", lambda chart: ("<svg/>", b""))
