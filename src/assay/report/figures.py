"""Charts of records, drawn offline as SVG and PNG.

A chart is Vega-Lite as plain data: libraries that build such data copy and check a chart at every step, which took
longer than drawing it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assay.analysis.cells import Cell, wilson
from assay.errors import BadInput

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.1.0.json"
FONT = "Helvetica, Arial, sans-serif"
TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}
SCALE = {"domain": [0, 1], "scheme": "blues"}
COLUMNS = 100  # of a strip: narrower ones are blurred
SHADING = (
    "The darker a square, the larger the lower end of the 95 % interval of its share of seeds: 1 of 1 is lighter than "
    "10 of 10."
)

Chart = dict[str, Any]  # in Vega-Lite
Rows = list[dict[str, Any]]


def channel(field: str, **options: Any) -> Chart:
    """A field of the data, with its type, for one channel of a chart.

    >>> channel("loss:Q", title="training loss")
    {'field': 'loss', 'type': 'quantitative', 'title': 'training loss'}
    """
    name, _, kind = field.partition(":")
    return {"field": name, "type": TYPES[kind], **options}


def marks(rows: Sequence[dict[str, Any]], kind: str, encoding: Chart, **options: Any) -> Chart:
    """A chart of one kind of marks, one for each row; their tooltips are the encoding's `description`, or all of it.

    Texts repeat what another mark tells, and have no tooltip. A line is described by its first point, so that its
    tooltip is only its name.
    """
    if kind == "text":
        options = {"aria": False} | options
    if kind == "line" and "color" in encoding:
        encoding = {"description": {key: encoding["color"][key] for key in ("field", "type")}} | encoding
    return {"data": {"values": rows}, "mark": {"type": kind, **options}, "encoding": encoding}


def square(count: int, seeds: int, text: str) -> dict[str, Any]:
    """The shade and the text of a square of `seed_map`: seeds that learned, of all seeds."""
    return {"shade": round(wilson(count, seeds)[0], 4), "text": text}


def seed_map(
    rows: Rows,
    across: str,
    columns: Sequence[str],
    models: Sequence[str],
    named: bool,
    size: int,
    wrapped: bool = False,
) -> Chart:
    """Models down and another field across: squares with numbers of seeds; one without a row stays blank.

    Wrapped names of columns have a line for each of their words.
    """
    lines = max(len(name.split()) for name in columns) if wrapped and columns else 1
    words = {"labelExpr": "split(datum.label, ' ')", "labelPadding": 14 * lines - 9} if lines > 1 else {}
    place = {
        "x": channel(
            f"{across}:N", scale={"domain": list(columns)}, title=None, axis={"orient": "top", "labelAngle": 0} | words
        ),
        "y": channel("model:N", scale={"domain": list(models)}, title=None, axis={"labels": named, "labelPadding": 6}),
    }
    rows = [row | {"about": f"{row['model']}, {row[across]}: {row['text']}"} for row in rows]
    shade = channel("shade:Q", scale=SCALE, legend=None)
    ink = {"condition": {"test": "datum.shade > 0.45", "value": "white"}, "value": "#333"}
    squares = marks(
        rows, "rect", place | {"color": shade, "description": channel("about:N")}, stroke="white", strokeWidth=2
    )
    texts = marks(rows, "text", place | {"text": channel("text:N"), "color": ink}, fontSize=size)
    return {"layer": [squares, texts]}


def solved(cells: Sequence[Cell], titles: Mapping[str, str]) -> Chart:
    """Tasks across, models down: the number of seeds that solved the task."""
    rows = []
    for cell in cells:
        count, seeds = len(cell.solved), len(cell.records)
        task = titles.get(cell.task, cell.task)
        rows.append({"task": task, "model": cell.label, **square(count, seeds, f"{count} of {seeds}")})
    tasks, models = (list(dict.fromkeys(row[field] for row in rows)) for field in ("task", "model"))
    title = "Seeds that solve the task at every tested length"
    chart = seed_map(rows, "task", tasks, models, named=True, size=13)
    return styled(chart | {"width": {"step": 110}, "height": {"step": 34}, "title": title})


def by_length(cells: Sequence[Cell], titles: Mapping[str, str]) -> Chart | None:
    """One strip per model and task: the share of right sequences at every tested length; None if none was tested."""
    tasks = dict.fromkeys(cell.task for cell in cells)
    panels = [_strips([cell for cell in cells if cell.task == task], titles.get(task, task)) for task in tasks]
    panels = [panel for panel in panels if panel is not None]
    if not panels:
        return None
    return styled({"concat": panels, "columns": 2, "resolve": {"scale": {"x": "independent", "y": "independent"}}})


def _strips(cells: Sequence[Cell], title: str) -> Chart | None:
    """The strips of one task, with a line where the lengths of training end."""
    longest = cells[0].records[0].spec["training"]["lengths"][1]
    columns = columns_of(cells, longest)
    rows = [row for cell in cells for row in strip(cell, columns)]
    if not rows:
        return None
    lengths = sorted(set(columns.values()))
    beyond = next((length for length in lengths if length > longest), None)
    encoding = {
        "x": channel(
            "length:O",
            sort=lengths,
            title=f"length (trained to {longest})",
            axis={"labelAngle": 0, "labelOverlap": "greedy", "values": _ticks(lengths)},
        ),
        "y": channel("model:N", sort=[cell.label for cell in cells], title=None),
        "color": channel(
            "accuracy:Q",
            scale=SCALE,
            title="right sequences",
            legend={"format": "%", "orient": "bottom", "direction": "horizontal"},
        ),
    }
    layers = [marks(rows, "rect", encoding)]
    if beyond is not None:
        x = channel("length:O", sort=lengths, bandPosition=0)
        edge = {"x": x, "description": {"value": f"trained to length {longest}"}}
        layers.append(marks([{"length": beyond}], "rule", edge, color="#d62728", strokeWidth=2))
    return {"layer": layers, "width": 300, "height": {"step": 20}, "title": title}


def columns_of(cells: Sequence[Cell], longest: int) -> dict[int, int]:
    """The first length of the column of each length: of many lengths neighbours share one, none across `longest`."""
    scores = (score for cell in cells for record in cell.finished for score in record.scores if not score.probe)
    lengths = sorted({row.length for score in scores for row in score.lengths})
    size = math.ceil(len(lengths) / COLUMNS)
    sides = ([n for n in lengths if n <= longest], [n for n in lengths if n > longest])
    return {n: side[i - i % size] for side in sides for i, n in enumerate(side)}


def strip(cell: Cell, columns: Mapping[int, int]) -> Rows:
    """The share of right sequences in each column, over all its bins and all seeds; a run that diverged counts as 0."""
    right: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for record in cell.finished:
        for score in (score for score in record.scores if not score.probe):
            for row in score.lengths:
                right[columns[row.length]] += round(row.rows * row.sequences)
                total[columns[row.length]] += row.rows
    tested = sum(bool(record.scores) for record in cell.finished)
    return [
        {"model": cell.label, "length": n, "accuracy": right[n] / total[n] * tested / len(cell.finished)}
        for n in sorted(total)
    ]


def accuracies(cells: Sequence[Cell], titles: Mapping[str, str]) -> Rows:
    """The numbers of `by_length`, in percent and rounded down as in tables; None where nothing was tested."""
    tasks: Rows = []
    has_settings = len({(cell.task, cell.model) for cell in cells}) < len(cells)
    for task in dict.fromkeys(cell.task for cell in cells):
        mine = [cell for cell in cells if cell.task == task]
        longest = mine[0].records[0].spec["training"]["lengths"][1]
        columns = columns_of(mine, longest)
        lengths, models = sorted(set(columns.values())), dict[str, list[float | None]]()
        for cell in mine:
            shares = {row["length"]: row["accuracy"] for row in strip(cell, columns)}
            models[cell.label if has_settings else cell.model] = [_percent(shares.get(n)) for n in lengths]
        if lengths:
            tasks.append({"task": titles.get(task, task), "trained": longest, "lengths": lengths, "models": models})
    return tasks


def _percent(share: float | None) -> float | None:
    return None if share is None else math.floor(share * 1000) / 10


def _ticks(lengths: list[int]) -> list[int]:
    """The lengths that the axis names."""
    every = max(1, len(lengths) // 8)
    return sorted({*lengths[::every], lengths[-1]})


def styled(chart: Chart) -> Chart:
    """A chart in the style of all pages."""
    config = {
        "font": FONT,
        "background": "white",
        "padding": {"left": 30, "top": 5, "right": 15, "bottom": 5},
        "view": {"stroke": None},
        "axis": {"grid": False, "domain": False, "ticks": False, "labelFontSize": 12, "labelLimit": 220},
        "title": {"fontSize": 14, "anchor": "start", "offset": 10},
    }
    return {"$schema": SCHEMA, "config": config, **chart}


def draw(chart: Chart) -> tuple[str, bytes]:
    """A chart as SVG text and as PNG bytes; BadInput for one that Vega cannot draw, as with a model `constructor`."""
    import vl_convert

    try:
        svg = vl_convert.vegalite_to_svg(json.dumps(chart, sort_keys=True))
        return svg, vl_convert.svg_to_png(svg, scale=2)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(
            f"a chart of these records cannot be drawn, perhaps because of a name in them: {reason}"
        ) from None
