"""Charts of variants side by side: over tasks, lengths and learning rates, and of training losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

from assay.analysis.cells import Cell, rates
from assay.analysis.cells import by_rate as by_learning_rate
from assay.analysis.grid import Grid
from assay.analysis.settings import learned_up_to
from assay.analysis.summary import StudySummary
from assay.record import LengthScore, Record
from assay.report.figures import Chart, Rows, channel, marks, seed_map, square, styled

# Okabe and Ito's colours, without the yellow, which is hard to see on white.
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#000000", "#CC79A7")
ENDS = {"not learned": "#999999", "collapsed": "#E69F00", "diverged": "#D55E00"}
RANGES = 3  # of lengths in each bin: a point for each length would be noise
LENGTHS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000]  # labels of the axes
LOSSES = [10.0**power for power in range(-6, 4)]
SMALL = 1e-6  # smaller losses are drawn as this one
APART = 1.5  # pixels between lines that would hide one another
COLUMNS = 4
PANEL = {"width": 220, "height": 170}
GRID = {"grid": True, "gridColor": "#e8e8e8"}
SPOTS = 20  # across a panel and up it: crosses in the same spot would hide each other


def table(grid: Grid, summary: StudySummary, up_to: str) -> Chart:
    """Tasks across, variants down, twice: seeds that have learned up to a bin, and that are perfect up to the last."""
    first = summary.comparisons[0]
    tasks = [summary.task(task) for task in grid.tasks(first)]
    cells = [grid.chosen[pair] for pair in grid.pairs(first) if pair in grid.chosen]
    near = [_square(cell, cell.learned(up_to), summary) for cell in cells]
    far = [_square(cell, cell.perfect(cell.longest_bin), summary) for cell in cells]
    size = {"width": {"step": 92}, "height": {"step": 27}}
    charts = [
        seed_map(rows, "task", tasks, first.variants, named=True, size=13) | size | {"title": title}
        for rows, title in ((near, f"Learned up to {up_to}"), (far, "Perfect up to the longest lengths tested"))
    ]
    return styled({"vconcat": charts, "spacing": 25})


def _square(cell: Cell, successes: Sequence[Record], summary: StudySummary) -> dict[str, Any]:
    count, seeds = len(successes), len(cell.records)
    return {"task": summary.task(cell.task), "model": cell.model, **square(count, seeds, f"{count} of {seeds}")}


def by_rate(grid: Grid, summary: StudySummary, up_to: str) -> Chart:
    """One panel per task: learning rates across, variants down."""
    first = summary.comparisons[0]
    cells = [grid.pooled[pair] for pair in grid.pairs(first) if pair in grid.pooled]
    across = rates(record for cell in cells for record in cell.records)
    panels = []
    for i, task in enumerate(grid.tasks(first)):
        rows = [row for cell in cells if cell.task == task for row in _rates(cell, up_to)]
        panel = seed_map(rows, "rate", across, first.variants, named=i % COLUMNS == 0, size=11)
        panels.append(panel | {"title": summary.task(task), "width": {"step": 48}, "height": {"step": 22}})
    return styled({"concat": panels, "columns": COLUMNS, "spacing": 20})


def _rates(cell: Cell, up_to: str) -> Rows:
    rows = []
    for lr, records in by_learning_rate(cell.records).items():
        learned, seeds = sum(learned_up_to(record, up_to) for record in records), len(records)
        rows.append({"rate": f"{lr:g}", "model": cell.model, **square(learned, seeds, f"{learned}/{seeds}")})
    return rows


def by_length(grid: Grid, summary: StudySummary) -> Chart | None:
    """One panel per task: a line per variant, the mean over the seeds of the chosen setting; seeds as dots."""
    first = summary.comparisons[0]
    panels: list[Chart] = []
    for task in grid.tasks(first):
        cells = [grid.chosen[variant, task] for variant in first.variants if (variant, task) in grid.chosen]
        if cells:
            panel = _lengths(cells, first.variants, named=len(panels) % COLUMNS == 0)
            panels.append(panel | {"title": summary.task(task)})
    if not panels:
        return None
    return styled({"concat": panels, "columns": COLUMNS, "spacing": {"row": 25, "column": 18}})


def _lengths(cells: Sequence[Cell], variants: Sequence[str], named: bool) -> Chart:
    spec = cells[0].records[0].spec
    ends = [bin_[end] for bin_ in spec["testing"]["bins"] for end in ("low", "high")]
    x = channel(
        "length:Q",
        scale={"type": "log", "domain": [min(ends), max(ends)], "nice": False},
        title="length",
        axis={"values": LENGTHS, "format": "~s", "offset": 8},
    )
    y = channel(
        "accuracy:Q",
        scale={"domain": [0, 1]},
        title="right sequences" if named else None,
        axis={"format": "%", "values": [0, 0.5, 1], "labels": named, **GRID, "offset": 6},
    )
    colour = _colour("model:N", variants, [COLOURS[i % len(COLOURS)] for i in range(len(variants))])
    encoding = {"x": x, "y": y, "color": colour}
    size = channel("seeds:Q", scale={"domain": [1, 10], "range": [6, 30], "clamp": True}, legend=None)
    longest = spec["training"]["lengths"][1]
    edge = {"x": x, "description": {"value": f"trained to length {longest}"}}
    layers = [marks([{"length": longest}], "rule", edge, strokeDash=[4, 3], color="#777")]
    for cell in cells:
        apart = (variants.index(cell.model) - (len(variants) - 1) / 2) * APART
        lines, dots = _means_and_seeds(cell)
        layers += [
            marks(dots, "circle", encoding | {"size": size}, opacity=0.35, xOffset=apart, yOffset=apart),
            marks(lines, "line", encoding, strokeWidth=1.8, yOffset=apart),
        ]
    return {"layer": layers, **PANEL}


def _colour(field: str, names: Sequence[str], colours: Sequence[str]) -> Chart:
    """One legend for all panels, above them."""
    legend = {
        "orient": "top",
        "title": None,
        "symbolType": "stroke",
        "symbolStrokeWidth": 4,
        "symbolOpacity": 1,
        "labelFontSize": 13,
        "labelLimit": 300,
        "columns": len(names),
    }
    return channel(field, scale={"domain": list(names), "range": list(colours)}, legend=legend)


def _means_and_seeds(cell: Cell) -> tuple[Rows, Rows]:
    """The mean over seeds in each range of lengths, and the seeds; equal seeds become one dot."""
    tested = next((record for record in cell.finished if record.scores), None)
    lines: Rows = []
    dots: Rows = []
    for low, high in _ranges(tested) if tested else ():
        shares = [_within(record, low, high) for record in cell.finished]
        middle = {"model": cell.model, "length": round(math.sqrt(low * high), 1)}
        lines.append(middle | {"accuracy": round(mean(shares), 4)})
        dots += [middle | {"accuracy": share, "seeds": n} for share, n in sorted(Counter(shares).items())]
    return lines, dots


def _ranges(record: Record) -> list[tuple[int, int]]:
    """The tested lengths of every bin, divided into ranges of similar size."""
    ends = []
    for score in (score for score in record.scores if not score.probe and score.lengths):
        lengths = sorted(row.length for row in score.lengths)
        parts = min(RANGES, len(lengths))
        cuts = [len(lengths) * i // parts for i in range(parts + 1)]
        ends += [(lengths[a], lengths[b - 1]) for a, b in pairwise(cuts)]
    return sorted(set(ends))


def _within(record: Record, low: int, high: int) -> float:
    """The share of right sequences of these lengths; 0 for a run that diverged and was not tested."""
    rows: list[LengthScore] = [
        row for score in record.scores if not score.probe for row in score.lengths if low <= row.length <= high
    ]
    total = sum(row.rows for row in rows)
    return round(sum(row.rows * row.sequences for row in rows) / total, 4) if total else 0.0


def losses(cells: Iterable[Cell], summary: StudySummary, up_to: str) -> Chart:
    """A row of panels per variant, one per learning rate: training losses of all seeds, and where they diverged."""
    rows = []
    for cell in cells:
        shown = [point.loss for record in cell.records for point in record.curve if _drawable(point.loss)]
        span = max(SMALL, min(shown, default=0.1)), max(SMALL, *shown, 1.0)
        steps = max(record.steps for record in cell.records)
        panels = []
        for i, (lr, records) in enumerate(by_learning_rate(cell.records).items()):
            panel = _curves(records, up_to, span, steps, named=i == 0)
            title = {"text": f"lr={lr:g}", "fontSize": 12, "fontWeight": "normal", "offset": 4}
            panels.append(panel | {"title": title})
        name = f"{cell.model} on {summary.task(cell.task)}"
        rows.append({"concat": panels, "columns": COLUMNS, "spacing": 18, "title": name})
    return styled({"vconcat": rows, "spacing": 25})


def _curves(records: Sequence[Record], up_to: str, span: tuple[float, float], steps: int, named: bool) -> Chart:
    points: Rows = []
    for record in records:
        end = _end(record, up_to)
        run = {"seed": record.seed, "end": end, "about": f"seed {record.seed}: {end}"}
        drawable = [point for point in record.curve if _drawable(point.loss)]
        points += [run | {"step": point.step, "loss": float(f"{point.loss:.4g}")} for point in drawable]
    colour = _colour("end:N", [_learned(up_to), *ENDS], [COLOURS[0], *ENDS.values()])
    x = channel(
        "step:Q",
        scale={"domain": [0, steps], "nice": False},
        title="step",
        axis={"format": "~s", "tickCount": 4, "offset": 4},
    )
    y = channel(
        "loss:Q",
        scale={"type": "log", "domain": list(span), "clamp": True},
        title="training loss" if named else None,
        axis={
            "values": [loss for loss in LOSSES if span[0] <= loss <= span[1]],
            "format": "~g",
            "labels": named,
            **GRID,
        },
    )
    place, crosses = {"x": x, "y": y}, _crosses(records, span, steps)
    lines = place | {"color": colour, "detail": channel("seed:N"), "description": channel("about:N")}
    text = place | {"text": channel("text:N")}
    layers = [
        marks(points, "line", lines, strokeWidth=0.9, opacity=0.8),
        marks(crosses, "point", place | {"color": colour}, shape="cross", angle=45, filled=True, size=80, opacity=1),
        marks(crosses, "text", text, align="left", dx=5, dy=-9, fontSize=11),
    ]
    return {"layer": layers, **PANEL}


def _crosses(records: Sequence[Record], span: tuple[float, float], steps: int) -> Rows:
    """Where runs diverged: at the last recorded loss, or else at the top. Crosses that overlap become one."""
    spots: dict[tuple[int, int], list[tuple[int, float]]] = {}
    decades = math.log10(span[1] / span[0]) or 1.0
    for record in (record for record in records if record.verdict == "diverged"):
        drawable = [point.loss for point in record.curve if _drawable(point.loss)]
        loss = max(SMALL, drawable[-1]) if drawable else span[1]
        spot = round(record.steps / steps * SPOTS), round(math.log10(loss / span[0]) / decades * SPOTS)
        spots.setdefault(spot, []).append((record.steps, float(f"{loss:.4g}")))
    return [
        {"step": runs[0][0], "loss": runs[0][1], "end": "diverged", "runs": len(runs)}
        | {"text": f"x{len(runs)}" if len(runs) > 1 else ""}
        for runs in map(sorted, spots.values())
    ]


def _drawable(loss: float) -> bool:
    """Whether a logarithmic axis can show this loss."""
    return math.isfinite(loss) and loss > 0


def _end(record: Record, up_to: str) -> str:
    if learned_up_to(record, up_to):
        return _learned(up_to)
    return record.verdict if record.verdict in ENDS else "not learned"


def _learned(up_to: str) -> str:
    return f"learned up to {up_to}"
