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
from assay.errors import BadInput
from assay.record import OtherState, Point, ProbeScore, Probing, Record, Score, Verdict
from assay.report import figures, replication_page, write_page
from assay.spec import RunSpec
from assay.studies import Study, study_named
from tests.report.recomputed import Table, tables

SOURCE = '''
"""Do gates count?"""

from assay.findings import Change, Choice, Comparison, Expectation, Finding, Replication
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
    "Gates, repeated",
    "gates",
    {"gru": ("gru", "gru, long")},
    (
        Change("last", "at the end"),
        Change("best", "by validation", state="best"),
        Change("watched", "by Bin1", state="watched"),
        Change("any rate", "the best run", state="watched", best_run=True),
        Change("long", "twice as long", ", long", "watched"),
        Change("elsewhere", "on other strings", state="watched", other_strings=True),
    ),
    (("gru", "parity"), ("gru", "dyck-1"), ("elman", "parity")),
    (
        Choice("state", "chosen by Bin1", "chosen by validation", ("best", "watched")),
        Choice("run", "the best", "all", ("watched", "any rate")),
        Choice("steps", "2,000", "1,000", ("watched", "long")),
        Choice("size", "not said", "8", see="Longer"),
        Choice("test set", "2,000", "64"),
    ),
    {name: f"What does the {name} do?" for name in VARIANTS},
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
            OtherState(
                name=name,
                step=400,
                verdict=outcome,
                scores=found,
                first_perfect=perfect,
                probing=probing,
                other_scores=scores(bonus - 0.1)[:2],
            )
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
        other_scores=() if diverged else scores(-0.1)[:2],
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
        return max(self.watched(model, task), key=lambda s: (mean(shares(s)[:2]), -s["size"], shares(s)[1]))

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


def met(outcome: str, seeds: list[Plain], share: float = 0.95) -> bool | None:
    if not seeds:
        return None
    low, high = low_and_high(sum(has_learned(state(run, "best"), share) for run in seeds), len(seeds))
    return None if low <= 0.5 <= high else (low > 0.5) == (outcome == "learns")


def right_everywhere(run: Plain) -> bool:
    return bool(shares(state(run, "best"))) and min(shares(state(run, "best"))) == 1


def solved(run: Plain) -> bool:
    best = state(run, "best")
    return has_learned(best, 1.0) and best is not None and best["verdict"] == "solved"


def answer(records: list[Record]) -> Table:
    data = Recomputed(records)
    gru, elman = [data.seeds("gru", task) for task in TASKS], [data.seeds("elman", task) for task in TASKS]
    reliable = [[met("learns", seeds) for seeds in gru], [met("fails", seeds) for seeds in elman]]
    reached: list[list[bool | None]] = [
        [data.perfect("gru", task) > 0 for task in TASKS],
        [False if data.perfect("elman", t) else True if runs else None for t, runs in zip(TASKS, elman, strict=True)],
    ]
    extrapolates: list[bool | None] = [any(map(solved, seeds)) for seeds in gru]
    return [
        ["finding", "reachable (published rule)", "reliable (our rule)", "extrapolates"],
        ["“Gates count.” (p. 1)", counted(reached[0]), counted(reliable[0], gru), counted(extrapolates)],
        ["“Others do not.” (p. 2)", counted(reached[1]), counted(reliable[1], elman), "-"],
    ]


def counted(values: list[bool | None], seeds: list[list[Plain]] | None = None) -> str:
    """Pairs of which nothing is known have not finished; with seeds, they are undecided."""
    undecided = sum(value is None and bool(seeds and seeds[i]) for i, value in enumerate(values))
    unfinished, right = values.count(None) - undecided, values.count(True)
    parts = [{0: "none of 2", 1: "1 of 2", 2: "all 2"}[right]]
    parts += [f"{undecided} undecided"] if undecided else []
    return ", ".join(parts + ([f"{unfinished} not finished yet"] if unfinished else []))


def cells(records: list[Record], show: Callable[[Recomputed, str, str], str]) -> Table:
    data, table = Recomputed(records), [["", *TASKS.values()]]
    for model, title in MODELS.items():
        table.append([title, *(show(data, model, task) if data.of(model, task) else "" for task in TASKS)])
    return table


def with_sizes(records: list[Record]) -> Table:
    data = Recomputed(records)
    header, *rows = cells(records, both)
    table = [["best run\nours, mean\nours, seeds", *header[1:], "parameters"]]
    for row, model in zip(rows, MODELS, strict=True):
        sizes = {run["parameters"] for task in TASKS if data.of(model, task) for run in data.seeds(model, task)}
        table.append([*row, "-".join(str(size) for size in sorted(sizes))])
    return table


def both(data: Recomputed, model: str, task: str) -> str:
    seeds, best, lines = data.seeds(model, task), shares(data.best(model, task)), list[str]()
    if seeds or data.perfect(model, task):
        lines.append(f"{percent(best[0])}/{percent(best[1])}")
    if seeds:
        lines.append("/".join(percent(mean(bin1(run, "best", number) for run in seeds)) for number in (0, 1)))
        lines.append(f"{sum(has_learned(state(run, 'best')) for run in seeds)} of {len(seeds)}")
    return "\n".join(lines)


def how_far(data: Recomputed, model: str, task: str) -> str:
    seeds = data.seeds(model, task)
    right = [run for run in seeds if has_learned(state(run, "best"), 1.0)]
    longer = [run for run in right if min(shares(state(run, "best"))) == 1]
    return f"{len(right)}/{len(longer)}/{sum(map(solved, longer))} of {len(seeds)}" if seeds else ""


PAIRS = (("gru", "parity"), ("gru", "dyck-1"), ("elman", "parity"))
COLUMNS = ("last", "best", "watched", "any rate", "long", "elsewhere")


def values_of_changes(records: list[Record]) -> list[list[float | None]]:
    """Bin1 of each contested pair by each change."""
    data, rows = Recomputed(records), list[list[float | None]]()
    for model, task in PAIRS:
        seeds, values = data.seeds(model, task), list[float | None]()
        values += [mean(bin1(run, name) for run in seeds) if seeds else None for name in ("last", "best", "watched")]
        states = [(shares(state(run, "watched")), run["parameters"]) for run in data.of(model, task)]
        values.append(max((mean(found[:2]), -size, found[1]) for found, size in states)[2])
        long = data.seeds(model, task, 2000, 5) if (model, task) == ("gru", "parity") else []
        values.append(mean(bin1(run, "watched") for run in long) if long else None)
        others = [(state(run, "watched") or {})["other_scores"] for run in seeds]
        values.append(mean(scores[1]["sequences"] for scores in others))
        rows.append(values)
    return rows


def changes(records: list[Record]) -> Table:
    data, values = Recomputed(records), values_of_changes(records)
    rows = []
    for (model, task), found in zip(PAIRS, values, strict=True):
        title = {"gru": "the GRU", "elman": "the Elman network"}[model]
        perfect, runs = data.perfect(model, task), len(data.watched(model, task))
        best = f"{percent(shares(data.best(model, task))[1])} ({perfect} of {runs})"
        rows.append([f"{title} on {TASKS[task]}", *("" if v is None else percent(v) for v in found), best])
    means = ["" if None in column else percent(mean(map(float, column))) for column in zip(*values, strict=True)]
    return [["Bin1 in %", *COLUMNS, "any run (perfect)"], *rows, ["mean", *means, ""]]


def protocol(records: list[Record]) -> Table:
    values = values_of_changes(records)

    def effect(before: str, after: str) -> str:
        pairs = [(row[COLUMNS.index(before)], row[COLUMNS.index(after)]) for row in values]
        known = [100 * (b - a) for a, b in pairs if a is not None and b is not None]
        return f"{mean(known):+.1f} points ({len(known)} pairs)"

    return [
        ["choice", "published code", "here", "effect on Bin1"],
        ["state", "chosen by Bin1", "chosen by validation", effect("best", "watched")],
        ["run", "the best", "all", effect("watched", "any rate")],
        ["steps", "2,000", "1,000", effect("watched", "long")],
        ["size", "not said", "8", "see Longer"],
        ["test set", "2,000", "64", "not varied"],
    ]


# -- tests -------------------------------------------------------------------------------------------------------------


def test_every_number_before_the_appendices_is_recomputed(page: Path, records: list[Record]):
    shown = tables(page)
    assert shown["Do the findings hold?"] == answer(records)
    assert shown["Bin0 and Bin1 by both rules"] == with_sizes(records)
    assert shown["From our rule to the published one"] == changes(records)
    assert shown["The published protocol, ours, and what each difference does"] == protocol(records)
    before = (page / "index.md").read_text().partition("## Appendices")[0]
    assert re.findall(r"^## (.*)", before, re.M) == [
        "Do the findings hold?",
        "Bin0 and Bin1 by both rules",
        "The published protocol, ours, and what each difference does",
        "From our rule to the published one",
    ], "a table that nobody recomputes"
    assert re.search(r"is that of the (state|run|steps) \(published: ", before)
    assert "in the mean of 1 of the 3 contested pairs below." in before, "longer training was tried on one"
    first = answer(records)[1]
    sentence = f"“Gates count.” (p. 1). By the published rule, this holds for {first[1]} (pairs of model and language)"
    assert f"{sentence}; by ours, it holds for {first[2]}. " in before
    assert f" Of 125 planned runs, {len(records)} have finished.\n" in before


def test_before_every_effect_is_known_no_difference_is_blamed(
    study: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    short = [record for record in records if record.spec["training"]["steps"] == 1000]
    write_page(StudyRecords(study, Path("store"), short), tmp_path)
    before = (tmp_path / "index.md").read_text().partition("## Do the findings hold?")[0]
    assert "Which difference between the two protocols explains this is not known yet. Of 125 planned runs," in before


def test_the_picture_shows_the_numbers_of_the_table(
    study: Study, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[Plain] = []
    monkeypatch.setattr(figures, "draw", lambda chart: (drawn.append(chart), ("<svg/>", b""))[1])
    write_page(StudyRecords(study, Path("store"), records), tmp_path)
    table = with_sizes(records)
    (picture,) = (chart for chart in drawn if "hconcat" in chart)
    shown = [
        {(row["model"], row["task"]): row["text"] for row in side["layer"][1]["data"]["values"]}
        for side in picture["hconcat"]
    ]
    expected: list[dict[tuple[str, str], str]] = [{}, {}]
    for model, *row, _ in table[1:]:
        for task, text in zip(TASKS.values(), row, strict=True):
            if text:
                expected[0][model, task] = text.split("\n")[0].split("/")[1]
            if text.count("\n") == 2:
                expected[1][model, task] = text.split("\n")[2]
    assert shown == expected


def test_appendices(page: Path, records: list[Record]):
    data, shown = Recomputed(records), tables(page)
    assert shown["How far do the seeds extrapolate?"] == cells(records, how_far)
    for language, by_chance, by_probes in shown["Do probes change the ranking?"][1:]:
        task = next(name for name, title in TASKS.items() if title == language)
        by_model = {title: data.seeds(m, task) for m, title in MODELS.items() if data.of(m, task)}
        finished = {title: seeds for title, seeds in by_model.items() if seeds}
        for text, right in ((by_chance, right_everywhere), (by_probes, solved)):
            counts = {title: sum(map(right, seeds)) for title, seeds in finished.items()}
            most = max(counts[title] / len(seeds) for title, seeds in finished.items())
            leading = [f"{title} ({counts[title]} of {len(s)})" for title, s in finished.items()
                       if most and counts[title] / len(s) == most]  # fmt: skip
            assert text == " and ".join(leading)
    for row in shown["Would another threshold change the verdicts?"][1:2]:
        gru = [data.seeds("gru", task) for task in TASKS]
        for share, text in zip((0.9, 0.95, 0.99, 1.0), row[1:], strict=True):
            assert text == counted([met("learns", seeds, share) for seeds in gru], gru)
    rates = {(row[0], row[1]): row[3] for row in shown["By our rule in detail"][1:]}
    for (language, model), rate in rates.items():
        kinds, names = ({title: key for key, title in titles.items()} for titles in (TASKS, MODELS))
        chosen = data.seeds(names[model], kinds[language])[0]["spec"]["training"]["lr"]
        assert rate == f"{chosen:g}" + (" !" if chosen in (1e-3, 1e-2) else ""), "an edge of the rates is marked"
    for row in shown["The best runs by the published rule"][1:]:
        (run,) = (run for run in data.runs if run["digest"] == row[-1])
        assert row[6] == "/".join(percent(share) for share in shares(state(run, "watched"))[:2])
        assert (row[2] == "long") == (run["spec"]["training"]["steps"] == 2000)
    for language, model, *texts in shown["Tested on the other strings"][1:]:
        steps, count = (2000, 5) if "long" in model else (1000, 24)
        task = next(name for name, title in TASKS.items() if title == language)
        name = next(name for name, title in MODELS.items() if title in model)
        seeds = data.seeds(name, task, steps, count)
        for text, (selected, kind) in zip(
            texts, [(s, k) for s in ("best", "watched") for k in ("scores", "other_scores")], strict=True
        ):
            tests = [(state(run, selected) or {}).get(kind, []) for run in seeds]
            assert text == "/".join(percent(mean(t[n]["sequences"] if t else 0 for t in tests)) for n in (0, 1))


def test_what_was_not_reached_is_named_with_the_best_that_was(page: Path, records: list[Record]):
    data, text = Recomputed(records), (page / "index.md").read_text()
    missed = [task for task in TASKS if not data.perfect("gru", task)]
    surprising = [task for task in TASKS if data.perfect("elman", task)]
    assert missed, "the made-up records show no such case"
    assert surprising
    for task in missed:
        best, runs = shares(data.best("gru", task))[1], len(data.watched("gru", task))
        assert f"{TASKS[task]} ({percent(best)} % of Bin1, best of {runs} runs)" in text
    for task in surprising:
        runs = len(data.watched("elman", task))
        assert f"{TASKS[task]} ({data.perfect('elman', task)} of {runs} runs)" in text


def test_the_file_beside_the_page_has_every_cell(page: Path, records: list[Record]):
    data, rows = Recomputed(records), list(csv.DictReader((page / "verdicts.csv").open()))
    assert len(rows) == 6
    for row in rows[:5]:
        model, task = row["variant"], row["task"]
        seeds = data.seeds(model, task)
        if seeds or data.perfect(model, task):
            assert int(row["perfect"]) == data.perfect(model, task)
            assert int(row["runs watched"]) == len(data.watched(model, task))
        else:
            assert row["perfect"] == row["runs watched"] == ""
        for name in ("best", "last"):
            for share in (0.9, 0.95, 0.99, 1.0):
                count = sum(has_learned(state(run, name), share) for run in seeds)
                assert row[f"{name} {100 * share:.0f} %"] == (str(count) if seeds else "")


def test_a_study_without_comparisons_says_what_is_missing(study: Study, records: list[Record]):
    with pytest.raises(BadInput, match="needs REPLICATION and COMPARISONS"):
        replication_page.render(summarize(replace(study, replication=None)), records, 0)
