"""A study's page: Markdown and one self-contained HTML file, made from records alone."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.description import BadInput
from assay.record import Record
from assay.report.tables import Cell, bins, cells, or_dash, percent

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;font-size:14px;margin:1rem 0}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}
th:nth-child(-n+2),td:nth-child(-n+2),th:last-child,td:last-child{text-align:left}
figure{margin:1rem 0} figure svg{max-width:100%;height:auto} .wide{overflow-x:auto}
"""


def write(title: str, about: str, command: str, records: Sequence[Record], missing: int, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files. `about` says what was asked, `command` how to ask again."""
    from assay.report import figures

    of = cells(records)
    charts = [
        (
            "solved",
            figures.solved(of),
            "Which tasks are solved",
            "Solved means that every tested sequence is right at every position, also at lengths beyond those of "
            "training where the task has them.",
        ),
        (
            "by-length",
            figures.by_length(of),
            "Right sequences by length",
            "Darker is better; the red line is where the lengths of training end.",
        ),
    ]
    header, rows = _table(of)
    facts = [*_facts(records, missing), f"Made by `{command}`."]
    markdown = [f"# {title}", "", about, ""]
    page = [f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"]
    page += [f"<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>"]
    files: dict[str, str | bytes] = {}
    for name, chart, heading, text in charts:
        if chart is None:
            continue
        svg, png = figures.draw(chart)
        markdown += [f"## {heading}", "", text, "", f"![{heading}]({name}.png)", ""]
        page += [f"<h2>{heading}</h2><p>{text}</p><figure>{svg}</figure>"]
        files |= {f"{name}.svg": svg, f"{name}.png": png}
    markdown += ["## Every cell", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    markdown += [f"| {' | '.join(row)} |" for row in rows]
    markdown += ["", *(f"- {fact}" for fact in facts), ""]
    page += [
        "<h2>Every cell</h2><div class=wide><table><tr>",
        *(f"<th>{html.escape(name)}</th>" for name in header),
        "</tr>",
    ]
    page += ["<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows]
    page += ["</table></div><ul>", *(f"<li>{html.escape(fact)}</li>" for fact in facts), "</ul>"]
    files |= {"index.md": "\n".join(markdown), "index.html": "\n".join(page)}
    return [_save(folder / name, data) for name, data in sorted(files.items())]


def _table(of: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    named = bins(of)
    probes = sorted({s.probe for cell in of for r in cell.records for s in r.scores if s.probe})
    header = ["task", "model", "solved", "95 %", *named, *(f"Bin0 {probe}" for probe in probes)]
    header += ["first wrong", "steps", "seconds", "parameters", "state floats", "verdict"]
    rows = []
    for cell in of:
        sizes = cell.finished[0] if cell.finished else cell.records[0]
        rows.append(
            [
                cell.task,
                cell.label,
                f"{len(cell.solved)} of {len(cell.records)}",
                cell.interval_in_percent,
                *(percent(cell.accuracy(name)) for name in named),
                *(percent(cell.accuracy("Bin0", probe)) for probe in probes),
                or_dash(cell.first_failing_length),
                or_dash(cell.steps_to_solve),
                or_dash(cell.seconds_to_solve),
                f"{sizes.parameters}",
                or_dash(sizes.state_floats),
                cell.verdicts,
            ]
        )
    return header, rows


def _facts(records: Sequence[Record], missing: int) -> list[str]:
    """Where the figures come from, and what is not in them."""
    minutes = sum(sum(record.seconds.values()) for record in records) / 60
    facts = [
        f"{len(records)} runs, {minutes:.1f} minutes of work in all; bins show the mean share of right sequences in %, "
        "a run that diverged counting as 0; steps and seconds are medians over the seeds that solved.",
        f"Commit {_each(r.commit or 'unknown' for r in records)}; device {_each(r.device for r in records)}; "
        f"torch {_each(r.versions.get('torch', '?') for r in records)}; "
        f"seeds {_each(str(r.seed) for r in records)}.",
    ]
    shared = [score for r in records for score in r.scores if score.shared and not score.probe]
    if shared:
        tasks = sorted({r.task for r in records if any(score.shared for score in r.scores)})
        facts.append(
            "Some lengths have fewer than 64 strings, too few to hold any out: test rows that training or validation "
            f"may have shown occur in {', '.join(tasks)} (the records count them)."
        )
    facts += [f"Failed: {r.task} {r.model} seed {r.seed}: {r.error}" for r in records if r.error]
    if missing:
        facts.append(f"{missing} runs of the study are not in the store yet.")
    return facts


def _each(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _save(path: Path, data: str | bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None
    return path
