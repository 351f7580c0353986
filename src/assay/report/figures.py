"""Charts of records, drawn offline as SVG and PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
from altair.utils.schemapi import debug_mode

from assay.analysis.cells import Cell, wilson

FONT = "Helvetica, Arial, sans-serif"
SCALE = alt.Scale(domain=[0, 1], scheme="blues")
SHADING = (
    "The darker a square, the larger the lower end of the 95 % interval of its share of seeds: 1 of 1 is lighter than "
    "10 of 10."
)

Rows = list[dict[str, Any]]


def chart_of(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """A chart of these rows, unchecked and as a tuple: altair checks each row, and copies lists many times."""
    with debug_mode(False):
        return alt.Chart(alt.InlineData(values=tuple(rows)))


def square(count: int, seeds: int, text: str) -> dict[str, Any]:
    """The shade and the text of a square of `seed_map`: seeds that learned, of all seeds."""
    return {"shade": round(wilson(count, seeds)[0], 4), "text": text}


def seed_map(rows: Rows, across: str, columns: Sequence[str], models: Sequence[str], named: bool, size: int) -> Any:
    """Models down and another field across: squares with numbers of seeds; one without a row stays blank."""
    base = chart_of(rows).encode(
        alt.X(
            f"{across}:N",
            scale=alt.Scale(domain=list(columns)),
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0),
        ),
        alt.Y(
            "model:N",
            scale=alt.Scale(domain=list(models)),
            title=None,
            axis=alt.Axis(labels=named, labelPadding=6),
        ),
    )
    squares = base.mark_rect(stroke="white", strokeWidth=2).encode(alt.Color("shade:Q", scale=SCALE, legend=None))
    words = base.mark_text(fontSize=size).encode(
        alt.Text("text:N"), color=alt.condition("datum.shade > 0.45", alt.value("white"), alt.value("#333"))
    )
    return squares + words


def solved(cells: Sequence[Cell], titles: Mapping[str, str]) -> alt.TopLevelMixin:
    """Tasks across, models down: the number of seeds that solved the task."""
    rows = []
    for cell in cells:
        count, seeds = len(cell.solved), len(cell.records)
        task = titles.get(cell.task, cell.task)
        rows.append({"task": task, "model": cell.label, **square(count, seeds, f"{count} of {seeds}")})
    tasks, models = (list(dict.fromkeys(row[field] for row in rows)) for field in ("task", "model"))
    title = "Seeds that solve the task at every tested length"
    chart = seed_map(rows, "task", tasks, models, named=True, size=13)
    return styled(chart.properties(width=alt.Step(110), height=alt.Step(34), title=title))


def by_length(cells: Sequence[Cell], titles: Mapping[str, str]) -> alt.TopLevelMixin | None:
    """One strip per model and task: the share of right sequences at every tested length; None if none was tested."""
    tasks = dict.fromkeys(cell.task for cell in cells)
    panels = [_strips([cell for cell in cells if cell.task == task], titles.get(task, task)) for task in tasks]
    panels = [panel for panel in panels if panel is not None]
    if not panels:
        return None
    return styled(alt.concat(*panels, columns=2).resolve_scale(x="independent", y="independent"))


def _strips(cells: Sequence[Cell], title: str) -> Any:
    """The strips of one task, with a line where the lengths of training end."""
    longest = cells[0].records[0].spec["training"]["lengths"][1]
    rows = [row for cell in cells for row in _strip(cell)]
    if not rows:
        return None
    lengths = sorted({int(row["length"]) for row in rows})
    beyond = next((length for length in lengths if length > longest), None)
    x = alt.X(
        "length:O",
        sort=lengths,
        title=f"length (trained to {longest})",
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", values=_ticks(lengths)),
    )
    colour = alt.Color(
        "accuracy:Q",
        scale=SCALE,
        title="right sequences",
        legend=alt.Legend(format="%", orient="bottom", direction="horizontal"),
    )
    layers = [chart_of(rows).mark_rect().encode(x, alt.Y("model:N", sort=[c.label for c in cells], title=None), colour)]
    if beyond is not None:
        edge = chart_of([{"length": beyond}]).mark_rule(color="#d62728", strokeWidth=2)
        layers.append(edge.encode(alt.X("length:O", sort=lengths, bandPosition=0)))
    return alt.layer(*layers).properties(width=300, height=alt.Step(20), title=title)


def _strip(cell: Cell) -> Rows:
    """The share of right sequences of each length, over all its bins and all seeds; a run that diverged counts as 0."""
    right: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for record in cell.finished:
        for score in (score for score in record.scores if not score.probe):
            for row in score.lengths:
                right[row.length] += round(row.rows * row.sequences)
                total[row.length] += row.rows
    tested = sum(bool(record.scores) for record in cell.finished)
    return [
        {"model": cell.label, "length": n, "accuracy": right[n] / total[n] * tested / len(cell.finished)}
        for n in sorted(total)
    ]


def _ticks(lengths: list[int]) -> list[int]:
    """The lengths that the axis names."""
    every = max(1, len(lengths) // 8)
    return sorted({*lengths[::every], lengths[-1]})


def styled(chart: Any) -> alt.TopLevelMixin:
    """A chart in the style of all pages."""
    styled: alt.TopLevelMixin = chart.configure(  # in one call, since each copies the chart
        font=FONT,
        background="white",
        padding={"left": 30, "top": 5, "right": 15, "bottom": 5},
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(grid=False, domain=False, ticks=False, labelFontSize=12, labelLimit=220),
        title=alt.TitleConfig(fontSize=14, anchor="start", offset=10),
    )
    return styled


def draw(chart: alt.TopLevelMixin) -> tuple[str, bytes]:
    """A chart as SVG text and as PNG bytes."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart.to_json(validate=False))
    return svg, vl_convert.svg_to_png(svg, scale=2)
