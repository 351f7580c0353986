"""The page of a study: a table of every cell, and two charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.analysis.cells import Cell, bins, cells
from assay.analysis.findings import judge_grid
from assay.analysis.grid import Grid
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary
from assay.analysis.titles import task_titles
from assay.record import Record
from assay.report.findings import findings_table
from assay.report.page import Page
from assay.report.provenance import provenance
from assay.report.text import in_percent, or_dash, percent

NOTE = (
    "random: seeds that are right on every random test input; solved: on every probe, too; first wrong: the shortest "
    "wrong input that is known, or its length; bins show the mean share of right sequences in %, and a run that "
    "diverged counts as 0; steps and seconds are medians over the seeds that solved"
)

CERTIFIED = (
    "Results of `assay certify`; `assay check` verifies a certificate by itself. The verdict is that of the network as "
    "trained, by random inputs and probes; a proof of a rounded machine is not a proof of the network without rounding "
    "(docs/verdicts.md). States: pairs of machine state and task state that occur."
)


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    from assay.report import figures

    titles = task_titles(record.spec.get("task", {}) for record in records)
    rows, page = cells(records), Page(summary.title, summary.question)
    if summary.findings:
        grid = Grid(summary.variants, records)
        findings_table(page, judge_grid(summary.findings, grid), grid, summary)
    page.chart(
        "solved",
        figures.solved(rows, titles),
        "Which tasks are solved",
        "Solved means that every tested sequence is right at every position, also at lengths beyond those of "
        f"training where the task has them, and that every probe is right. {figures.SHADING}",
    )
    page.chart(
        "by-length",
        figures.by_length(rows, titles),
        "Right sequences by length",
        "Darker is better. Columns are the tested lengths, not to scale; those of training end at the red line.",
    )
    page.lengths(figures.accuracies(rows, titles))
    page.table("Every cell", *cell_table(rows, titles))
    if any(record.certified for record in records):
        page.table("What is certified", *_certificates(rows, titles), CERTIFIED)
    page.facts([*provenance(records, missing, NOTE, titles), summary.made_by])
    return page


def cell_table(rows: Sequence[Cell], titles: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """Every cell with its numbers, under a header."""
    names = bins(rows)
    header = ["task", "model", "random", "solved", "95 %", *names]
    header += ["first wrong", "steps", "seconds", "parameters", "state floats", "verdict"]
    return header, [_row(cell, names, titles) for cell in rows]


def _certificates(rows: Sequence[Cell], titles: Mapping[str, str]) -> tuple[list[str], list[list[str]]]:
    """One row for each result of `assay certify`."""
    header = ["task", "model", "seed", "verdict", "outcome", "for", "machine", "states", "wrong input", "certificate"]
    table = [
        [
            titles.get(cell.task, cell.task),
            cell.label,
            str(record.seed),
            record.verdict,
            result.outcome,
            "" if result.outcome != "proved" else f"up to {result.length}" if result.length else "every length",
            f"rounded to {result.numbers}" if result.rounded else "as trained, float32",
            or_dash(result.states),
            result.word,
            result.certificate,
        ]
        for cell in rows
        for record in cell.records
        for result in record.certified
    ]
    return header, table


def _row(cell: Cell, names: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    sizes = cell.finished[0] if cell.finished else cell.records[0]
    return [
        titles.get(cell.task, cell.task),
        cell.label,
        f"{len(cell.right_on_random)} of {len(cell.records)}",
        f"{len(cell.solved)} of {len(cell.records)}",
        in_percent(cell.interval),
        *(percent(cell.accuracy(name)) for name in names),
        cell.first_wrong(width=30),
        or_dash(cell.steps_to_solve),
        or_dash(cell.seconds_to_solve),
        f"{sizes.parameters:,}",
        or_dash(sizes.state_floats),
        cell.verdicts,
    ]
