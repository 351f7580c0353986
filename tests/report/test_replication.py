"""The page of a replication: every number before its appendices is recomputed from plain records by other code."""

from __future__ import annotations

import csv
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import summarize
from assay.description import BadInput
from assay.record import OtherState, Point, ProbeScore, Probing, Record, Score, Verdict
from assay.report import replication_page, write_page
from assay.spec import RunSpec
from assay.studies import Study, study_named
from tests.report.recomputed import Table, tables

SOURCE = '''
"""Do gates count?"""

from assay.findings import Change, Comparison, Expectation, Finding, Replication
from assay.spec import run_spec

BINS = [{"name": f"Bin{i}", "low": 10 * i + 2, "high": 10 * i + 10} for i in range(3)]
STATES = ["best", "watched", "averaged"]


def runs(model, *tasks, rates=(1e-3, 3e-3, 1e-2), seeds=8, **training):
    return [
        run_spec(
            task, model, seed=seed, model_options={"width": 8},
            training={"lengths": [2, 10], "steps": 1000, "lr": lr, **training},
            testing={"bins": BINS, "states": STATES},
        )
        for task in tasks for lr in rates for seed in range(seeds)
    ]


VARIANTS = {
    "gru": runs("gru", "parity", "dyck-1"),
    "elman": runs("elman", "parity", "dyck-1"),
    "lstm": runs("lstm", "parity"),
    "gru, long": runs("gru", "parity", rates=(1e-3,), seeds=5, steps=2000),
}
PIECES = VARIANTS
COMPARISONS = [
    Comparison("All", "As published.", ("gru", "elman", "lstm")),
    Comparison("Longer", "Twice.", ("gru, long",)),
]


def expect(outcome, variant, *tasks):
    return tuple(Expectation(task=task, variant=variant, outcome=outcome) for task in tasks)


FINDINGS = [
    Finding(
        name="gates", says="A GRU counts.", quote="Gates count.", source="p. 1",
        expects=expect("learns", "gru", "parity", "dyck-1"),
    ),
    Finding(
        name="no gates", says="An Elman network does not.", quote="Others do not.", source="p. 2",
        expects=expect("fails", "elman", "parity", "dyck-1"),
    ),
    Finding(name="more gates", says="An LSTM counts.", source="baseline", expects=expect("learns", "lstm", "parity")),
]
REPLICATION = Replication(
    {"gru": ("gru", "gru, long")},
    (
        Change("last", "at the end"),
        Change("best", "by validation", state="best"),
        Change("watched", "by Bin1", state="watched"),
        Change("long", "twice as long", ", long", "watched"),
    ),
    (("gru", "parity"), ("gru", "dyck-1"), ("elman", "parity")),
    (("steps", "2,000", "1,000"),),
)
'''
MODELS = {"gru": "GRU", "elman": "Elman network", "lstm": "LSTM"}
TASKS = {"parity": "parity", "dyck-1": "Dyck-1"}
Plain = dict[str, Any]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    path = tmp_path_factory.mktemp("study") / "gates.py"
    path.write_text(SOURCE)
    return study_named(str(path))


