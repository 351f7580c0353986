"""The page on theory: whole, and made of its record alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from assay.analysis.subjects import TheoryRecord
from assay.report.theory_page import write
from assay.studies import RESULTS
from assay.theory.registry import CLAIMS

SHIPPED = RESULTS / "theory.json"


def record(**changed: Any) -> dict[str, Any]:
    claim = {"claim": "lookup-trace", "holds": True}
    claim |= {"length": 64, "inputs": 1234, "width": 70, "bits": 32, "margin": 0.988, "seconds": 1.25}
    claim |= {"checked": "all of 2, random", "note": ""}
    exact = {"claim": "lookup-trace", "width": 70, "part": "all", "whole": 6, "fraction": 1, "bits": 8}
    return {
        "claims": [claim],
        "precision": [exact | {"length": 64}, exact | {"length": 128, "whole": None, "fraction": None, "bits": None}],
        "attention": [
            {"claim": "lookup-trace", "length": 64, "variant": "softmax", "scale": 0.5, "offset": 0.75},
            {"claim": "lookup-trace", "length": 64, "variant": "linear", "scale": None},
        ],
        "variants": ["softmax", "linear"],
        "bits": [
            {"task": "index-lookup", "model": "lstm", "length": n, "needed": 6 * n, "available": 4096} for n in (8, 16)
        ],
        "depth": [{"length": 16, "which": "two layers", "width": 36}],
        "device": "cpu",
        "versions": {"torch": "2"},
        "made": {"claims": {"commit": "abc", "minutes": 1.5}, "bits": {"commit": "abd", "minutes": 1.5}},
        "command": "scripts/measure-theory",
    } | changed


def page(folder: Path, record: dict[str, Any]) -> tuple[str, str]:
    statements = {"lookup-trace": ("somebody", "One layer looks up.")}
    assert all(file.exists() for file in write(TheoryRecord(SHIPPED, record, statements), folder))
    return (folder / "index.html").read_text(), (folder / "index.md").read_text()


def test_a_page_has_the_claims_charts_and_where_they_come_from(tmp_path: Path):
    web, markdown = page(tmp_path, record())
    for text in (web, markdown):
        for said in (
            "One layer looks up.",
            "1,234",
            "0.988",
            "6.1",
            "x 0.5, less 0.75",
            "Commit abc, abd",
            "3 minutes",
        ):
            assert said in text, said
    assert web.count("<svg") == 4
    assert "| lookup-trace | 64 | x 0.5, less 0.75 | - |" in markdown, "what does not survive has a dash"


def test_models_with_the_same_state_share_a_row_which_says_how_far_its_bits_reach(tmp_path: Path):
    def rows(model: str, available: int) -> list[dict[str, Any]]:
        row = {"task": "index-lookup", "model": model, "available": available}
        return [row | {"length": n, "needed": 6 * n} for n in (8, 16, 32)]

    _, markdown = page(tmp_path, record(bits=[*rows("srwm", 192), *rows("lstm", 96), *rows("gru", 96)]))
    assert "| lstm, gru | 96 | 96 | N = 16 |" in markdown
    assert "| srwm | 192 | 192 | all |" in markdown


def test_a_claim_that_fails_is_on_the_page_as_such(tmp_path: Path):
    failed = record()["claims"][0] | {"holds": False, "margin": None, "note": "7 wrong"}
    _, markdown = page(tmp_path, record(claims=[failed]))
    assert "| lookup-trace | NO | 64 | 1,234 | 70 | 32 | - | 1.2 | 7 wrong |" in markdown


def test_the_record_that_ships_has_every_claim_and_all_hold():
    shipped = json.loads(SHIPPED.read_text())
    assert [row["claim"] for row in shipped["claims"]] == list(CLAIMS.entries)
    assert all(row["holds"] for row in shipped["claims"])
    lookup = next(row for row in shipped["claims"] if row["claim"] == "lookup-trace")
    assert (lookup["length"], lookup["width"]) == (2048, 70)
