"""The first screens of the pages about the second paper, from made-up records: another program recomputes them."""

from __future__ import annotations

import lzma
import random
import re
import runpy
from pathlib import Path

import pytest

from assay.analysis.bounds import Bounds
from assay.analysis.lengths import place_of
from assay.analysis.subjects import StudyRecords
from assay.record import LengthScore, Point, ProbeScore, Probing, Record, Score
from assay.report import separations_figures, separations_tables, write_page
from assay.spec import RunSpec
from assay.studies import RESULTS, study_named

SCRIPT = Path(__file__).parents[2] / "scripts" / "recompute-separations2024"
NAMES = ("separations2024-laptop", "separations2024")
# Of the large study some pieces are enough, one of which is under way.
PIECES = ("lookup: attention", "state bits", "recall")
NUMBER = r"\d+(?= of \d+[ ,;|])|(?<=for )\d[\d.]*(?= % of the test)|"
NUMBER += r"\d[\d.]*(?= %\.)|(?<=of at most )[\d.]+|(?<=with )[\d,]+(?= bits)|"
NUMBER += r"(?<=in at most )[\d,]+(?= steps)|(?<=\(width )\d+|(?<=of state: )[\d.]+(?= %)"


def made_up(run: RunSpec) -> Record:
    """Wider is better, longer is worse, and attention is better than a state; the same at every call."""
    chance, place = random.Random(run.digest), place_of(run.plain())
    attends = run.model.name == "transformer"
    skill = (1.3 if attends else 0.5) + 0.1 * (place.width / 64) - place.length / 300 + 0.2 * (run.training.lr == 3e-3)
    share = round(min(1.0, max(0.0, skill - 0.2 * (place.numbers != "float32") + chance.gauss(0, 0.04))), 3)
    longest, is_wrong = run.training.lengths[1], chance.random() < 0.3
    rows = (LengthScore(length=longest, rows=100, sequences=share, answers=share),)
    wrong = ProbeScore(name="some", rows=4, wrong=int(is_wrong), length=7 if is_wrong else None)
    return Record(
        digest=run.digest,
        spec=run.plain(),
        verdict="diverged" if share == 0 else "censored",
        stopped="diverged" if share == 0 else "steps",
        scores=tuple(
            Score(bin=b.name, rows=100, shared=0, sequences=share, answers=share, favourite=0.1, lengths=rows)
            for b in run.testing.bins
        ),
        probing=Probing(probes=1, scores=(wrong,), seconds=0.1) if share == 1 else None,
        curve=(Point(step=1, loss=1.0, sequences={"Val0": share * chance.random(), "Val1": share}, answers={}),),
        parameters=place.width,
        state_floats=2 * place.width,
    )


@pytest.mark.parametrize("name", NAMES)
def test_another_program_recomputes_the_first_screen(
    name: str, tmp_path: Path, undrawn: None, monkeypatch: pytest.MonkeyPatch
):
    for module in (separations_tables, separations_figures):
        monkeypatch.setattr(module, "bounds_of", lambda *_: Bounds(None, None, ""))
    study = study_named(name)
    pieces = [runs for piece, runs in study.pieces.items() if piece in PIECES or name == NAMES[0]]
    records = [made_up(run) for runs in pieces for run in runs][: None if name == NAMES[0] else -20]
    write_page(StudyRecords(study, tmp_path / "store", records), tmp_path)
    lines = ["a header", *(record.model_dump_json() for record in records)]
    (tmp_path / "packed.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode(), preset=0))
    page, script = (tmp_path / "index.md").read_text(), runpy.run_path(str(SCRIPT))
    facts = script["STUDIES"][name]
    known = script["Records"](tmp_path / "packed.jsonl.xz", tmp_path / "cells.csv", facts)
    assert script["differences"](known, page, facts) == []

    screen = page.partition("## Which width")[0]
    numbers = list(re.finditer(NUMBER, screen))
    assert len(numbers) > 10
    for number in numbers[:: 1 + len(numbers) // 8]:
        changed = page[: number.start()] + "7" + number.group() + page[number.end() :]
        assert script["differences"](known, changed, facts), f"nobody compares {number.group()}"
    assert len(screen.partition("## Do the claims")[0].split()) <= 300, "words before the table of claims"


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_first_screen_follows_from_the_shipped_records(name: str):
    records = RESULTS / f"{name}.jsonl.xz"
    if not records.exists():
        pytest.skip("no record of this study ships yet")
    assert runpy.run_path(str(SCRIPT))["main"]([name]) == 0