def made_up(run: RunSpec) -> Record:
    """Consistent, the same at every call, and good enough that every verdict occurs."""
    chance = random.Random(f"{run.task.kind} {run.model.name} {run.training.lr} {run.seed} {run.training.steps}")
    skill = {"gru": 0.6, "lstm": 1.1, "elman": 0.5}[run.model.name] + (run.task.kind == "dyck-1") * 0.33

    def scores(bonus: float) -> tuple[Score, ...]:
        shares = (min(1.0, max(0.0, skill + bonus + chance.gauss(0.2 - 0.1 * i, 0.08))) for i in range(3))
        return tuple(
            Score(bin=f"Bin{i}", rows=64, shared=0, sequences=round(s, 2), answers=1, favourite=0.5, lengths=())
            for i, s in enumerate(shares)
        )

    def verdict(tested: tuple[Score, ...]) -> tuple[Verdict, Probing | None]:
        right = [score.sequences == 1 for score in tested]
        if not right[0]:
            return "censored", None
        wrong = chance.random() < 0.4
        probe = ProbeScore(name="runs", rows=4, wrong=int(wrong), length=7 if wrong else None, word="( )^3 (" * wrong)
        found = "refuted" if wrong else "solved"
        return found if all(right) else "partly solved", Probing(probes=1, scores=(probe,), seconds=0.1)  # type: ignore[return-value]

    states = []
    for name, bonus in (("best", 0.05), ("watched", 0.1), ("averaged", 0.06)):
        found = scores(bonus)
        outcome, probing = verdict(found)
        perfect = 400 if name == "watched" and found[0].sequences == found[1].sequences == 1 else None
        states.append(
            OtherState(name=name, step=400, verdict=outcome, scores=found, first_perfect=perfect, probing=probing)
        )
    own, diverged = scores(0), chance.random() < 0.1
    outcome, probing = verdict(own)
    values = [round(chance.random(), 2) for _ in range(4)]
    return Record(
        digest=run.digest,
        spec=run.plain(),
        verdict="diverged" if diverged else outcome,
        stopped="diverged" if diverged else "steps",
        scores=() if diverged else own,
        probing=None if diverged else probing,
        states=tuple(states[1:2] if diverged else states),
        curve=tuple(
            Point(step=i, loss=1, sequences={"Val0": v, "Val1": v / 2}, answers={}) for i, v in enumerate(values)
        ),
        parameters=chance.choice((100, 200)),
    )


@pytest.fixture(scope="module")
def records(study: Study) -> list[Record]:
    """All but one seed of the Elman network on Dyck-1."""
    unfinished = next(r for r in study.runs if (r.model.name, r.task.kind, r.seed) == ("elman", "dyck-1", 3))
    return [made_up(run) for run in study.runs if run.digest != unfinished.digest]


@pytest.fixture
def page(study: Study, records: list[Record], tmp_path: Path, undrawn: None) -> Path:
    write_page(StudyRecords(study, Path("store"), records), tmp_path)
    return tmp_path


# -- the same by other code --------------------------------------------------------------------------------------------


def percent(share: float) -> str:
    return "100" if share == 1 else f"{math.floor(share * 1000) / 10:.1f}"


def low_and_high(k: int, n: int) -> tuple[float, float]:
    """Wilson's interval as the roots of (p - k / n)^2 = z^2 p (1 - p) / n."""
    z2 = 1.959964**2
    a, b, c = 1 + z2 / n, -(2 * k / n + z2 / n), (k / n) ** 2
    root = math.sqrt(b * b - 4 * a * c)
    return (-b - root) / (2 * a), (-b + root) / (2 * a)


class Recomputed:
    """Everything from JSON data; runs are found by what their specs say."""

    def __init__(self, records: list[Record]) -> None:
        self.runs = [record.plain() for record in records]

    def of(self, model: str, task: str, steps: int | None = 1000) -> list[Plain]:
        return [
            run
            for run in self.runs
            if (run["spec"]["model"]["name"], run["spec"]["task"]["kind"]) == (model, task)
            and steps in (None, run["spec"]["training"]["steps"])
        ]

    def watched(self, model: str, task: str) -> list[Plain]:
        """The watched states of every configuration: for the GRU also those that were trained for longer."""
        runs = self.of(model, task, None if model == "gru" else 1000)
        return [
            state | {"size": run["parameters"]} for run in runs for state in run["states"] if state["name"] == "watched"
        ]

    def best(self, model: str, task: str) -> Plain:
        return max(self.watched(model, task), key=lambda s: (shares(s)[0] + shares(s)[1], -s["size"]))

    def perfect(self, model: str, task: str) -> int:
        return sum(shares(state)[:2] == [1, 1] for state in self.watched(model, task))

    def seeds(self, model: str, task: str, steps: int = 1000, expected: int = 24) -> list[Plain]:
        """The seeds at the rate with the best validation; none until all runs are there."""
        runs = self.of(model, task, steps)
        if len(runs) < expected:
            return []
        by_rate: dict[float, list[Plain]] = {}
        for run in runs:
            by_rate.setdefault(run["spec"]["training"]["lr"], []).append(run)

        def validation(rate: float) -> tuple[float, float, float]:
            curves = [[sum(p["sequences"].values()) / 2 for p in run["curve"]] for run in by_rate[rate]]
            return mean(max(curve) for curve in curves), mean(mean(curve) for curve in curves), -rate

        return by_rate[max(by_rate, key=validation)]


