"""Charts of variants side by side: over tasks, lengths and learning rates, and of what goes wrong in training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

import altair as alt

from assay.findings import learned_up_to
from assay.record import LengthScore, Record
from assay.report.figures import SCALE, dressed
from assay.report.grid import Grid, last_bin
from assay.report.tables import Cell, rates

# Okabe and Ito's colours, without the yellow that a white page swallows.
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#000000", "#CC79A7")
ENDS = {"not learned": "#999999", "collapsed": "#E69F00", "diverged": "#D55E00"}
STRETCHES = 3  # of each bin: a point for each length would be noise, and many thousands of them
LENGTHS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000]  # that axes name
LOSSES = [10.0**power for power in range(-6, 4)]
SMALL = 1e-6  # a loss below it is drawn as this: what is learned is learned
APART = 1.5  # pixels between lines that would hide one another
COLUMNS = 4
SPOTS = 20  # across a panel and up it: crosses in the same spot would hide each other

Rows = list[dict[str, Any]]


def table(grid: Grid, variants: Sequence[str], up_to: str) -> alt.TopLevelMixin:
    """Tasks across, variants down, twice: seeds that have learned up to a bin, and that are perfect up to the last."""
    tasks = grid.tasks(variants)
    near: Rows = []
    far: Rows = []
    for place in grid.of(variants):
        if cell := grid.chosen.get(place):
            near.append(_share(cell, cell.learned(up_to)))
            far.append(_share(cell, cell.right(last_bin(cell))))
    size = {"width": alt.Step(92), "height": alt.Step(27)}
    charts = [
        _map(rows, "task", tasks, variants).properties(title=title, **size)
        for rows, title in ((near, f"Learned up to {up_to}"), (far, "Perfect up to the longest lengths tested"))
    ]
    return dressed(alt.vconcat(*charts, spacing=25))


def _share(cell: Cell, some: Sequence[Record]) -> dict[str, Any]:
    count, seeds = len(some), len(cell.records)
    return {"task": cell.task, "model": cell.model, "share": count / seeds, "text": f"{count} of {seeds}"}


def by_rate(grid: Grid, variants: Sequence[str], up_to: str) -> alt.TopLevelMixin:
    """One panel per task: learning rates across, variants down."""
    tasks = grid.tasks(variants)
    cells = [grid.pooled[place] for place in grid.of(variants) if place in grid.pooled]
    across = rates(record for cell in cells for record in cell.records)
    panels = []
    for i, task in enumerate(tasks):
        rows = [row for cell in cells if cell.task == task for row in _rates(cell, up_to)]
        panel = _map(rows, "rate", across, variants, named=i % COLUMNS == 0, size=11)
        panels.append(panel.properties(title=task, width=alt.Step(48), height=alt.Step(22)))
    return dressed(alt.concat(*panels, columns=COLUMNS, spacing=20))


def _rates(cell: Cell, up_to: str) -> Rows:
    rows = []
    for lr in sorted({record.rate for record in cell.records}):
        mine = [record for record in cell.records if record.rate == lr]
        learned = sum(learned_up_to(record, up_to) for record in mine)
        text = f"{learned}/{len(mine)}"
        rows.append({"rate": f"{lr:g}", "model": cell.model, "share": learned / len(mine), "text": text})
    return rows


def _map(
    rows: Rows, across: str, columns: Sequence[str], variants: Sequence[str], named: bool = True, size: int = 13
) -> Any:
    """Squares with words; a place without a row stays blank."""
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        alt.X(
            f"{across}:N",
            scale=alt.Scale(domain=list(columns)),
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0),
        ),
        alt.Y(
            "model:N",
            scale=alt.Scale(domain=list(variants)),
            title=None,
            axis=alt.Axis(labels=named, labelPadding=6),
        ),
    )
    squares = base.mark_rect(stroke="white", strokeWidth=2).encode(alt.Color("share:Q", scale=SCALE, legend=None))
    words = base.mark_text(fontSize=size).encode(
        alt.Text("text:N"), color=alt.condition("datum.share > 0.5", alt.value("white"), alt.value("#333"))
    )
    return squares + words


def by_length(grid: Grid, variants: Sequence[str]) -> alt.TopLevelMixin | None:
    """One panel per task: a line per variant, the mean over the seeds of the chosen setting; seeds as dots."""
    panels: list[Any] = []
    for task in grid.tasks(variants):
        cells = [grid.chosen[variant, task] for variant in variants if (variant, task) in grid.chosen]
        if cells:
            panels.append(_lengths(cells, variants, named=len(panels) % COLUMNS == 0).properties(title=task))
    if not panels:
        return None
    return dressed(alt.concat(*panels, columns=COLUMNS, spacing={"row": 25, "column": 18}))


def _lengths(cells: Sequence[Cell], variants: Sequence[str], named: bool) -> Any:
    spec = cells[0].records[0].spec
    ends = [window[end] for window in spec["testing"]["bins"] for end in ("low", "high")]
    colour = _colour("model:N", variants, [COLOURS[i % len(COLOURS)] for i in range(len(variants))])
    x = alt.X(
        "length:Q",
        scale=alt.Scale(type="log", domain=[min(ends), max(ends)], nice=False),
        title="length",
        axis=alt.Axis(values=LENGTHS, format="~s", offset=8),
    )
    y = alt.Y(
        "accuracy:Q",
        scale=alt.Scale(domain=[0, 1]),
        title="right sequences" if named else None,
        axis=alt.Axis(format="%", values=[0, 0.5, 1], labels=named, grid=True, gridColor="#e8e8e8", offset=6),
    )
    size = alt.Size("seeds:Q", scale=alt.Scale(domain=[1, 10], range=[6, 30], clamp=True), legend=None)
    edge = alt.Chart(alt.InlineData(values=[{"length": spec["training"]["lengths"][1]}]))
    layers = [edge.mark_rule(strokeDash=[4, 3], color="#777").encode(x)]
    for cell in cells:
        apart = (variants.index(cell.model) - (len(variants) - 1) / 2) * APART
        lines, dots = _course(cell)
        seeds = alt.Chart(alt.InlineData(values=dots)).mark_circle(opacity=0.35, xOffset=apart, yOffset=apart)
        means = alt.Chart(alt.InlineData(values=lines)).mark_line(strokeWidth=1.8, yOffset=apart)
        layers += [seeds.encode(x, y, colour, size), means.encode(x, y, colour)]
    return alt.layer(*layers).properties(width=220, height=170)


def _colour(field: str, names: Sequence[str], colours: Sequence[str]) -> alt.Color:
    """One legend for all panels, above them."""
    legend = alt.Legend(
        orient="top",
        title=None,
        symbolType="stroke",
        symbolStrokeWidth=4,
        symbolOpacity=1,
        labelFontSize=13,
        labelLimit=300,
        columns=len(names),
    )
    return alt.Color(field, scale=alt.Scale(domain=list(names), range=list(colours)), legend=legend)


def _course(cell: Cell) -> tuple[Rows, Rows]:
    """The mean over seeds at each stretch of lengths, and the seeds; equal ones become one dot."""
    tested = next((record for record in cell.finished if record.scores), None)
    lines: Rows = []
    dots: Rows = []
    for low, high in _stretches(tested) if tested else ():
        shares = [_within(record, low, high) for record in cell.finished]
        at = {"model": cell.model, "length": round(math.sqrt(low * high), 1)}
        lines.append(at | {"accuracy": round(mean(shares), 4)})
        dots += [at | {"accuracy": share, "seeds": n} for share, n in sorted(Counter(shares).items())]
    return lines, dots


def _stretches(record: Record) -> list[tuple[int, int]]:
    """The tested lengths of every bin, cut into parts of like size: the ends of each."""
    ends = []
    for score in (score for score in record.scores if not score.probe and score.lengths):
        lengths = sorted(row.length for row in score.lengths)
        parts = min(STRETCHES, len(lengths))
        cuts = [len(lengths) * i // parts for i in range(parts + 1)]
        ends += [(lengths[a], lengths[b - 1]) for a, b in pairwise(cuts)]
    return sorted(set(ends))


def _within(record: Record, low: int, high: int) -> float:
    """The share of right sequences of these lengths; 0 for a run that was not tested, since it diverged."""
    rows: list[LengthScore] = [
        row for score in record.scores if not score.probe for row in score.lengths if low <= row.length <= high
    ]
    total = sum(row.rows for row in rows)
    return round(sum(row.rows * row.sequences for row in rows) / total, 4) if total else 0.0


def losses(cells: Iterable[Cell], up_to: str) -> alt.TopLevelMixin:
    """A row of panels per variant, one per learning rate: training losses of all seeds, and where they diverged."""
    rows = []
    for cell in cells:
        noted = [point.loss for record in cell.records for point in record.curve if _sound(point.loss)]
        span = max(SMALL, min(noted, default=0.1)), max(SMALL, *noted, 1.0)
        steps = max(record.steps for record in cell.records)
        panels = []
        for i, lr in enumerate(sorted({record.rate for record in cell.records})):
            mine = [record for record in cell.records if record.rate == lr]
            panel = _curves(mine, up_to, span, steps, named=i == 0)
            panels.append(panel.properties(title=alt.Title(f"lr={lr:g}", fontSize=12, fontWeight="normal", offset=4)))
        rows.append(alt.concat(*panels, columns=COLUMNS, spacing=18, title=f"{cell.model} on {cell.task}"))
    return dressed(alt.vconcat(*rows, spacing=25))


def _curves(records: Sequence[Record], up_to: str, span: tuple[float, float], steps: int, named: bool) -> Any:
    points: Rows = []
    for record in records:
        at = {"seed": record.seed, "end": _end(record, up_to)}
        known = [point for point in record.curve if _sound(point.loss)]
        points += [at | {"step": point.step, "loss": float(f"{point.loss:.4g}")} for point in known]
    colour = _colour("end:N", [_learned(up_to), *ENDS], [COLOURS[0], *ENDS.values()])
    x = alt.X(
        "step:Q",
        scale=alt.Scale(domain=[0, steps], nice=False),
        title="step",
        axis=alt.Axis(format="~s", tickCount=4, offset=4),
    )
    y = alt.Y(
        "loss:Q",
        scale=alt.Scale(type="log", domain=list(span), clamp=True),
        title="training loss" if named else None,
        axis=alt.Axis(
            values=[loss for loss in LOSSES if span[0] <= loss <= span[1]],
            format="~g",
            labels=named,
            grid=True,
            gridColor="#e8e8e8",
        ),
    )
    lines = alt.Chart(alt.InlineData(values=points)).mark_line(strokeWidth=0.9, opacity=0.8)
    crosses = alt.Chart(alt.InlineData(values=_crosses(records, span, steps)))
    marks = crosses.mark_point(shape="cross", angle=45, filled=True, size=80, opacity=1)
    words = crosses.mark_text(align="left", dx=5, dy=-9, fontSize=11)
    layers = (
        lines.encode(x, y, colour, alt.Detail("seed:N")),
        marks.encode(x, y, colour),
        words.encode(x, y, alt.Text("text:N")),
    )
    return alt.layer(*layers).properties(width=220, height=170)


def _crosses(records: Sequence[Record], span: tuple[float, float], steps: int) -> Rows:
    """Where runs diverged, at the last loss that was noted, else at the top; what would hide each other is one."""
    places: dict[tuple[int, int], list[tuple[int, float]]] = {}
    decades = math.log10(span[1] / span[0]) or 1.0
    for record in (record for record in records if record.verdict == "diverged"):
        noted = [point.loss for point in record.curve if _sound(point.loss)]
        loss = max(SMALL, noted[-1]) if noted else span[1]
        spot = round(record.steps / steps * SPOTS), round(math.log10(loss / span[0]) / decades * SPOTS)
        places.setdefault(spot, []).append((record.steps, float(f"{loss:.4g}")))
    return [
        {"step": here[0][0], "loss": here[0][1], "end": "diverged", "runs": len(here)}
        | {"text": f"x{len(here)}" if len(here) > 1 else ""}
        for here in map(sorted, places.values())
    ]


def _sound(loss: float) -> bool:
    """Whether a logarithmic axis can show it."""
    return math.isfinite(loss) and loss > 0


def _end(record: Record, up_to: str) -> str:
    if learned_up_to(record, up_to):
        return _learned(up_to)
    return record.verdict if record.verdict in ENDS else "not learned"


def _learned(up_to: str) -> str:
    return f"learned up to {up_to}"
