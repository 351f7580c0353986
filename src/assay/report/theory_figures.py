"""Charts of what theory demands and what architectures have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from assay.report.figures import chart_of, styled

Rows = Sequence[dict[str, Any]]
LOG = alt.Scale(type="log", base=2)
COLOUR = alt.Color("model:N", title=None, scale=alt.Scale(scheme="tableau20"))


def bits(rows: Rows) -> alt.TopLevelMixin:
    """One panel per task: the bits that are needed (dashed) and those that architectures carry, over N."""
    panels = []
    for task in dict.fromkeys(row["task"] for row in rows):
        panel_rows = [row for row in rows if row["task"] == task]
        needed = [{"length": n, "bits": b} for n, b in sorted({(r["length"], r["needed"]) for r in panel_rows})]
        have = [{"length": r["length"], "bits": r["available"], "model": r["model"]} for r in panel_rows]
        x = alt.X("length:Q", scale=LOG, title="N", axis=alt.Axis(format="~d"))
        y = alt.Y("bits:Q", scale=LOG, title="bits", axis=alt.Axis(format=".2~s", tickCount=8))
        lines = chart_of(have).mark_line().encode(x, y, COLOUR)
        floor = chart_of(needed).mark_line(strokeDash=[6, 4], color="black").encode(x, y)
        panels.append((lines + floor).properties(width=260, height=220, title=task))
    return styled(alt.hconcat(*panels))


def precision(rows: Rows) -> alt.TopLevelMixin:
    """The least bits a number, over N, by construction."""
    y = alt.Y("bits:Q", title="bits of every number", scale=alt.Scale(zero=True))
    return _over_n(rows, y, "claim", "The least precision that keeps a construction exact")


def frontier(rows: Rows) -> alt.TopLevelMixin:
    """Width against precision at one length."""
    base = chart_of(rows).encode(
        alt.X("width:Q", title="width", scale=alt.Scale(zero=True)),
        alt.Y("bits:Q", title="bits of every number", scale=alt.Scale(zero=True)),
    )
    words = base.mark_text(dx=8, align="left").encode(alt.Text("claim:N"))
    title = f"Width against precision, index lookup, N = {rows[0]['length']:,}"
    return styled((base.mark_point(size=80, filled=True) + words).properties(width=420, height=240, title=title))


def depth(rows: Rows) -> alt.TopLevelMixin:
    """The least width of one layer and of two on equality, over N, beside the bound for one."""
    y = alt.Y("width:Q", scale=LOG, title="width", axis=alt.Axis(format="~d"))
    return _over_n(rows, y, "which", "String equality: the least width found")


def _over_n(rows: Rows, y: alt.Y, by: str, title: str) -> alt.TopLevelMixin:
    """One line for each kind of row, over N."""
    x = alt.X("length:Q", scale=LOG, title="N", axis=alt.Axis(format="~d"))
    colour = alt.Color(f"{by}:N", sort=None, title=None, legend=alt.Legend(labelLimit=300))
    lines = chart_of(rows).mark_line(point=True).encode(x, y, colour)
    return styled(lines.properties(width=520, height=260, title=title))