def shares(tested: Plain | None) -> list[float]:
    return [score["sequences"] for score in tested["scores"]] if tested else []


def state(run: Plain, name: str) -> Plain | None:
    return run if name == "last" else next((s for s in run["states"] if s["name"] == name), None)


def has_learned(tested: Plain | None, share: float = 0.95) -> bool:
    return bool(shares(tested)) and min(shares(tested)[:2]) >= share


def bin1(run: Plain, name: str, number: int = 1) -> float:
    return shares(state(run, name))[number] if shares(state(run, name)) else 0.0


def met(outcome: str, seeds: list[Plain]) -> bool | None:
    if not seeds:
        return None
    low, high = low_and_high(sum(has_learned(state(run, "best")) for run in seeds), len(seeds))
    return None if low <= 0.5 <= high else (low > 0.5) == (outcome == "learns")


def solved(run: Plain) -> bool:
    best = state(run, "best")
    return has_learned(best, 1.0) and best is not None and best["verdict"] == "solved"


def answer(records: list[Record]) -> Table:
    data = Recomputed(records)
    gru, elman = [data.seeds("gru", task) for task in TASKS], [data.seeds("elman", task) for task in TASKS]
    reliable = [[met("learns", seeds) for seeds in gru], [met("fails", seeds) for seeds in elman]]
    reached = [
        sum(data.perfect("gru", task) > 0 for task in TASKS),
        sum(data.perfect("elman", task) == 0 for task in TASKS),
    ]
    undecided = [
        sum(seeds != [] and value is None for seeds, value in zip(*pair, strict=True))
        for pair in zip((gru, elman), reliable, strict=True)
    ]
    extrapolates = sum(any(map(solved, seeds)) for seeds in gru)
    return [
        ["the paper", "reachable", "reliable", "extrapolates"],
        ["“Gates count.” (p. 1)", f"{reached[0]} of 2", counted(reliable[0], undecided[0], 0), f"{extrapolates} of 2"],
        ["“Others do not.” (p. 2)", f"{reached[1]} of 2", counted(reliable[1], undecided[1], 1), "not finished yet"],
    ]


def counted(values: list[bool | None], undecided: int, unfinished: int) -> str:
    parts = [f"{values.count(True)} of 2"]
    parts += [f"{undecided} undecided"] if undecided else []
    return ", ".join(parts + ([f"{unfinished} not finished yet"] if unfinished else []))


def cells(records: list[Record], show: Callable[[Recomputed, str, str], str]) -> Table:
    data, table = Recomputed(records), [["", *TASKS.values()]]
    for model, title in MODELS.items():
        table.append([title, *(show(data, model, task) if data.of(model, task) else "" for task in TASKS)])
    return table


def both(data: Recomputed, model: str, task: str) -> str:
    seeds, best = data.seeds(model, task), shares(data.best(model, task))
    lines = [f"{percent(best[0])}/{percent(best[1])}"]
    if seeds:
        lines.append("/".join(percent(mean(bin1(run, "best", number) for run in seeds)) for number in (0, 1)))
        lines.append(f"{sum(has_learned(state(run, 'best')) for run in seeds)} of {len(seeds)}")
    return "\n".join(lines)


