"""The charts of a card."""

from __future__ import annotations

from typing import Any

from assay.cards.results import Card
from assay.report.figures import SCALE, Chart, channel, marks, styled

LOG = {"type": "log"}


def lengths(card: Card) -> Chart | None:
    """A panel for each task: architectures down, lengths across, the seeds that are right so far."""
    panels = [_panel(card, question.task) for question in card.scale.questions]
    shown = [panel for panel in panels if panel]
    if not shown:
        return None
    return styled({"concat": shown, "columns": 4, "spacing": 18, "resolve": {"scale": {"x": "independent"}}})


def _panel(card: Card, task: str) -> Chart | None:
    rows = []
    for name in card.architectures:
        if entry := card.entry(name, task):
            for bin_ in entry.bins:
                share = round(entry.cell.accuracy(bin_) or 0.0, 4)
                text = f"{entry.right(bin_)}/{entry.seeds}"
                rows.append({"model": card.title(name), "length": bin_, "accuracy": share, "seeds": text})
    if not rows:
        return None
    names = [card.title(name) for name in card.architectures]
    place = {
        "x": channel("length:N", sort=card.columns, title=None, axis={"orient": "top", "labelAngle": 0}),
        "y": channel("model:N", sort=names, title=None),
    }
    legend = {"format": "%", "orient": "bottom", "direction": "horizontal"}
    shade = channel("accuracy:Q", scale=SCALE, title="right sequences", legend=legend)
    ink = {"condition": {"test": "datum.accuracy > 0.6", "value": "white"}, "value": "#333"}
    squares = marks(rows, "rect", place | {"color": shade}, stroke="white", strokeWidth=1)
    texts = marks(rows, "text", place | {"text": channel("seeds:N"), "color": ink}, fontSize=11)
    size: dict[str, Any] = {"width": {"step": 34}, "height": {"step": 20}}
    return {"layer": [squares, texts], "title": card.titles[task]} | size


def cost(card: Card) -> Chart:
    """Microseconds per token over the length, a line for each architecture; the subject's is thick."""
    rows = [
        {"model": card.title(cost.architecture), "length": cost.length, "microseconds": round(cost.microseconds, 4)}
        for cost in card.costs
    ]
    names = [card.title(name) for name in card.architectures]
    place = {
        "x": channel("length:Q", scale=LOG | {"base": 2}, title="tokens of an input", axis={"format": "~d"}),
        "y": channel("microseconds:Q", scale=LOG, title="microseconds per token", axis={"format": "~g"}),
    }
    colour = channel("model:N", sort=names, title=None, scale={"scheme": "tableau20", "domain": names})
    lines = marks(rows, "line", place | {"color": colour}, point=True)
    own = [row for row in rows if row["model"] == names[0]]
    thick = marks(own, "line", place | {"color": colour}, point=True, strokeWidth=4)
    return styled({"layer": [lines, thick], "width": 520, "height": 280})
