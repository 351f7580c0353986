"""Charts of records, drawn offline as SVG and PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt

from assay.report.tables import Cell

FONT = "Helvetica, Arial, sans-serif"
SCALE = alt.Scale(domain=[0, 1], scheme="blues")


def solved(of: Sequence[Cell]) -> alt.TopLevelMixin:
    """Tasks across, models down: in how many seeds was it solved?"""
    rows = [
        {
            "task": cell.task,
            "model": cell.label,
            "share": len(cell.solved) / len(cell.records),
            "text": f"{len(cell.solved)} of {len(cell.records)}",
        }
        for cell in of
    ]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        alt.X("task:N", sort=None, title=None, axis=alt.Axis(orient="top", labelAngle=0)),
        alt.Y("model:N", sort=None, title=None),
    )
    squares = base.mark_rect(stroke="white", strokeWidth=2).encode(
        alt.Color("share:Q", scale=SCALE, legend=None),
    )
    words = base.mark_text(fontSize=13).encode(
        alt.Text("text:N"), color=alt.condition("datum.share > 0.5", alt.value("white"), alt.value("#333"))
    )
    title = "Seeds that solve the task at every tested length"
    return dressed((squares + words).properties(width=alt.Step(110), height=alt.Step(34), title=title))


def by_length(of: Sequence[Cell]) -> alt.TopLevelMixin | None:
    """One strip per model and task: the share of right sequences at every tested length; nothing if none was tested."""
    panels = []
    for task in dict.fromkeys(cell.task for cell in of):
        mine = [cell for cell in of if cell.task == task]
        longest = mine[0].records[0].spec["training"]["lengths"][1]
        order = [cell.label for cell in mine]
        rows = [row for cell in mine for row in _strip(cell)]
        if not rows:
            continue
        lengths = sorted({int(row["length"]) for row in rows})
        beyond = next((length for length in lengths if length > longest), None)
        strips = (
            alt.Chart(alt.InlineData(values=rows))
            .mark_rect()
            .encode(
                alt.X(
                    "length:O",
                    sort=lengths,
                    title=f"length (trained to {longest})",
                    axis=alt.Axis(labelAngle=0, labelOverlap="greedy", values=_ticks(lengths)),
                ),
                alt.Y("model:N", sort=order, title=None),
                alt.Color(
                    "accuracy:Q",
                    scale=SCALE,
                    title="right sequences",
                    legend=alt.Legend(format="%", orient="bottom", direction="horizontal"),
                ),
            )
        )
        layers = [strips]
        if beyond is not None:
            edge = alt.Chart(alt.InlineData(values=[{"length": beyond}])).mark_rule(color="#d62728", strokeWidth=2)
            layers.append(edge.encode(alt.X("length:O", sort=lengths, bandPosition=0)))
        panels.append(alt.layer(*layers).properties(width=300, height=alt.Step(20), title=task))
    if not panels:
        return None
    return dressed(alt.concat(*panels, columns=2).resolve_scale(x="independent", y="independent"))


def _strip(cell: Cell) -> list[dict[str, Any]]:
    """The share of right sequences of one length, over all bins that hold it and all seeds; a divergence is 0."""
    right: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for record in cell.finished:
        for score in (score for score in record.scores if not score.probe):
            for row in score.lengths:
                right[row.length] += round(row.rows * row.sequences)
                rows[row.length] += row.rows
    tested = sum(bool(record.scores) for record in cell.finished)
    return [
        {"model": cell.label, "length": n, "accuracy": right[n] / rows[n] * tested / len(cell.finished)}
        for n in sorted(rows)
    ]


def _ticks(lengths: list[int]) -> list[int]:
    """A few lengths to name."""
    every = max(1, len(lengths) // 8)
    return sorted({*lengths[::every], lengths[-1]})


def dressed(chart: Any) -> alt.TopLevelMixin:
    dressed: alt.TopLevelMixin = (
        chart.configure(font=FONT, background="white", padding={"left": 30, "top": 5, "right": 15, "bottom": 5})
        .configure_view(stroke=None)
        .configure_axis(grid=False, domain=False, ticks=False, labelFontSize=12, labelLimit=220)
        .configure_title(fontSize=14, anchor="start", offset=10)
    )
    return dressed


def draw(chart: alt.TopLevelMixin) -> tuple[str, bytes]:
    """A chart as SVG text and as PNG bytes."""
    import vl_convert

    spec = chart.to_json()
    return vl_convert.vegalite_to_svg(spec), vl_convert.vegalite_to_png(spec, scale=2)