def how_far(data: Recomputed, model: str, task: str) -> str:
    seeds = data.seeds(model, task)
    right = [run for run in seeds if has_learned(state(run, "best"), 1.0)]
    longer = [run for run in right if min(shares(state(run, "best"))) == 1]
    return f"{len(right)}/{len(longer)}/{sum(map(solved, longer))}" if seeds else ""


def changes(records: list[Record]) -> Table:
    data, rows, complete = Recomputed(records), [], []
    for model, task in (("gru", "parity"), ("gru", "dyck-1"), ("elman", "parity")):
        seeds, values = data.seeds(model, task), list[float | None]()
        values += [mean(bin1(run, name) for run in seeds) if seeds else None for name in ("last", "best", "watched")]
        long = data.seeds(model, task, 2000, 5) if (model, task) == ("gru", "parity") else []
        values.append(mean(bin1(run, "watched") for run in long) if long else None)
        values.append(shares(data.best(model, task))[1])
        title = {"gru": "the GRU", "elman": "the Elman network"}[model]
        rows.append([f"{title} on {TASKS[task]}", *("" if v is None else percent(v) for v in values)])
        complete += [[v for v in values if v is not None]] if None not in values else []
    means = [percent(mean(column)) for column in zip(*complete, strict=True)]
    header = ["Bin1 in %", "last", "best", "watched", "long", "best run"]
    return [header, *rows, [f"mean of {len(complete)}", *means]]


# -- tests -------------------------------------------------------------------------------------------------------------


def test_every_number_before_the_appendices_is_recomputed(page: Path, records: list[Record]):
    shown = tables(page)
    assert shown["Do the findings hold?"] == answer(records)
    assert shown["Bin0 and Bin1 by both rules"] == cells(records, both)
    assert shown["Which difference explains it?"] == changes(records)
    assert shown["How far is right?"] == cells(records, how_far)
    before = (page / "index.md").read_text().partition("## Appendices")[0]
    assert re.findall(r"^## (.*)", before, re.M) == [
        "Do the findings hold?",
        "Bin0 and Bin1 by both rules",
        "Which difference explains it?",
        "The published protocol and ours",
        "How far is right?",
    ], "a table that nobody recomputes"


def test_what_was_not_reached_is_named_with_the_best_that_was(page: Path, records: list[Record]):
    data, text = Recomputed(records), (page / "index.md").read_text()
    missed = [task for task in TASKS if not data.perfect("gru", task)]
    surprising = [task for task in TASKS if data.perfect("elman", task)]
    assert missed, "the made-up records show no such case"
    assert surprising
    for task in missed:
        assert f"{TASKS[task]} ({percent(shares(data.best('gru', task))[1])} % of Bin1)" in text
    for task in surprising:
        runs = len(data.watched("elman", task))
        assert f"{TASKS[task]} (in {data.perfect('elman', task)} of {runs} runs)" in text


def test_the_file_beside_the_page_has_every_cell(page: Path, records: list[Record]):
    data, rows = Recomputed(records), list(csv.DictReader((page / "verdicts.csv").open()))
    assert len(rows) == 6
    for row in rows[:5]:
        model, task = row["variant"], row["task"]
        assert int(row["perfect"]) == data.perfect(model, task)
        assert int(row["runs watched"]) == len(data.watched(model, task))
        seeds = data.seeds(model, task)
        for name in ("best", "last"):
            for share in (0.9, 0.95, 0.99, 1.0):
                count = sum(has_learned(state(run, name), share) for run in seeds)
                assert row[f"{name} {100 * share:.0f} %"] == (str(count) if seeds else "")


def test_a_study_without_comparisons_says_what_is_missing(study: Study, records: list[Record]):
    with pytest.raises(BadInput, match="needs REPLICATION and COMPARISONS"):
        replication_page.render(summarize(replace(study, replication=None)), records, 0)
