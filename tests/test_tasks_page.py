"""docs/tasks.md is current, and names the sources of what theory says."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path

from assay.tasks import named_task
from assay.tasks.algebra import algebra_of
from assay.tasks.predictions import CLASSES, predictions

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tasks.md").read_text()


def test_the_table_of_the_algebra_is_current():
    loader = importlib.machinery.SourceFileLoader("update_tasks", str(ROOT / "scripts" / "update-tasks"))
    spec = importlib.util.spec_from_loader("update_tasks", loader)
    assert spec
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    assert script.main(["--check"]) == 0, "run scripts/update-tasks"


def test_every_class_of_models_has_a_row_with_the_sources_of_its_predictions():
    sources = dict(re.findall(r"^\| (.+?) \| (.+?) \|", PAGE, flags=re.M))
    assert set(CLASSES) <= set(sources)
    for task in ("parity", "flip-flop", "s3", "a5"):
        algebra = algebra_of(named_task(task))
        assert algebra
        for prediction in predictions(algebra):
            authors = prediction.source.split(", ")[0]
            assert authors in sources[prediction.column]
            assert re.sub(r"\s+", " ", PAGE).count(prediction.source), "with its number in the list of sources"
