"""The records that ship with the package: of the studies as they stand, and the source of pages and of README."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

from assay.analysis.subjects import StudyRecords
from assay.certify.runs import check_file
from assay.description import canonical
from assay.lab.reprobing import probe_again
from assay.report import write_page
from assay.store import Store
from assay.studies import RESULTS, STUDIES, study_named
from tests.shipped import shipped

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "pages"
# A machine's copy of the checkout had an older history: docs/log.md says which code it was.
UNCLEAR = {"fe103e3a27a4+"}
# Their pages name the cells that are empty.
UNFINISHED = {"leaks", "irie2023-second", "separations2024", "tracking2026"}
SHIPPED = sorted(path.name.removesuffix(".jsonl.xz") for path in RESULTS.glob("*.jsonl.xz"))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_run_of_a_shipped_study_has_its_record(name: str):
    assert name in STUDIES
    found = {record.digest: record for record in shipped(name)}
    runs = {run.digest: run for run in study_named(name).runs}
    assert set(found) <= set(runs)
    assert name in UNFINISHED or set(found) == set(runs)
    for digest, record in found.items():
        assert canonical(record.spec) == canonical(runs[digest].plain())
        assert record.finished
        assert record.commit
        assert not record.commit.endswith("+") or record.commit in UNCLEAR


def test_the_demo_shows_the_separations_that_it_promises():
    found = {(r.task, r.model, r.seed): r for r in shipped("quick")}

    def share(task: str, model: str, bin_: str) -> list[float]:
        scores = [found[task, model, seed].score(bin_) for seed in range(3)]
        return [score.sequences for score in scores if score]

    assert {found["parity", "lstm", seed].verdict for seed in range(3)} == {"solved", "refuted"}
    assert any(found["parity", "lstm", seed].wrong_word.startswith("1 0^") for seed in range(3))
    for model in ("recurrent-delta", "srwm"):
        assert sum(found["parity", model, seed].verdict == "solved" for seed in range(3)) >= 2
        assert min(share("parity", model, "Bin1")) > 0.98
    for model in ("transformer", "linear-transformer", "delta-net"):
        assert max(share("parity", model, "Bin1")) < 0.02
    assert share("index-lookup", "transformer", "Bin1") == [1, 1, 1]
    for model in ("linear-transformer", "delta-net", "recurrent-delta", "srwm", "lstm"):
        assert max(share("index-lookup", model, "Bin1")) < 0.9


def test_equal_budgets():
    runs = study_named("quick").runs
    assert len({run.training.model_dump_json(exclude={"lengths", "validation"}) for run in runs}) == 1
    for task in {run.task.kind for run in runs}:
        mine = [run for run in runs if run.task.kind == task]
        assert len({(run.training.model_dump_json(), run.testing.model_dump_json()) for run in mine}) == 1
        assert len(mine) == 18


@pytest.mark.parametrize("name", [name for name in SHIPPED if study_named(name).comparisons])
def test_the_committed_page_is_that_of_the_shipped_records(name: str, tmp_path: Path, undrawn: None):
    write_page(StudyRecords(study_named(name), RESULTS / f"{name}.jsonl.xz", shipped(name)), tmp_path)
    texts = [path.name for path in tmp_path.iterdir() if path.suffix in (".md", ".csv", ".tex")]
    assert "index.md" in texts
    differ = [text for text in texts if (tmp_path / text).read_text() != (PAGES / name / text).read_text()]
    assert not differ, f"make the page again: assay report {name} --out docs/pages/{name}"


def test_tables_of_the_readme_come_from_the_records(monkeypatch: pytest.MonkeyPatch):
    script = runpy.run_path(str(ROOT / "scripts" / "update-readme"))
    read = {f"{name}.jsonl.xz": shipped(name) for name in SHIPPED}
    monkeypatch.setattr(Store, "records", lambda store: read[store.path.name])
    assert script["main"](["--check"]) == 0, (
        "run scripts/update-readme; where the study itself changed, run it again and pack its records first"
    )


def test_certificates_that_ship_hold():
    """The smallest for each architecture and task; `assay check docs/pages/proofs/certificates` checks all."""
    smallest: dict[tuple[str, str], tuple[int, str]] = {}
    for record in shipped("proofs"):
        for result in record.certified:
            if result.outcome == "proved":
                found = (result.states or 0, result.certificate)
                smallest[record.model, record.task] = min(found, smallest.get((record.model, record.task), found))
    assert sum(task == "parity" for _, task in smallest) == 5
    assert sum(task == "flip-flop" for _, task in smallest) == 6
    for _, name in smallest.values():
        assert check_file(PAGES / "proofs" / "certificates" / name)[0] == ""


def test_the_weights_that_ship_are_those_of_their_records():
    for name in ("proofs", "programs"):
        records = shipped(name)
        assert all(probe_again(record, torch.device("cpu")).wrong_word == record.wrong_word for record in records[:3])
