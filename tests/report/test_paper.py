"""The page of a study that repeats a paper: every figure on it is recomputed from plain records by other code."""

from __future__ import annotations

import json
import math
import re
import runpy
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from assay.cli_records import about_study, report
from assay.description import BadInput
from assay.findings import Comparison
from assay.record import Record, Store
from assay.report import figures, paper_figures
from assay.report.grid import Grid
from assay.report.paper import headline
from assay.report.study import write
from assay.studies import Study
from tests.report.paper_study import made_up, study
from tests.report.recomputed import (
    BINS,
    Cells,
    Plain,
    accuracy,
    best_moment,
    csv_rows,
    evidence,
    in_percent,
    interval,
    learned,
    recomputed,
    right,
    share,
    tables,
    verdict,
)

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def records(asked: Study) -> list[Record]:
    """All but those of elman on dyck-1: what was not run."""
    return [made_up(run) for run in asked.runs if (run.model.name, run.task.kind) != ("elman", "dyck-1")]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "draw", lambda chart: ("<svg/>", b""))


def page(asked: Study, records: list[Record], folder: Path) -> Path:
    write(about_study("mine.py", asked), records, len(asked.runs) - len(records), folder)
    return folder


def test_every_table_is_recomputed_from_the_records(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    shown, expected = tables(page(asked, records, tmp_path)), recomputed(asked, records)
    assert list(shown) == list(expected), "a table that nobody recomputes, or out of order"
    for name, table in expected.items():
        assert shown[name] == table, name
    web = Cells()
    web.feed((tmp_path / "index.html").read_text())
    assert web.tables == list(shown.values()), "both pages say the same"


def test_the_made_up_records_show_every_case(asked: Study, records: list[Record]):
    said = json.dumps(recomputed(asked, records))
    for case in ("holds", "not tested", "not run", "diverged", "collapsed", "steps", "expected: ", "0 of 4"):
        assert case in said, case
    assert {record.verdict for record in records} == {
        "solved", "partly solved", "collapsed", "diverged", "censored", "failed",
    }  # fmt: skip


def test_in_short_counts_the_verdicts(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    text = (page(asked, records, tmp_path) / "index.md").read_text()
    short = text[text.index("## In short") : text.index("## What the paper found")]
    plain = Plain(asked, records)
    verdicts = Counter(verdict(plain, finding) for finding in asked.findings)
    said = {name.lower(): int(count) for name, count in re.findall(r"- ([A-Z][a-z ]+): (\d+) of 3 findings", short)}
    assert said == verdicts
    hours = sum(sum(run["seconds"].values()) for run in plain.all) / 3600
    assert f"- 32 of 40 runs, {hours:.1f} hours of work." in short


def test_every_column_of_the_files_is_recomputed(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    plain = Plain(asked, records)
    page(asked, records, tmp_path)
    rows = csv_rows(tmp_path / "cells.csv")
    assert len(rows) == sum(len(rates) for rates in plain.runs.values())
    for row in rows:
        lr = float(row["setting"].removeprefix("lr="))
        runs = plain.runs[row["variant"], row["task"]][lr]
        sizes = next((run for run in runs if run["verdict"] != "failed"), runs[0])
        wrong = [run["first_failing_length"] for run in runs if run["first_failing_length"]]
        taken = [run["solved_at"] or run["steps"] for run in learned(runs, "Bin1")]
        expected: dict[str, Any] = {"variant": row["variant"], "task": row["task"], "setting": row["setting"]}
        expected |= {"chosen": "yes" if lr == plain.rate(row["variant"], row["task"]) else "no", "seeds": len(runs)}
        for bin_ in BINS:
            k = len(learned(runs, bin_))
            low, high = interval(k, len(runs))
            expected |= {f"learned up to {bin_}": k, f"low {bin_}": low, f"high {bin_}": high}
            expected |= {f"perfect up to {bin_}": len(right(runs, bin_))}
            expected |= {f"accuracy {bin_}": accuracy(runs, bin_)}
        for end in ("solved", "partly solved", "collapsed", "diverged", "censored", "failed"):
            expected[end] = sum(run["verdict"] == end for run in runs)
        expected |= {"median steps to Bin1": median(taken) if taken else None}
        expected |= {"seconds": sum(run["seconds"]["train"] + run["seconds"]["test"] for run in runs)}
        expected |= {"first wrong length": min(wrong, default=None)}
        expected |= {"parameters": sizes["parameters"], "state floats": 8}
        assert list(row) == list(expected)
        for name, value in expected.items():
            assert same(row[name], value), (row["variant"], row["task"], name, row[name], value)

    stated = [(finding, expected) for finding in asked.findings for expected in finding.expects]
    for row, (finding, one) in zip(csv_rows(tmp_path / "findings.csv"), stated, strict=True):
        k, n, met, line = evidence(plain, one)
        assert (row["finding"], row["says"], row["source"]) == (finding.name, finding.says, finding.source)
        assert (row["variant"], row["task"], row["expected"]) == (one.variant, one.task, one.outcome)
        assert row["verdict"] == verdict(plain, finding)
        assert row["met"] == {"met": "yes", "not met": "no"}.get(met, "")
        assert (row["count"], row["runs"]) == (str(k) if n else "", str(n))
        assert row["setting"] == "".join(re.findall(r"lr=[\d.]+\d", line))
        for name, bound in zip(("low", "high"), interval(k, n) if n else (None, None), strict=True):
            assert same(row[name], bound)
        about_seeds = n and one.outcome in ("learns", "fails")
        assert same(row["best moment"], best_moment(plain, one.variant, one.task) if about_seeds else None)


def same(text: str, value: Any) -> bool:
    if value is None:
        return text == ""
    return text == value if isinstance(value, str) else float(text) == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_the_table_in_latex_says_the_same(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    plain = Plain(asked, records)
    text = (page(asked, records, tmp_path) / "table.tex").read_text()
    body = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert body[0] == " & parity & dyck-1 \\\\"
    places = [[(variant, task) for task in ("parity", "dyck-1")] for variant in ("gru", "elman")]
    for above, below, mine in zip(body[1::2], body[2::2], places, strict=True):
        means, seeds = (line.removesuffix(" \\\\").split(" & ")[1:] for line in (above, below))
        for said, numbers, place in zip(means, seeds, mine, strict=True):
            runs = plain.chosen(*place)
            assert said == (share(accuracy(runs, "Bin1")) if runs else "")
            k, n = len(learned(runs, "Bin1")), len(runs)
            brackets = in_percent(k, n).replace("-", "--") if runs else ""
            assert numbers == (f"{{\\footnotesize {k}/{n} ({brackets})}}" if runs else "")
    assert text.count("{") == text.count("}")
    packages = set(re.findall(r"\\([a-z]+)", text))
    assert packages <= {"begin", "end", "hline", "footnotesize"}, "no package is needed"


def test_names_are_escaped_in_latex(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    swapped = asked._replace(comparisons=[Comparison("50 % & more", "", ("gru_2, deep",))])
    text = (page(swapped, records, tmp_path) / "table.tex").read_text()
    assert "gru\\_2, deep & " in text
    assert all(line.startswith("%") for line in text.splitlines() if "50 %" in line)


@pytest.mark.parametrize("which", ["chosen", "not chosen", "another variant"])
def test_one_record_changes_what_depends_on_it_and_nothing_else(
    asked: Study, records: list[Record], tmp_path: Path, undrawn: None, which: str
):
    plain = Plain(asked, records)
    variant = "gru_2, deep" if which == "another variant" else "gru"
    best = plain.rate(variant, "parity")
    lr = best if which != "not chosen" else next(lr for lr in plain.runs[variant, "parity"] if lr != best)
    digest = next(run["digest"] for run in plain.runs[variant, "parity"][lr] if run["scores"])
    changed = [flipped(record) if record.digest == digest else record for record in records]
    before, after = (page(asked, some, tmp_path / name) for name, some in (("a", records), ("b", changed)))
    moved = {
        (name, row[0], table[0][i] if table[0][0] == "" else "")
        for name, table in tables(before).items()
        for row, other in zip(table, tables(after)[name], strict=True)
        for i in range(len(row))
        if row[i] != other[i]
    }
    expected = {("Depth", variant, "parity")} if which != "not chosen" else set()
    if variant == "gru":
        expected |= {("Robustness", "gru", "parity")}
    if which == "chosen":
        expected |= {("The first", "gru", "parity"), ("How far it carries", "gru", "parity")}
        expected |= {("What the paper found, and what is found here", "gates", "")}
    assert moved == expected
    rows = zip(csv_rows(before / "cells.csv"), csv_rows(after / "cells.csv"), strict=True)
    (only,) = [row for row, other in rows if row != other]
    assert (only["variant"], only["task"], only["setting"]) == (variant, "parity", f"lr={lr}")
    assert tables(after) == recomputed(asked, changed)


def flipped(record: Record) -> Record:
    """Wrong where it was right in every bin, right where it was not."""
    to = 0.0 if all(score.sequences == 1 for score in record.scores[:2]) else 1.0
    scores = tuple(score.model_copy(update={"sequences": to}) for score in record.scores)
    return record.model_copy(update={"scores": scores})


def test_a_variant_without_runs_has_empty_cells(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    mine = [record for record in records if record.model != "elman"]
    shown = tables(page(asked, mine, tmp_path))
    for name in ("The first", "How far it carries", "Robustness"):
        assert shown[name][2] == ["elman", "", ""], name
    assert "elman" not in (tmp_path / "cells.csv").read_text()
    assert [row["verdict"] for row in csv_rows(tmp_path / "findings.csv")][2:4] == ["not tested"] * 2
    assert headline(about_study("mine.py", asked), mine)[2] == ["elman", "", ""]


def test_what_is_under_way_looks_better_than_it_is_and_is_not_shown(
    asked: Study, records: list[Record], tmp_path: Path, undrawn: None
):
    mine = [record for record in records if (record.task, record.seed, record.model) != ("parity", 0, "elman")]
    shown = tables(page(asked, mine, tmp_path))
    assert shown["The first"][2] == ["elman", "", ""]
    assert "- elman on parity: not run in full" in shown["What the paper found, and what is found here"][2][-1]
    assert shown["What it took"][1][1] == "22 of 32"
    assert shown == recomputed(asked, mine)


def test_a_page_can_be_made_before_the_first_comparison_is_run(asked: Study, records: list[Record], tmp_path: Path):
    mine = [record for record in records if len(record.spec["model"]["mixers"]) == 3]
    shown = tables(page(asked, mine, tmp_path))
    assert shown == recomputed(asked, mine)
    assert shown["The first"][1:] == [["gru", "", ""], ["elman", "", ""]]
    assert not (tmp_path / "by-length.png").exists()


def test_the_headline_is_the_first_table_in_short(asked: Study, records: list[Record]):
    first = recomputed(asked, records)["The first"]
    short = [[(value.split("\n")[1:] or [value])[0].split(" (")[0] for value in row] for row in first]
    assert headline(about_study("mine.py", asked), records) == short


def test_the_readme_has_the_headline_once_records_ship(asked: Study, records: list[Record], tmp_path: Path):
    first_paper = runpy.run_path(str(ROOT / "scripts" / "update-readme"))["first_paper"]
    assert first_paper("irie2023", tmp_path / "nothing.jsonl.xz") == ""
    study(tmp_path)
    store = Store.create(tmp_path / "store")
    store.add(*records)
    store.pack(tmp_path / "mine.jsonl.xz")
    text = first_paper(str(tmp_path / "mine.py"), tmp_path / "mine.jsonl.xz")
    assert "32 runs" in text
    for row in headline(about_study("mine.py", asked), records):
        assert f"\n| {' | '.join(row)} |\n" in text


# -- charts --


def values(chart: Any) -> list[dict[str, Any]]:
    """All data of a chart."""
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_charts_show_what_the_records_say(asked: Study, records: list[Record]):
    plain, digests = Plain(asked, records), about_study("mine.py", asked).variants
    for variant, task in plain.runs:
        grid, rates = Grid({variant: {task: digests[variant][task]}}, records), plain.runs[variant, task]
        if not rates:
            continue
        runs = plain.chosen(variant, task)

        squares = [row["text"] for row in values(paper_figures.table(grid, (variant,), "Bin1"))]
        assert set(squares) == {f"{len(some)} of {len(runs)}" for some in (learned(runs, "Bin1"), right(runs, "Bin2"))}

        rated = {row["rate"]: row["text"] for row in values(paper_figures.by_rate(grid, (variant,), "Bin1"))}
        assert rated == {str(lr): f"{len(learned(mine, 'Bin1'))}/{len(mine)}" for lr, mine in rates.items()}

        drawn = [row for row in values(paper_figures.by_length(grid, (variant,))) if "accuracy" in row]
        means = {row["length"]: row["accuracy"] for row in drawn if "seeds" not in row}
        dots = {(row["length"], row["accuracy"]): row["seeds"] for row in drawn if "seeds" in row}
        expected = course([run for run in runs if run["verdict"] != "failed"])
        assert means == {at: pytest.approx(mean(shares), abs=1e-4) for at, shares in expected.items()}
        assert dots == {(at, each): n for at, shares in expected.items() for each, n in Counter(shares).items()}

        losses = values(paper_figures.losses([grid.pooled[variant, task]], "Bin1"))
        noted = Counter((p["step"], f"{p['loss']:.3g}") for run in plain.pooled(variant, task) for p in run["curve"])
        crosses = Counter(
            (run["steps"], f"{run['curve'][-1]['loss']:.3g}")
            for run in plain.pooled(variant, task)
            if run["verdict"] == "diverged"
        )
        assert Counter((row["step"], f"{row['loss']:.3g}") for row in losses) == noted + crosses


def course(runs: list[dict[str, Any]]) -> dict[float, list[float]]:
    """The four lengths of a bin fall into stretches of one, one and two: their middles, and the shares of the runs."""
    found: dict[float, list[float]] = {}
    for low in (2, 12, 22):
        for some in ((low,), (low + 2,), (low + 4, low + 6)):
            shares = []
            for run in runs:
                rows = [row for score in run["scores"] for row in score["lengths"] if row["length"] in some]
                shares.append(mean(row["sequences"] for row in rows) if rows else 0.0)
            found[round(math.sqrt(some[0] * some[-1]), 1)] = shares
    return found


def test_pages_are_whole_and_the_same_for_the_same_records(asked: Study, records: list[Record], tmp_path: Path):
    one, two = page(asked, records, tmp_path / "a"), page(asked, records[::-1], tmp_path / "b")
    names = sorted(path.name for path in one.iterdir())
    assert {"index.html", "index.md", "cells.csv", "findings.csv", "table.tex"} <= set(names)
    assert names == sorted(path.name for path in two.iterdir())
    for name in names:
        mine, other = ((folder / name).read_bytes().split(b"\n") for folder in (one, two))
        if name.startswith("index"):  # which lists errors in the order in which they come
            mine, other = sorted(mine), sorted(other)
        assert mine == other, name
    assert tables(one) == tables(two)
    web = (one / "index.html").read_text()
    assert web.count("<svg") == 4
    assert not re.search(r'(src|href)="?http', web), "nothing is fetched from elsewhere"


def test_where_nothing_diverged_the_page_says_so(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    calm = [r.model_copy(update={"verdict": "censored"}) if r.verdict == "diverged" else r for r in records]
    text = (page(asked, calm, tmp_path / "a") / "index.md").read_text()
    assert "None of the runs above diverged. Training loss" in text
    text = (page(asked._replace(findings=[]), calm, tmp_path / "b") / "index.md").read_text()
    assert "None of the runs above diverged.\n" in text
    assert "divergence.png" not in text


def test_a_comparison_of_what_is_no_variant(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    with pytest.raises(BadInput, match="'grue', which is no variant; did you mean 'gru'"):
        page(asked._replace(comparisons=[Comparison("", "", ("grue",))]), records, tmp_path)


def test_the_command_makes_the_page(asked: Study, records: list[Record], tmp_path: Path, undrawn: None):
    study(tmp_path)
    store = Store.create(tmp_path / "store")
    store.add(*records)
    report(str(tmp_path / "mine.py"), store=tmp_path / "store", out=tmp_path / "out")
    shown = tables(tmp_path / "out")
    assert shown["The first"] == recomputed(asked, records)["The first"]
    assert "8 runs of the study are not in the store yet" in (tmp_path / "out" / "index.md").read_text()
