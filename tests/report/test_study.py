"""The page: whole, self-contained, and made of nothing but records."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from assay.analysis.cells import Cell
from assay.analysis.summary import StudySummary
from assay.errors import BadInput
from assay.findings import Expectation, Finding
from assay.record import LengthScore, Record
from assay.report.figures import accuracies, by_length
from assay.report.page import Page
from assay.report.study_page import render
from tests.report.test_cells import record


def page(folder: Path, records: list[Record], missing: int = 0) -> tuple[str, str]:
    files = render(StudySummary("mine", "What is asked?", "mine"), records, missing).save(folder)
    assert all(f.exists() for f in files)
    return (folder / "index.html").read_text(), (folder / "index.md").read_text()


def test_a_page_has_its_tables_charts_and_sources(tmp_path: Path):
    web, markdown = page(tmp_path, [record(0), record(1, "partly solved", 0.5)], missing=3)
    for text in (web, markdown):
        assert "What is asked?" in text
        assert "1 of 2" in text
        assert "75.0" in text
        assert "1 solved, 1 partly" in text
        assert "3 runs of the study are not in the store yet" in text
        assert "Made by `assay study mine`, and this page by `assay report mine`." in text
        assert "2 runs, 0.1 minutes of work in all; random: seeds that are right on every random test input" in text
        assert "steps and seconds are medians over the seeds that solved." in text
        assert "seeds 0, 1" in text
    assert web.count("<svg") == 2
    assert not re.search(r'(src|href)="?http', web), "nothing is fetched from elsewhere"


def test_charts_are_pictures(tmp_path: Path):
    page(tmp_path, [record(0)])
    data = (tmp_path / "solved.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG")
    assert width > 200
    assert height > 80


def test_neighbouring_lengths_share_a_column_of_a_strip_but_not_across_the_end_of_training():
    lengths = [LengthScore(length=n, rows=4, sequences=float(n <= 300), answers=1) for n in range(2, 402)]
    tested = record(0)
    score = tested.scores[0].model_copy(update={"lengths": tuple(lengths)})
    spec = tested.spec | {"training": tested.spec["training"] | {"lengths": [2, 299]}}
    many = tested.model_copy(update={"scores": (score,), "spec": spec})
    chart = by_length([Cell("parity", "gru", "", (many,))], {})
    assert chart is not None
    strips, border = (layer["data"]["values"] for layer in chart["concat"][0]["layer"])
    shares = {row["length"]: row["accuracy"] for row in strips}
    assert len(shares) == 101
    assert border == [{"length": 300}]
    assert (shares[2], shares[298], shares[300], shares[304]) == (1, 1, 0.25, 0)


def test_the_slider_has_the_numbers_of_the_chart_by_length(tmp_path: Path):
    cell, other = Cell("parity", "gru", "lr=1", (record(0, share=0.75),)), Cell("dyck-1", "gru", "lr=2", (record(0),))
    long = record(1).model_copy(update={"verdict": "diverged", "scores": ()})
    most = Cell("parity", "lstm", "lr=1", (record(0), record(2), long))
    expected = {"task": "Parity", "lengths": [9], "models": {"gru": [75.0], "lstm": [66.6]}}
    first, second = accuracies([cell, most, other], {"parity": "Parity"})
    assert first == expected | {"trained": cell.records[0].spec["training"]["lengths"][1]}
    assert (second["task"], second["models"]) == ("dyck-1", {"gru": [100.0]})
    (settings,) = accuracies([cell, Cell("parity", "gru", "lr=2", most.records)], {})
    assert settings["models"] == {"gru lr=1": [75.0], "gru lr=2": [66.6]}
    web, _ = page(tmp_path, [record(0)])
    assert '"models":{"gru":[100.0]}}]</script>' in web


def test_failures_and_divergences_are_on_the_page(tmp_path: Path):
    failed = record(0, "failed").model_copy(update={"error": "RuntimeError: <b>no luck</b>"})
    web, markdown = page(tmp_path, [failed, record(1, "diverged")])
    assert "RuntimeError: &lt;b&gt;no luck" in web
    assert "1 failed, 1 diverged" in markdown


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "f").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        page(tmp_path / "f", [record(0)])


def test_findings_and_their_evidence_are_on_the_page(tmp_path: Path):
    expected = Expectation(task="parity", variant="gru", outcome="fails", up_to="Bin0")
    finding = Finding(name="gates", says="A GRU fails on (aa)* and (ab)*.", source="nobody", expects=(expected,))
    records = [record(0), record(1)]
    variants = {"gru": {"parity": [r.digest for r in records]}}
    summary = StudySummary("mine", "What is asked?", "mine", [finding], variants=variants)
    render(summary, records, 0).save(tmp_path)
    markdown = (tmp_path / "index.md").read_text()
    assert (
        "| gates<br>A GRU fails on (aa)\\* and (ab)\\*. (nobody) | does not hold | does not hold "
        "| ✗ the GRU learns parity in 2 of 2 seeds (34-100 %), 2 perfect; expected: fails |" in markdown
    )


def test_a_page_replaces_pages_of_assay_alone(tmp_path: Path):
    for _ in "12":
        Page("Mine", "").save(tmp_path)
    (tmp_path / "index.html").write_text("<h1>Somebody else's</h1>")
    with pytest.raises(BadInput, match=r"index\.html is not a page of Assay; name another folder with --out"):
        Page("Mine", "").save(tmp_path)
    assert "Somebody" in (tmp_path / "index.html").read_text()
    (tmp_path / "other" / "index.html").mkdir(parents=True)
    with pytest.raises(BadInput, match=r"index\.html"):
        Page("Mine", "").save(tmp_path / "other")
