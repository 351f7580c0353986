"""The page of a study that asks what probes find: random verdicts beside probed ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.analysis.grid import Grid
from assay.analysis.refutations import GENERAL_FORM, Refutations, refutations
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary
from assay.findings import Comparison
from assay.record import Record
from assay.report import figures
from assay.report.page import Page, Shaded
from assay.report.provenance import provenance
from assay.report.text import or_dash

HEADER = [
    "task",
    "model",
    "runs",
    "right on random inputs",
    "also on every probe",
    "refuted",
    "refuted within the training lengths",
    "median length of the shortest wrong probe",
    "most common wrong probe",
]
NOTE = "all learning rates count; nothing is chosen"


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    grid, page = Grid(summary.variants, records), Page(summary.title, summary.question)
    page.words("In short", _in_short(grid, summary.comparisons[0]))
    for number, comparison in enumerate(summary.comparisons):
        pairs = [pair for pair in grid.pairs(comparison) if pair in grid.pooled]
        if not pairs:
            continue
        refuted = {pair: refutations(grid.pooled[pair]) for pair in pairs}
        rows = _rows(grid, summary, comparison, refuted)
        page.table(comparison.title, HEADER, rows, f"{comparison.says} {GENERAL_FORM}")
        if number == 0:
            page.chart(
                "random-and-probed",
                _chart(grid, summary, comparison, refuted),
                "",
                "Left: runs that are right on every random test input. Right: those that are right on all probes, too.",
            )
    empty = [
        f"{variant} on {summary.task(task)}"
        for comparison in summary.comparisons
        for variant, task in grid.pairs(comparison)
        if (variant, task) not in grid.pooled
    ]
    facts = provenance(records, missing, NOTE, summary.task_titles)
    if empty:
        facts.append(f"Unfinished cells, of which nothing is said: {'; '.join(dict.fromkeys(empty))}.")
    page.facts([*facts, summary.made_by])
    return page


def _in_short(grid: Grid, comparison: Comparison) -> str:
    cells = [refutations(grid.pooled[pair]) for pair in grid.pairs(comparison) if pair in grid.pooled]
    right, refuted = sum(cell.right_on_random for cell in cells), sum(cell.refuted for cell in cells)
    within = sum(cell.within_training for cell in cells)
    return (
        f"Of {sum(cell.runs for cell in cells):,} networks, {right:,} are right on every random test input. "
        f"{refuted:,} of these are wrong on a probe, {within:,} of them on one that is no longer than the training "
        "inputs. Cells whose runs have not all finished are left out."
    )


def _rows(
    grid: Grid, summary: StudySummary, comparison: Comparison, refuted: dict[tuple[str, str], Refutations]
) -> list[list[str | Shaded]]:
    rows: list[list[str | Shaded]] = []
    for task in grid.tasks(comparison):
        for variant in comparison.variants:
            if (variant, task) not in refuted:
                continue
            cell = refuted[variant, task]
            share = cell.solved / cell.right_on_random if cell.right_on_random else 0.0
            counts: list[str | Shaded] = [str(cell.runs), str(cell.right_on_random), Shaded(str(cell.solved), share)]
            counts += [str(cell.refuted), str(cell.within_training), or_dash(cell.median_length)]
            rows.append([summary.task(task), variant, *counts, cell.commonest_word])
    return rows


def _chart(
    grid: Grid, summary: StudySummary, comparison: Comparison, refuted: dict[tuple[str, str], Refutations]
) -> figures.Chart:
    """Two maps side by side, models down and tasks across."""

    tasks = [summary.task(task) for task in grid.tasks(comparison)]
    charts = []
    for heading, named in (("right on random inputs", True), ("right on every probe, too", False)):
        rows = []
        for (variant, task), cell in refuted.items():
            count = cell.right_on_random if named else cell.solved
            square = figures.square(count, cell.runs, f"{count} of {cell.runs}")
            rows.append({"task": summary.task(task), "model": variant, **square})
        chart = figures.seed_map(rows, "task", tasks, list(comparison.variants), named=named, size=12)
        charts.append(chart | {"width": {"step": 82}, "height": {"step": 28}, "title": heading})
    return figures.styled({"hconcat": charts})
