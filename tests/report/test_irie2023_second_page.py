"""The page of irie2023-second from made-up records of all its runs: its length, and the script that recomputes it."""

from __future__ import annotations

import lzma
import random
import re
import runpy
from pathlib import Path

import pytest

from assay.analysis.subjects import StudyRecords
from assay.record import OtherState, Point, ProbeScore, Probing, Record, Score, Verdict
from assay.report import write_page
from assay.spec import RunSpec
from assay.studies import RESULTS, study_named

SCRIPT = Path(__file__).parents[2] / "scripts" / "recompute-irie2023-second"
STUDY = study_named("irie2023-second")


def made_up(run: RunSpec) -> Record:
    """Better for some models, at medium rates and after many steps; the same at every call."""
    chance = random.Random(run.digest)
    skill = {"lstm": 1.1, "e-lstm": 1.0, "srwm": 0.95, "recurrent-delta": 0.97}.get(run.model.name, 0.85)
    skill -= 0.5 * (run.task.kind in ("parity", "even-a") and run.model.name in ("linear-transformer", "delta-net"))
    skill -= 0.2 * (run.task.kind == "an-bn" and run.model.name == "linear-transformer")
    skill += 0.04 * (run.training.lr == 1e-3) + 0.03 * (run.training.steps == 94_000) - 0.03 * run.task.is_published

    def scores(bonus: float) -> tuple[Score, ...]:
        shares = (skill + bonus + chance.gauss(0.1 - 0.08 * i, 0.03) for i, _ in enumerate(run.testing.bins))
        return tuple(
            Score(bin=b.name, rows=512, shared=0, sequences=min(1, round(s, 3)), answers=1, favourite=0.5, lengths=())
            for b, s in zip(run.testing.bins, shares, strict=True)
        )

    def state(name: str, bonus: float) -> OtherState:
        found, wrong = scores(bonus), chance.random() < 0.4
        right = [score.sequences == 1 for score in found]
        verdict: Verdict = "censored" if not right[0] else "partly solved" if not all(right) else "solved"
        probe = ProbeScore(name="runs", rows=4, wrong=int(wrong), length=7 if wrong else None, word="( )^3 (" * wrong)
        return OtherState(
            name=name,
            step=400,
            verdict="refuted" if verdict == "solved" and wrong else verdict,
            scores=found,
            probing=Probing(probes=1, scores=(probe,), seconds=0.1) if right[0] else None,
            other_scores=scores(bonus - 0.05)[:2] if run.testing.both_strings else (),
        )

    diverged = chance.random() < 0.03
    states = [state(*pair) for pair in (("best", 0.05), ("watched", 0.1), ("averaged", 0.06))]
    curve = [Point(step=i, loss=1, sequences={"Val0": skill * i / 4 * chance.random()}, answers={}) for i in range(4)]
    return Record(
        digest=run.digest,
        spec=run.plain(),
        verdict="diverged" if diverged else "censored",
        stopped="diverged" if diverged else "steps",
        scores=() if diverged else scores(0),
        states=tuple(states[1:2] if diverged else states),
        curve=tuple(curve),
        parameters=len(run.model.plain()["mixers"]) * run.model.plain()["width"],
    )


@pytest.mark.parametrize("whole", [True, False])
def test_another_program_recomputes_the_first_screen(whole: bool, tmp_path: Path, undrawn: None):
    parts = ("counting", "long", "published", "regular", *(["one-layer"] if whole else []))
    unfinished = () if whole else ("published:reset-dyck-1", "long:shuffle")
    pieces = [runs for name, runs in STUDY.pieces.items() if name.partition(":")[0] in parts and name not in unfinished]
    records = [made_up(run) for runs in pieces for run in runs]
    if not whole:
        del records[-3:], records[105:110]  # cells that have begun
    write_page(StudyRecords(STUDY, Path("store"), records), tmp_path)
    lines = ["a header", *(record.model_dump_json() for record in records)]
    (tmp_path / "packed.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode(), preset=0))
    page, script = (tmp_path / "index.md").read_text(), runpy.run_path(str(SCRIPT))
    known = script["Records"](tmp_path / "packed.jsonl.xz")
    assert script["differences"](known, page) == []

    screen = page.partition("## Bin0 and Bin1")[0]
    assert f"in the mean of {9 if whole else 3} of the 9 contested pairs below." in screen
    assert "Not reached: " in screen
    assert "though it should fail: " in screen
    numbers = [
        *re.finditer(r"(?<=[|r] )\d+(?= of \d+[ ,;])|\d+(?= undecided)|\d+(?=\.\d % of Bin1)|\d+(?= runs\))", screen)
    ]
    numbers += [*re.finditer(r"\d+(?= of (?:5|10) \|)", page.partition("## The published protocol")[0])]
    assert len(numbers) > 30
    for number in numbers[:: 40 if whole else 6]:
        changed = page[: number.start()] + str(int(number.group()) + 1) + page[number.end() :]
        assert script["differences"](known, changed), "a number that nobody compares"

    before = re.sub(r"<br>|\|", " ", page.partition("## Appendices")[0])
    assert len([word for word in before.split() if re.search(r"\w", word)]) <= 1500


@pytest.mark.skipif(not (RESULTS / f"{STUDY.name}.jsonl.xz").exists(), reason="no record of this study ships yet")
def test_the_committed_first_screen_follows_from_the_shipped_records():
    script = runpy.run_path(str(SCRIPT))
    assert script["differences"](script["Records"](script["RECORDS"]), script["PAGE"].read_text()) == []
