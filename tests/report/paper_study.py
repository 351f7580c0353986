"""A small study with variants, comparisons, findings and pieces, and made-up records of it."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assay.analysis.subjects import StudyRecords
from assay.record import LengthScore, Point, Record, Score, Verdict
from assay.report import write_page
from assay.spec import RunSpec
from assay.studies import Study, study_named

SOURCE = '''
"""Which of two & a half learn?"""

from assay.findings import Comparison, Expectation, Finding
from assay.spec import run_spec

BINS = [{"name": f"Bin{i}", "low": 10 * i + 2, "high": 10 * i + 10} for i in range(3)]


def runs(model, *tasks, steps=1000, **options):
    training = {"lengths": [2, 10], "steps": steps}
    return [
        run_spec(
            task, model, seed=seed, model_options={"width": 8, **options},
            training=training | {"lr": lr}, testing={"bins": BINS},
        )
        for task in tasks
        for lr in (1e-3, 1e-2)
        for seed in range(4)
    ]


VARIANTS = {
    "gru": runs("gru", "parity", "dyck-1"),
    "elman": runs("elman", "parity", "dyck-1", steps=2000),
    "gru_2, deep": runs("gru", "parity", layers=3),
}
PIECES = {"whole": VARIANTS["gru"] + VARIANTS["elman"], "deep": VARIANTS["gru_2, deep"]}
RUNS = [run for piece in PIECES.values() for run in piece]
COMPARISONS = [
    Comparison("The first", "As published.", ("gru", "elman")),
    Comparison("Depth", "One or three.", ("gru", "gru_2, deep")),
    Comparison("One task", "Of two.", ("elman", "gru"), ("dyck-1",)),
]


def expect(outcome, variant, *tasks):
    return tuple(Expectation(task=task, variant=variant, outcome=outcome) for task in tasks)


FINDINGS = [
    Finding(
        name="gates", says="A GRU learns.", source="p. 1", differs="Ours <are> other gates.",
        expects=expect("learns", "gru", "parity", "dyck-1"),
    ),
    Finding(name="no gates", says="Without, not.", source="p. 2", expects=expect("fails", "elman", "parity", "dyck-1")),
    Finding(
        name="blows up", says="It does.", source="p. 3", differs="It is calm.",
        expects=expect("diverges", "gru", "parity"),
    ),
    Finding(
        name="one answer", says="All the same.", source="p. 4", differs="It is not.",
        expects=expect("collapses", "gru", "parity", "dyck-1"),
    ),
    Finding(
        name="everywhere", says="On all tasks.", source="by us", asked_here=True, expects=expect("diverges", "gru", ""),
    ),
    Finding(name="elsewhere", says="So too this.", source="p. 6", expects=expect("collapses", "elman", "")),
]
'''

ENDS: tuple[Verdict, ...] = ("solved", "partly solved", "partly solved", "collapsed", "censored", "diverged")
DRAW = 70  # one that shows every case
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def load_study(folder: Path) -> Study:
    path = folder / "mine.py"
    path.write_text(SOURCE)
    return replace(study_named(str(path)), name="mine.py")


def page(study: Study, records: list[Record], folder: Path) -> Path:
    """The page of these records, in a folder."""
    write_page(StudyRecords(study, Path("store"), records), folder)
    return folder


def failed(record: Record) -> Record:
    return record.model_copy(
        update={"verdict": "failed", "stopped": "error", "scores": (), "error": "RuntimeError: <b>no luck</b>"}
    )


def made_up(run: RunSpec) -> Record:
    """A record in which everything is consistent, and the same at every call."""
    layers = len(run.plain()["model"]["mixers"])
    named = f"{run.task.kind} {run.model.name} {layers} {run.training.lr} {run.seed}"
    chance = random.Random(f"{named} {DRAW}")
    end = chance.choice(ENDS)
    right = {"solved": 3, "partly solved": chance.choice((1, 2))}.get(end, 0)
    scores = () if end == "diverged" else tuple(_score(i, i < right, chance) for i in range(3))
    steps = 100 * chance.randint(4, 10)
    validated = right > 0 and chance.random() < 0.8  # not all that is right when tested was right before
    curve = () if end == "diverged" and chance.random() < 0.3 else _curve(steps, validated, chance)
    started = BEGAN + timedelta(seconds=chance.randint(0, 7200))
    return Record(
        digest=run.digest,
        spec=run.plain(),
        verdict=end,
        stopped="diverged" if end == "diverged" else "solved" if validated else "steps",
        steps=steps,
        tested_at=random.Random(named).choice([None, *(point.step for point in curve)]) if not validated else None,
        solved_at=steps - 200 if validated else None,
        first_failing_length=min((s.lengths[0].length for s in scores if s.sequences < 1), default=None),
        scores=scores,
        curve=curve,
        seconds={"train": chance.randint(1, 90), "test": 0.5},
        started=started.isoformat(),
        ended=(started + timedelta(seconds=chance.randint(20, 200))).isoformat(),
        parameters=chance.choice((100, 200)),
        state_floats=8,
        commit=chance.choice(("aaaa", "bbbb")),
        versions={"torch": "2"},
        device="abacus",
    )


def _score(place: int, right: bool, chance: random.Random) -> Score:
    shares = [1.0 if right else chance.randint(0, 3) / 4 for _ in range(4)]
    if right and chance.random() < 0.3:
        shares[3] = 0.875  # learned, and not perfect
    rows = tuple(
        LengthScore(length=10 * place + 2 + 2 * i, rows=8, sequences=share, answers=share)
        for i, share in enumerate(shares)
    )
    mean = sum(shares) / 4
    return Score(bin=f"Bin{place}", rows=32, shared=0, sequences=mean, answers=mean, favourite=0.5, lengths=rows)


def _curve(steps: int, validated: bool, chance: random.Random) -> tuple[Point, ...]:
    """Validation that ends right at three checks was nearly right some checks before, at first in its shorter bin."""
    points, nearly = [], chance.randint(100, steps - 300)
    for step in range(100, steps + 1, 100):
        near, far = (chance.randint(0, 94) / 100 for _ in range(2))
        if validated:
            near = 1.0 if step > nearly - 100 else near
            far = 1.0 if step > steps - 300 else 0.96 if step > nearly else far
        shares = {"Val0": near, "Val1": far}
        points.append(Point(step=step, loss=round(chance.random() + 0.01, 3), sequences=shares, answers=shares))
    return tuple(points)
