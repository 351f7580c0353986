"""The charts of the page show what the records say."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from statistics import mean
from typing import Any

import pytest

from assay.analysis.cells import Cell
from assay.analysis.grid import Grid
from assay.analysis.summary import summarize
from assay.findings import Comparison
from assay.record import Record
from assay.report import paper_figures
from assay.studies import Study
from tests.report.recomputed import Plain, learned, right


def values(chart: Any) -> list[dict[str, Any]]:
    """All data of a chart; layers may share some."""
    return [row for rows in {id(rows): rows for rows in _data(chart)}.values() for row in rows]


def _data(chart: Any) -> list[list[dict[str, Any]]]:
    if isinstance(chart, dict):
        own = [chart["data"]["values"]] if "data" in chart else []
        return own + [rows for part in chart.values() for rows in _data(part)]
    return [rows for part in chart for rows in _data(part)] if isinstance(chart, list) else []


def test_charts_show_what_the_records_say(study: Study, records: list[Record]):
    plain, whole = Plain(study, records), summarize(study)
    for variant, task in plain.runs:
        grid, rates = Grid({variant: {task: whole.variants[variant][task]}}, records), plain.runs[variant, task]
        summary = replace(whole, comparisons=[Comparison("", "", (variant,))])
        if not rates:
            continue
        runs = plain.chosen(variant, task)

        squares = [row["text"] for row in values(paper_figures.table(grid, summary, "Bin1"))]
        assert set(squares) == {f"{len(some)} of {len(runs)}" for some in (learned(runs, "Bin1"), right(runs, "Bin2"))}

        rated = {row["rate"]: row["text"] for row in values(paper_figures.by_rate(grid, summary, "Bin1"))}
        assert rated == {str(lr): f"{len(learned(mine, 'Bin1'))}/{len(mine)}" for lr, mine in rates.items()}

        drawn = [row for row in values(paper_figures.by_length(grid, summary)) if "accuracy" in row]
        means = {row["length"]: row["accuracy"] for row in drawn if "seeds" not in row}
        dots = {(row["length"], row["accuracy"]): row["seeds"] for row in drawn if "seeds" in row}
        expected = course(runs)
        assert means == {at: pytest.approx(mean(shares), abs=1e-4) for at, shares in expected.items()}
        assert dots == {(at, each): n for at, shares in expected.items() for each, n in Counter(shares).items()}

        losses = values(paper_figures.losses([grid.pooled[variant, task]], summary, "Bin1"))
        drawn_losses = Counter((row["step"], f"{row['loss']:.3g}") for row in losses if "runs" not in row)
        pooled = plain.pooled(variant, task)
        assert drawn_losses == Counter((p["step"], f"{p['loss']:.3g}") for run in pooled for p in run["curve"])
        crossed = Counter(row["step"] for row in losses for _ in range(row.get("runs", 0)))
        assert crossed == Counter(run["steps"] for run in pooled if run["verdict"] == "diverged")


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


def test_runs_that_diverge_at_one_place_are_one_cross_with_their_number(study: Study, records: list[Record]):
    like = next(r for r in records if r.verdict == "diverged" and r.curve)
    noted = like.curve[0].model_copy(update={"loss": 0.5})
    ends = [(1000, 0.5), (1000, 0.5), (1004, 0.51), (200, 0.5), (1000, 0.001), (1000, math.nan), (1000, None)]
    runs = [
        like.model_copy(
            update={
                "steps": step,
                "curve": () if loss is None else (noted, noted.model_copy(update={"loss": loss})),
                "spec": like.spec | {"seed": seed},
            }
        )
        for seed, (step, loss) in enumerate(ends)
    ]
    rows = values(paper_figures.losses([Cell("parity", "gru", "", tuple(runs))], summarize(study), "Bin1"))
    crosses = [(row["step"], row["loss"], row["runs"], row["text"]) for row in rows if "runs" in row]
    assert sorted(crosses) == [
        (200, 0.5, 1, ""),
        (1000, 0.001, 1, ""),
        (1000, 0.5, 4, "x4"),
        (1000, 1.0, 1, ""),
    ], "a run without a noted loss is at the top"
