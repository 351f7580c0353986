"""The charts of a page about separations: accuracy against bits of state, sizes over N, attention, and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.analysis.bounds import StatePoint, alphabet_of, bounds_of, ceiling_curve, task_bounds
from assay.analysis.growth import Growth
from assay.analysis.lengths import FLOAT32, LengthCell, Lengths, SizedCell, accuracy
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title
from assay.record import Record
from assay.report.figures import Chart, Rows, channel, marks, styled

PALETTE = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#393b79"]
PALETTE += ["#aec7e8", "#ffbb78", "#98df8a", "#c5b0d5", "#c49c94"]
PALETTE += ["#f7b6d2", "#c7c7c7", "#dbdb8d", "#9edae5", "#637939"]
ATTENTION = "#d62728"
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
FOUND = {  # what the chart of states calls the fields of an inspection
    "needed for its accuracy": "needed",
    "found by a linear decoder": "linear",
    "found by a small network": "nonlinear",
    "of the whole string": "input_bits",
}
LARGEST = 0.5  # overlaps are coloured up to this


def colours(names: Sequence[str], legend: Mapping[str, Any] | None = LEGEND, **fixed: str) -> Chart:
    """A colour for each name; some names have a colour of their own."""
    free = iter(PALETTE * (1 + len(names) // len(PALETTE)))
    scale = {"domain": list(names), "range": [fixed.get(name) or next(free) for name in names]}
    return channel("series:N", scale=scale, legend=legend)


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

    A triangle marks the largest tried width where none solves N.
    """
    tasks = list(dict.fromkeys(growth.task for growth in growths if growth.points))
    variants = [row_title(v) for v in dict.fromkeys(growth.variant for growth in growths if growth.points)]
    panels = [
        _sizes_panel([g for g in growths if g.task == task and g.points], examples, summary.task(task), variants)
        for task in tasks
    ]
    return styled({"concat": panels, "columns": COLUMNS, "spacing": 25}) if panels else None


def _sizes_panel(
    growths: Sequence[Growth], examples: Mapping[tuple[str, str], Record], title: str, variants: list[str]
) -> Chart:
    rows: dict[str, Rows] = {"solved": [], "unsolved": [], "explicit": [], "least": []}
    for growth in growths:
        series = {"series": row_title(growth.variant)}
        for point in growth.points:
            kind = "unsolved" if point.width is None else "solved"
            rows[kind].append(series | {"N": point.length, "width": point.width or point.tried})
            bounds = bounds_of(examples[growth.variant, growth.task], point.length)
            for name, width in (("explicit", bounds.explicit), ("least", bounds.least)):
                rows[name] += [series | {"N": point.length, "width": width}] if width else []
    lengths = sorted({row["N"] for group in rows.values() for row in group})
    x = channel(
        "N:Q",
        scale={"type": "log", "domain": [lengths[0] * 0.9, lengths[-1] * 1.1], "nice": False},
        title="N",
        axis=AXIS | {"values": lengths, "labelOverlap": "greedy"},
    )
    y = channel("width:Q", scale={"type": "log"}, title="width", axis=AXIS | {"format": "~s"})
    place = {"x": x, "y": y, "color": colours(variants)}
    layers = [
        marks(rows["explicit"], "line", place, strokeDash=[6, 3], strokeWidth=1.5, opacity=0.8),
        marks(rows["least"], "line", place, strokeDash=[2, 2], strokeWidth=1.5, opacity=0.8),
        marks(rows["solved"], "line", place, strokeWidth=2),
        marks(rows["solved"], "point", place, filled=True, size=70, opacity=1),
        marks(rows["unsolved"], "point", place, shape="triangle-up", size=90, strokeWidth=2),
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
    finished = [cell for cell in cells if cell.seeds]
    variants = [row_title(v) for v in dict.fromkeys(cell.variant for cell in finished)]
    tasks = dict.fromkeys(cell.task for cell in finished)
    panels = [_over_lengths([c for c in finished if c.task == task], summary.task(task), variants) for task in tasks]
    return styled({"concat": panels, "columns": COLUMNS, "spacing": 25}) if panels else None


def _over_lengths(cells: Sequence[LengthCell], title: str, variants: list[str]) -> Chart:
    means = [
        {
            "N": cell.length,
            "accuracy": sum(map(accuracy, cell.seeds)) / len(cell.seeds),
            "series": row_title(cell.variant),
        }
        for cell in cells
    ]
    lengths = sorted({cell.length for cell in cells})
    x = channel(
        "N:Q",
        scale={"type": "log", "domain": [lengths[0] * 0.9, lengths[-1] * 1.1], "nice": False},
        title="N",
        axis=AXIS | {"values": lengths, "labelOverlap": "greedy"},
    )
    y = channel("accuracy:Q", scale={"domain": [0, 1]}, title="right sequences", axis=AXIS | {"format": "%"})
    place = {"x": x, "y": y, "color": colours(variants)}
    layers = [marks(means, "line", place, strokeWidth=1.5), marks(means, "point", place, filled=True, size=50)]
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
    """One line for each inspected machine: the bits that decoders find, and those that its accuracy needs."""
    if not rows:
        return None
    values: Rows = []
    names = []
    for row in sorted(rows, key=lambda row: (row["length"], row["variant"], row["numbers"], row["width"])):
        numbers = "" if row["numbers"] == FLOAT32 else f", {row['numbers']}"
        name = f"N = {row['length']}, {row_title(row['variant'])}, width {row['width']}{numbers}"
        names.append(name)
        keys = {series: key for series, key in FOUND.items() if row[key] or key == "needed"}
        values += [{"machine": name, "bits": row[key], "series": series} for series, key in keys.items()]
    shapes = {"domain": list(FOUND), "range": ["triangle-right", "circle", "diamond", "square"]}
    scale = {"domain": list(FOUND), "range": [ATTENTION, "#6baed6", "#08519c", "#bbb"]}
    encoding = {
        "x": channel("bits:Q", title="bits", scale={"type": "symlog"}, axis=AXIS | {"labelOverlap": "greedy"}),
        "y": channel("machine:N", sort=names, title=None, axis={"labelLimit": 400, "grid": True, "gridColor": "#eee"}),
        "color": channel("series:N", scale=scale, legend=LEGEND),
        "shape": channel("series:N", scale=shapes, legend=LEGEND),
    }
    points = marks(values, "point", encoding, filled=True, size=80, opacity=0.9)
    return styled(points | {"width": 420, "height": {"step": 20}})
