"""A small study with variants, comparisons, findings and pieces, and made-up records of it."""

from __future__ import annotations

import random
from pathlib import Path

from assay.record import LengthScore, Point, Record, Score
from assay.spec import RunSpec
from assay.studies import Study, study_named

SOURCE = '''
"""Which of two & a half learn?"""

from assay.findings import Comparison, Expectation, Finding
from assay.spec import run_spec

BINS = [{"name": f"Bin{i}", "low": 10 * i + 2, "high": 10 * i + 10} for i in range(3)]


def runs(model, *tasks, **options):
    return [
        run_spec(
            task, model, seed=seed, model_options={"width": 8, **options},
            training={"lengths": [2, 10], "steps": 1000, "lr": lr}, testing={"bins": BINS},
        )
        for task in tasks
        for lr in (1e-3, 1e-2)
        for seed in range(4)
    ]


VARIANTS = {
    "gru": runs("gru", "parity", "dyck-1"),
    "elman": runs("elman", "parity", "dyck-1"),
    "gru_2, deep": runs("gru", "parity", layers=3),
}
PIECES = {"whole": VARIANTS["gru"] + VARIANTS["elman"], "deep": VARIANTS["gru_2, deep"]}
RUNS = [run for piece in PIECES.values() for run in piece]
COMPARISONS = [
    Comparison("The first", "As published.", ("gru", "elman")),
    Comparison("Depth", "One or three.", ("gru", "gru_2, deep")),
]


def expect(outcome, variant, *tasks):
    return tuple(Expectation(task=task, variant=variant, outcome=outcome) for task in tasks)


FINDINGS = [
    Finding(name="gates", says="A GRU learns.", source="p. 1", expects=expect("learns", "gru", "parity", "dyck-1")),
    Finding(name="no gates", says="Without, not.", source="p. 2", expects=expect("fails", "elman", "parity", "dyck-1")),
    Finding(name="blows up", says="It does.", source="p. 3", expects=expect("diverges", "gru", "parity")),
]
'''

ENDS = ("solved", "partly solved", "partly solved", "collapsed", "censored", "diverged", "failed")


def study(folder: Path) -> Study:
    path = folder / "mine.py"
    path.write_text(SOURCE)
    return study_named(str(path))


def made_up(run: RunSpec) -> Record:
    """A record in which everything is consistent, and the same at every call."""
    chance = random.Random(f"{run.task.kind} {run.model.name} {len(run.model.mixers)} {run.training.lr} {run.seed}")
    end = chance.choice(ENDS)
    right = {"solved": 3, "partly solved": chance.choice((1, 2))}.get(end, 0)
    scores = () if end in ("diverged", "failed") else tuple(_score(i, i < right, chance) for i in range(3))
    steps = 100 * chance.randint(4, 10)
    curve = tuple(_point(step, right > 0, chance) for step in range(100, steps + 1, 100)) if end != "failed" else ()
    return Record(
        digest=run.digest,
        spec=run.plain(),
        verdict=end,
        stopped={"diverged": "diverged", "failed": "error"}.get(end, "solved" if right else "steps"),
        steps=steps,
        solved_at=steps - 200 if right else None,
        first_failing_length=min((s.lengths[0].length for s in scores if s.sequences < 1), default=None),
        scores=scores,
        curve=curve,
        error="RuntimeError: no luck" if end == "failed" else None,
        seconds={"train": chance.randint(1, 90), "test": 0.5},
        started=f"2026-01-01T00:{chance.randint(10, 29)}:{chance.randint(10, 59)}+00:00",
        ended=f"2026-01-01T00:{chance.randint(30, 40)}:{chance.randint(10, 59)}+00:00",
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


def _point(step: int, good: bool, chance: random.Random) -> Point:
    share = 1.0 if good else chance.randint(0, 99) / 100
    return Point(step=step, loss=round(chance.random() + 0.01, 3), sequences={"Val0": share}, answers={"Val0": share})
