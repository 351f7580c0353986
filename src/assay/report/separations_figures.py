"""The charts of a page about separations: accuracy against bits of state, sizes over N, attention, and states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

from assay.analysis.bounds import StatePoint, alphabet_of, bounds_of, ceiling_curve, task_bounds
from assay.analysis.growth import Growth
from assay.analysis.lengths import FLOAT32, LengthCell, Lengths, SizedCell, accuracy
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title
from assay.record import Record
from assay.report.figures import Chart, Rows, channel, marks, styled

PALETTE = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#393b79"]
ATTENTION = "#d62728"
RECURRENT = ("lstm", "mamba", "dss", "retnet", "linear-transformer", "delta-net", "recurrent-delta", "srwm")
COLOURS = {row_title(model): colour for model, colour in zip(RECURRENT, PALETTE, strict=False)}
COLOURS[row_title("transformer")] = ATTENTION
GREY = "#666"
COLUMNS = 3
AXIS = {"grid": True, "gridColor": "#eee", "tickCount": 5}
LEGEND = {
    "orient": "bottom",
    "direction": "horizontal",
    "title": None,
    "labelLimit": 260,
    "labelFontSize": 12,
    "columns": 4,
    "columnPadding": 30,
}
SHAPES = ["circle", "square", "diamond", "cross", "triangle-up"]  # by number of layers
FOUND = {  # what the chart of states calls the fields of an inspection; later marks are drawn over earlier ones
    "of the whole string": "input_bits",
    "needed for its accuracy": "needed",
    "found by a linear decoder": "linear",
    "found by a small network": "nonlinear",
}
BITS = [0, 1, 3, 10, 30, 100, 300, 1000, 3000]
LARGEST = 0.5  # overlaps are coloured up to this


def colours(names: Sequence[str], legend: Mapping[str, Any] = LEGEND) -> Chart:
    """A colour for each name; an architecture has the same one in all charts, unless several names are of it."""
    chosen: dict[str, str] = {}
    for name in names:
        colour = COLOURS.get(name.partition(" (")[0])
        if colour and colour not in chosen.values():
            chosen[name] = colour
    free = cycle([colour for colour in PALETTE if colour not in chosen.values()] or PALETTE)
    scale = {"domain": list(names), "range": [chosen.get(name) or next(free) for name in names]}
    return channel("series:N", scale=scale, legend=legend)


def _look(variant: str, record: Record) -> dict[str, str]:
    """How a variant looks in charts over N: colour for its architecture, shape for its number of layers.

    The kind of negatives is a matter of the task, and stands above the panel.
    """
    architecture, *changes = variant.split(", ")
    layers = changes.pop() if changes else ""
    changes = [change for change in changes if change != record.spec["task"].get("negatives")]
    return {"series": row_title(", ".join([architecture, *changes])), "layers": layers}


def _panel_title(variant: str, record: Record, summary: StudySummary) -> str:
    negatives = record.spec["task"].get("negatives")
    title = summary.task(str(record.spec["task"]["kind"]))
    return f"{title}, {negatives}" if negatives in variant.split(", ") else title


def _look_channels(looks: Iterable[Mapping[str, str]]) -> tuple[Chart, Chart]:
    """The channels of lines and of points for all of these looks."""
    pairs = list(dict.fromkeys((look["series"], look["layers"]) for look in looks))
    colour = colours(list(dict.fromkeys(series for series, _ in pairs)))
    layers = sorted({layer for _, layer in pairs})
    scale = {"domain": layers, "range": SHAPES[: len(layers)]}
    shape = channel("layers:N", scale=scale, legend=LEGEND if len(layers) > 1 else None)
    return {"color": colour, "detail": channel("layers:N")}, {"color": colour, "shape": shape}


def _over_n(lengths: Iterable[int]) -> Chart:
    """The axis of N, with a label for each tried length."""
    tried = sorted(set(lengths))
    return channel(
        "N:Q",
        scale={"type": "log", "domain": [tried[0] * 0.9, tried[-1] * 1.1], "nice": False},
        title="N",
        axis=AXIS | {"values": tried, "labelOverlap": "greedy"},
    )


# -- accuracy against bits of state ------------------------------------------------------------------------------------


def state_bits(
    points: Mapping[int, Sequence[StatePoint]], beside: Mapping[int, SizedCell | None], attention: str
) -> Chart | None:
    """One panel for each N: the best run of each recurrent machine under the ceiling, and attention beside it."""
    shown = {n: found for n, found in points.items() if found}
    if not shown:
        return None
    everything = [point for found in shown.values() for point in found]
    needed = [task_bounds(found[0].cell.records[0], n).bits or 1 for n, found in shown.items()]
    low = min(*needed, *(point.bits for point in everything)) / 4
    high = max(*needed, *(point.bits for point in everything)) * 2
    variants = [row_title(v) for v in dict.fromkeys(point.cell.variant for point in everything)]
    panels = [_panel(n, found, beside.get(n), attention, variants, (low, high)) for n, found in shown.items()]
    return styled({"concat": panels, "columns": COLUMNS, "spacing": {"row": 25, "column": 25}})


def _panel(
    n: int,
    points: Sequence[StatePoint],
    beside: SizedCell | None,
    attention: str,
    variants: list[str],
    domain: tuple[float, float],
) -> Chart:
    record = points[0].cell.records[0]
    bounds = task_bounds(record, n)
    curve = [{"bits": bits, "accuracy": best} for bits, best in ceiling_curve(n, alphabet_of(record), *domain)]
    x = channel(
        "bits:Q",
        scale={"type": "log", "domain": list(domain), "nice": False},
        title="bits of state",
        axis=AXIS | {"format": "~s", "tickCount": 4},
    )
    y = channel("accuracy:Q", scale={"domain": [0, 1]}, title="right answers", axis=AXIS | {"format": "%"})
    area = {"y": y, "x": x, "y2": {"datum": 1}}
    layers = [
        marks(curve, "area", area, color="#000", opacity=0.1),
        marks(curve, "line", {"x": x, "y": y}, color="#222", strokeWidth=1.5),
    ]
    if beside and beside.best:
        right = accuracy(beside.best)
        label = f"{row_title(attention)}, width {beside.place.width}"
        layers += [
            marks([{"accuracy": right}], "rule", {"y": y}, color=ATTENTION, strokeDash=[6, 3], strokeWidth=2),
            marks(
                [{"accuracy": right, "text": label, "bits": domain[1]}],
                "text",
                {"x": x, "y": y, "text": channel("text:N")},
                align="right",
                dy=11 if right > 0.1 else -9,
                color=ATTENTION,
                fontSize=11,
            ),
        ]
    colour = colours(variants)
    exact = [_dot(point) for point in points if point.cell.place.numbers == FLOAT32]
    rounded = [_dot(point) for point in points if point.cell.place.numbers != FLOAT32]
    place = {"x": x, "y": y, "color": colour}
    layers += [
        marks(exact, "line", place, strokeWidth=1.5, opacity=0.6),
        marks(exact, "point", place, filled=True, size=60, opacity=1),
        marks(rounded, "point", place, filled=False, size=50, strokeWidth=2, opacity=1),
    ]
    needed = f"needs {bounds.bits:,} bits" if bounds.bits else ""
    return {
        "layer": [layer for layer in layers if layer["data"]["values"]],
        "width": 275,
        "height": 230,
        "title": {"text": f"N = {n}", "subtitle": needed, "subtitleFontSize": 12, "subtitleColor": GREY},
    }


def _dot(point: StatePoint) -> dict[str, Any]:
    return {"bits": point.bits, "accuracy": round(point.accuracy, 4), "series": row_title(point.cell.variant)}


# -- sizes over N ------------------------------------------------------------------------------------------------------


def sizes(growths: Sequence[Growth], examples: Mapping[tuple[str, str], Record], summary: StudySummary) -> Chart | None:
    """One panel for each task: the smallest solving width of each variant over N, beside explicit weights and bounds.

    A hollow mark stands at the largest tried width where none solves N.
    """
    panels: dict[str, list[tuple[Growth, Record]]] = {}
    for growth in growths:
        if growth.points:
            record = examples[growth.variant, growth.task]
            panels.setdefault(_panel_title(growth.variant, record, summary), []).append((growth, record))
    channels = _look_channels(_look(growth.variant, record) for group in panels.values() for growth, record in group)
    shown = [_sizes_panel(title, group, *channels) for title, group in panels.items()]
    return styled({"concat": shown, "columns": COLUMNS, "spacing": 25}) if shown else None


def _sizes_panel(title: str, growths: Sequence[tuple[Growth, Record]], lines: Chart, points: Chart) -> Chart:
    rows: dict[str, Rows] = {"solved": [], "unsolved": [], "explicit": [], "least": []}
    for growth, record in growths:
        look = _look(growth.variant, record)
        for point in growth.points:
            kind = "unsolved" if point.width is None else "solved"
            rows[kind].append(look | {"N": point.length, "width": point.width or point.tried})
            bounds = bounds_of(record, point.length)
            for name, width in (("explicit", bounds.explicit), ("least", bounds.least)):
                rows[name] += [look | {"N": point.length, "width": width}] if width else []
    y = channel("width:Q", scale={"type": "log", "base": 2, "nice": False, "padding": 10}, title="width", axis=AXIS)
    place = {"x": _over_n(row["N"] for group in rows.values() for row in group), "y": y}
    layers = [
        marks(rows["explicit"], "line", place | lines, strokeDash=[6, 3], strokeWidth=1.5, opacity=0.8),
        marks(rows["least"], "line", place | lines, strokeDash=[2, 2], strokeWidth=1.5, opacity=0.8),
        marks(rows["solved"], "line", place | lines, strokeWidth=2),
        marks(rows["solved"], "point", place | points, filled=True, size=70, opacity=1),
        marks(rows["unsolved"], "point", place | points, filled=False, size=90, strokeWidth=2, opacity=1),
    ]
    return {
        "layer": [layer for layer in layers if layer["data"]["values"]],
        "width": 240,
        "height": 200,
        "title": title,
    }


# -- accuracy over N and width -----------------------------------------------------------------------------------------


def over_lengths(lengths: Lengths, summary: StudySummary) -> Chart | None:
    """One panel for each task: the accuracy over N of the size and rate that validation chose."""
    cells = [lengths.pair(v, task, n) for task in lengths.tasks() for v in lengths.variants
             for n in lengths.lengths(v, task)]  # fmt: skip
    panels: dict[str, list[LengthCell]] = {}
    for cell in cells:
        if cell.seeds:
            panels.setdefault(_panel_title(cell.variant, cell.seeds[0], summary), []).append(cell)
    channels = _look_channels(_look(cell.variant, cell.seeds[0]) for group in panels.values() for cell in group)
    shown = [_over_lengths(title, group, *channels) for title, group in panels.items()]
    return styled({"concat": shown, "columns": COLUMNS, "spacing": 25}) if shown else None


def _over_lengths(title: str, cells: Sequence[LengthCell], lines: Chart, points: Chart) -> Chart:
    means = [
        _look(cell.variant, cell.seeds[0])
        | {"N": cell.length, "accuracy": sum(map(accuracy, cell.seeds)) / len(cell.seeds)}
        for cell in cells
    ]
    y = channel("accuracy:Q", scale={"domain": [0, 1]}, title="right sequences", axis=AXIS | {"format": "%"})
    place = {"x": _over_n(cell.length for cell in cells), "y": y}
    layers = [
        marks(means, "line", place | lines, strokeWidth=1.5),
        marks(means, "point", place | points, filled=True, size=50),
    ]
    return {"layer": layers, "width": 240, "height": 180, "title": title}


# -- what weights show -------------------------------------------------------------------------------------------------


def focus(rows: Sequence[Mapping[str, Any]], explicit: Sequence[Mapping[str, Any]]) -> Chart | None:
    """For the longest inspected N: the weight on the right position by position, and overlaps of the keys.

    Of the trained machines only the most accurate is drawn.
    """
    if not rows:
        return None
    longest = max(row["length"] for row in rows)
    trained = max((row for row in rows if row["length"] == longest), key=lambda row: (row["right"], -row["width"]))
    made = [row for row in explicit if row["length"] == longest]
    series = [(f"{row_title(trained['variant'])}, width {trained['width']}", trained)]
    series += [(f"{row['claim']}, width {row['width']}", row) for row in made]
    values = [
        {"position": p, "weight": w, "series": name}
        for name, row in series
        for p, w in zip(row["positions"], row["weights"], strict=True)
    ]
    x = channel("position:Q", title="position asked for", scale={"domain": [1, longest], "nice": False}, axis=AXIS)
    y = channel("weight:Q", title="weight on it", scale={"domain": [0, 1]}, axis=AXIS | {"format": "%"})
    names = [name for name, _ in series]
    colour = colours(names, LEGEND | {"columns": 1})
    points = marks(values, "point", {"x": x, "y": y, "color": colour}, filled=True, size=25, opacity=1)
    matrices = [_overlaps(row, name) for name, row in series[:2]]
    weights = points | {"width": 300, "height": 220, "title": f"N = {longest}"}
    return styled({"hconcat": [weights, *matrices], "spacing": 40, "resolve": {"scale": {"color": "independent"}}})


def _overlaps(row: Mapping[str, Any], title: str) -> Chart:
    shown = row["shown"]
    values = [
        {"i": p, "j": q, "cosine": row["overlaps"][i][j]} for i, p in enumerate(shown) for j, q in enumerate(shown)
    ]
    axis = {"labelOverlap": "greedy", "labelAngle": 0}
    encoding = {
        "x": channel("j:O", title="position", axis=axis),
        "y": channel("i:O", title="position", axis=axis),
        "color": channel(
            "cosine:Q",
            scale={
                "domain": [-LARGEST, 0, LARGEST],
                "range": ["#d6604d", "#fff", "#2166ac"],
                "clamp": True,
                "interpolate": "rgb",
            },
            title="cosine",
            legend={"orient": "bottom", "direction": "horizontal", "gradientLength": 120},
        ),
    }
    return marks(values, "rect", encoding) | {"width": 200, "height": 200, "title": {"text": title, "fontSize": 12}}


def state_use(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """The bits that decoders find in states, and those that the accuracy needs: the most accurate machine of each
    variant at each N, without those whose state is rounded."""
    best: dict[tuple[int, str], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["accuracy"], -row["width"])):
        if row["numbers"] == FLOAT32:
            best[row["length"], row["variant"]] = row
    if not best:
        return None
    values: Rows = []
    names = []
    for (length, variant), row in sorted(best.items()):
        name = f"N = {length}, {row_title(variant)}, width {row['width']}"
        names.append(name)
        keys = {series: key for series, key in FOUND.items() if row[key] or key == "needed"}
        values += [{"machine": name, "bits": row[key], "series": series} for series, key in keys.items()]
    shapes = {"domain": list(FOUND), "range": ["square", "triangle-right", "circle", "diamond"]}
    scale = {"domain": list(FOUND), "range": ["#bbb", ATTENTION, "#6baed6", "#08519c"]}
    encoding = {
        "x": channel("bits:Q", title="bits", scale={"type": "symlog"}, axis=AXIS | {"values": BITS}),
        "y": channel("machine:N", sort=names, title=None, axis={"labelLimit": 400, "grid": True, "gridColor": "#eee"}),
        "color": channel("series:N", scale=scale, legend=LEGEND),
        "shape": channel("series:N", scale=shapes, legend=LEGEND),
    }
    points = marks(values, "point", encoding, filled=True, size=80, opacity=0.9)
    return styled(points | {"width": 420, "height": {"step": 20}})
