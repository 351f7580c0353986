"""Charts of what theory demands and what architectures have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.report.figures import Chart, channel, marks, styled

Rows = Sequence[dict[str, Any]]
LOG = {"type": "log", "base": 2}
FROM_ZERO = {"zero": True}
LENGTH = channel("length:Q", scale=LOG, title="N", axis={"format": "~d"})
COLOUR = channel("models:N", title=None, sort=None, scale={"scheme": "tableau10"}, legend={"labelLimit": 400})
RECURRENT = ("lstm", "linear-transformer", "delta-net", "retnet", "recurrent-delta", "dss", "mamba", "srwm")
OF_THE_PAPERS = (*RECURRENT, "transformer")


def bits(rows: Rows) -> Chart:
    """One panel per task: the bits that are needed (dashed) and those that the papers' models carry, over N."""
    models = {row["model"] for row in rows}
    shown = [name for name in OF_THE_PAPERS if name in models] or sorted(models)
    label = {model: ", ".join(group) for group in alike(rows, shown) for model in group}
    panels = []
    for task in dict.fromkeys(row["task"] for row in rows):
        panel_rows = [row for row in rows if row["task"] == task]
        needed = [{"length": n, "bits": b} for n, b in sorted({(r["length"], r["needed"]) for r in panel_rows})]
        have = [
            {"length": row["length"], "bits": row["available"], "models": label[row["model"]]}
            for row in sorted(panel_rows, key=lambda row: row["available"])
            if row["model"] in label
        ]
        y = channel("bits:Q", scale=LOG, title="bits", axis={"format": ".2~s", "tickCount": 8})
        place = {"x": LENGTH, "y": y}
        lines = _lines_and_points(have, place | {"color": COLOUR}, opacity=0)
        floor = marks(needed, "line", place | {"description": {"value": "needed"}}, strokeDash=[6, 4], color="black")
        panels.append({"layer": [*lines, floor], "width": 260, "height": 220, "title": task})
    return styled({"hconcat": panels})


def alike(rows: Rows, models: Sequence[str]) -> list[list[str]]:
    """Groups of these models that carry the same bits in every row, from the smallest state to the largest."""
    bits = {model: tuple(row["available"] for row in rows if row["model"] == model) for model in models}
    return [[model for model in models if bits[model] == same] for same in sorted(set(bits.values()), key=sum)]


def precision(rows: Rows) -> Chart:
    """The least bits a number, over N, by construction."""
    y = channel("bits:Q", title="bits of every number", scale=FROM_ZERO)
    return _over_n(rows, y, "claim", "The least precision that keeps a construction exact")


def frontier(rows: Rows) -> Chart:
    """Width against precision at one length."""
    place = {
        "x": channel("width:Q", title="width", scale=FROM_ZERO),
        "y": channel("bits:Q", title="bits of every number", scale=FROM_ZERO),
    }
    points = marks(rows, "point", place | {"detail": channel("claim:N")}, size=80, filled=True)
    words = marks(rows, "text", place | {"text": channel("claim:N")}, dx=8, align="left")
    title = f"Width against precision, index lookup, N = {rows[0]['length']:,}"
    return styled({"layer": [points, words], "width": 420, "height": 240, "title": title})


def depth(rows: Rows) -> Chart:
    """The least width of one layer and of two on equality, over N, beside the bound for one."""
    y = channel("width:Q", scale=LOG, title="width", axis={"format": "~d"})
    return _over_n(rows, y, "which", "String equality: the least width found")


def _over_n(rows: Rows, y: Chart, by: str, title: str) -> Chart:
    """One line for each kind of row, over N."""
    colour = channel(f"{by}:N", sort=None, title=None, legend={"labelLimit": 300})
    layers = _lines_and_points(rows, {"x": LENGTH, "y": y, "color": colour}, opacity=1)
    return styled({"layer": layers, "width": 520, "height": 260, "title": title})


def _lines_and_points(rows: Rows, encoding: Chart, opacity: int) -> list[Chart]:
    """Lines, and their points, whose tooltips have the values."""
    shape = "circle" if opacity else "square"  # which takes fewer letters
    points = marks(rows, "point", encoding, shape=shape, filled=True, size=30, opacity=opacity)
    return [marks(rows, "line", encoding), points]
