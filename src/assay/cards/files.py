"""The files beside a card for papers and programs: LaTeX, BibTeX, CSV, JSON, a badge, and the charts as PDF."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from assay.cards import figures
from assay.cards.results import Card, sizes
from assay.cards.verdicts import headline, sentences
from assay.report.figures import Chart
from assay.report.files import as_csv, escaped, title_tex

PAPERS = Path(__file__).parent / "papers.bib"
BESIDE = (
    "Beside this page: card.tex (a booktabs table), card.bib, card.csv, card.json, badge.svg, and the charts as SVG, "
    "PNG and PDF."
)
BY_MODEL = {
    "transformer": ("vaswani2017",),
    "linear-transformer": ("katharopoulos2020",),
    "delta-net": ("schlag2021",),
    "delta-net-signed": ("grazzi2024",),
    "delta-product": ("siems2025",),
    "recurrent-delta": ("irie2021",),
    "srwm": ("irie2022",),
    "lstm": ("hochreiter1997",),
    "e-lstm": ("irie2023",),
    "elman": ("elman1990",),
    "gru": ("cho2014",),
    "retnet": ("sun2023",),
    "dss": ("gupta2022",),
    "mamba": ("gu2023",),
}
BY_TASK = {
    "flip-flop": ("liu2023",),
    "parity": ("irie2023",),
    "dyck-1": ("irie2023",),
    "an-bn": ("irie2023",),
    "bounded-dyck": ("bhattamishra2024",),
    "index-lookup": ("bhattamishra2024",),
    "equality-random": ("bhattamishra2024",),
    "recall": ("bhattamishra2024",),
}
GREEN, AMBER, GREY = "#2e7d32", "#b26a00", "#6b7280"
LETTER = 6.6  # pixels of a letter of the badge, on average


def files_of(card: Card) -> dict[str, str | bytes]:
    """All files by their names."""
    charts = {"lengths": figures.lengths(card), "cost": figures.cost(card) if card.costs else None}
    pdfs = {f"{name}.pdf": pdf(chart) for name, chart in charts.items() if chart is not None}
    return {
        "card.tex": tex(card),
        "card.bib": bib(card),
        "card.csv": as_csv(_in_columns(card)),
        "card.json": json.dumps(plain(card), indent=1) + "\n",
        "badge.svg": badge(card),
        **pdfs,
    }


def plain(card: Card) -> dict[str, Any]:
    """A card as JSON data."""
    subject, examination = card.subject, card.examination
    described = {"name": subject.name, "description": subject.description, "model": subject.model.plain()}
    return {
        "kind": "card",
        "version": 1,
        "subject": described,
        "scale": card.scale_name,
        "headline": headline(card),
        "verdicts": sentences(card),
        "examination": [check._asdict() for check in examination.checks],
        "left_out": examination.left_out,
        "without_result": card.without_result,
        "shortened": examination.shortened,
        "results": [entry.plain() for entry in card.entries.values()],
        "sizes": {name: sizes(records) for name, records in card.records.items()},
        "bounds": [bound.plain() for bound in card.bounds],
        "costs": [cost.plain() for cost in card.costs],
        "without_records": list(card.missing),
    }


def _in_columns(card: Card) -> list[dict[str, object]]:
    """One row for each entry, with the columns of all test lengths."""
    rows = [entry.plain() for entry in card.entries.values()]
    names = list(dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def pdf(chart: Chart) -> bytes:
    import vl_convert

    data: bytes = vl_convert.vegalite_to_pdf(json.dumps(chart, sort_keys=True))
    return data


def tex(card: Card) -> str:
    r"""A table for \input, with booktabs: seeds that solve each task, and those right on every random input."""
    names, questions = card.architectures, card.scale.questions
    is_short = any(entry.is_shortened for entry in card.own)
    titles = [title_tex(card.titles[question.task]) for question in questions]
    lines = [
        f"% What {card.subject.title} can do, beside references: a card of Assay at {card.scale_name} scale.",
        "% Seeds that are right on every random test input and on every probe; in parentheses, on random inputs alone.",
        *([r"% $^*$: tested on shorter inputs than the references, because it can read no longer ones."] * is_short),
        r"% Needs \usepackage{booktabs}.",
        f"\\begin{{tabular}}{{l{'c' * len(titles)}}}",
        r"\toprule",
        f"{' & '.join(['', *titles])} \\\\",
        r"\midrule",
    ]
    for number, name in enumerate(names):
        cells = [_tex_cell(card, name, question.task) for question in questions]
        lines.append(f"{' & '.join([escaped(card.title(name)), *cells])} \\\\")
        if number == 0 and len(names) > 1:
            lines.append(r"\midrule")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_cell(card: Card, name: str, task: str) -> str:
    entry = card.entry(name, task)
    if entry is None:
        return "--"
    mark = "$^*$" if entry.is_shortened else ""
    return f"{len(entry.cell.solved)}/{entry.seeds} ({len(entry.cell.right_on_random)}){mark}"


def bib(card: Card) -> str:
    """The entries for Assay and for the papers behind the tasks and architectures of the card."""
    keys = ["assay"]
    keys += [key for name in card.architectures for key in BY_MODEL.get(name, ())]
    keys += [key for question in card.scale.questions for key in BY_TASK.get(question.task, ())]
    entries = {m.group(1): m.group(0) for m in re.finditer(r"^@\w+\{(\w+),\n.*?^\}\n", PAPERS.read_text(), re.M | re.S)}
    return "\n".join(entries[key] for key in dict.fromkeys(keys))


def badge(card: Card) -> str:
    """A small picture for a README: each task and the seeds that solve it."""
    parts = [("assay", card.subject.title, GREY)]
    for entry in card.own:
        solved, seeds = len(entry.cell.solved), entry.seeds
        colour = GREEN if solved == seeds else AMBER if solved else GREY
        limit = f" to {entry.longest(entry.bins[-1]):,} tokens" if entry.is_shortened else ""
        parts.append((card.titles[entry.question.task], f"{solved}/{seeds}{limit}", colour))
    rows, title = [], html.escape(headline(card))
    widths = [LETTER * len(f"{name}: solved {text}") + 16 for name, text, _ in parts]
    width = max(widths)
    for number, (name, text, colour) in enumerate(parts):
        y, label = 20 * number, f"{name}: {text}" if number == 0 else f"{name}: solved {text}"
        rows.append(f'<rect y="{y}" width="{width:.0f}" height="19" rx="3" fill="{colour}"/>')
        rows.append(f'<text x="8" y="{y + 13.5}">{html.escape(label)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{20 * len(parts)}" role="img">'
        f"<title>{title}</title>"
        f'<g fill="#fff" font-family="Helvetica,Arial,sans-serif" font-size="11.5">{"".join(rows)}</g></svg>\n'
    )
