"""A study's page, made from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.record import Record
from assay.report import judged, paper
from assay.report.about import About
from assay.report.facts import facts
from assay.report.grid import Grid
from assay.report.page import Page
from assay.report.tables import Cell, bins, cells, or_dash, percent

NOTE = (
    "bins show the mean share of right sequences in %, a run that diverged counting as 0; steps and seconds are "
    "medians over the seeds that solved"
)


def write(about: About, records: Sequence[Record], missing: int, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files."""
    if about.comparisons:
        return paper.write(about, records, missing, folder)
    from assay.report import figures

    of, page = cells(records), Page(about.title, about.asks)
    if about.findings:
        grid = Grid(about.variants, records)
        judged.findings(page, judged.judgements(about.findings, grid), grid)
    page.chart(
        "solved",
        figures.solved(of),
        "Which tasks are solved",
        "Solved means that every tested sequence is right at every position, also at lengths beyond those of "
        "training where the task has them.",
    )
    page.chart(
        "by-length",
        figures.by_length(of),
        "Right sequences by length",
        "Darker is better; the red line is where the lengths of training end.",
    )
    page.table("Every cell", *_table(of))
    page.facts([*facts(records, missing, NOTE), about.made_by])
    return page.save(folder)


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
                f"{sizes.parameters:,}",
                or_dash(sizes.state_floats),
                cell.verdicts,
            ]
        )
    return header, rows
