"""The page of a study that repeats a paper: findings judged, the paper's table made again, and further comparisons."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from assay.analysis.cells import Cell, median_steps, rates, wilson
from assay.analysis.device_time import device_minutes
from assay.analysis.findings import judge_grid
from assay.analysis.grid import Grid, Pair
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import Span, StudySummary
from assay.errors import BadInput
from assay.findings import ABOUT_SEEDS, Comparison
from assay.record import Record
from assay.report import files
from assay.report.findings import LEARNED_IN_PERCENT, findings_table, in_short
from assay.report.page import STYLE, Page, Shaded
from assay.report.provenance import device_time, provenance
from assay.report.text import distinct, in_percent, percent

UP_TO = "Bin1"  # as far as the first paper looked
BAD_ENDS = ("diverged", "collapsed")
Value = TypeVar("Value")
MORE_STYLE = """
table.grid th,table.grid td{text-align:center;padding:.25rem .4rem}
table.grid td,td.lines{font-size:12.5px;line-height:1.35}
table.grid th:first-child,table.grid td:first-child{text-align:left;font-size:inherit}
table.findings th,table.findings td{text-align:left;vertical-align:top;white-space:normal}
table.findings td:first-child{min-width:18rem} table.findings td:last-child{min-width:30rem}
table.findings td:first-child::first-line{font-weight:600}
"""
NOTE = "shares of right sequences are means over seeds, rounded down, and a run that diverged counts as 0"
STEPS = f"the median number of steps until {LEARNED_IN_PERCENT} of validation was right"
SEEDS = f"the seeds that have learned up to {UP_TO}, with Wilson's 95 % interval of their share in %"


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    grid, page = Grid(summary.variants, records), Page(summary.title, summary.question, STYLE + MORE_STYLE)
    judgements = judge_grid(summary.findings, grid)
    page.words("In short", "")
    page.facts([*in_short(judgements, summary), _runs(records, missing)])
    if _begun(grid, summary.comparisons[0]):
        _at_a_glance(page, grid, summary)
    tasks_table(page, summary)
    if judgements:
        findings_table(page, judgements, grid, summary)
    _comparisons(page, grid, summary)
    cost(page, summary, records)
    page.facts(
        [
            *provenance(records, missing, NOTE, summary.task_titles),
            f"{summary.made_by} Beside this page: cells.csv (every cell with all its numbers), findings.csv (every "
            "expectation), table.tex (the first table).",
        ]
    )
    page.files |= {
        "cells.csv": files.cells_csv(grid, UP_TO),
        "findings.csv": files.findings_csv(judgements, grid),
        "table.tex": files.table_tex(grid, summary, UP_TO),
    }
    return page


def headline(summary: StudySummary, records: Sequence[Record]) -> list[list[str]]:
    """The first comparison in short, header first: the number of seeds that have learned up to Bin1."""
    grid = Grid(summary.variants, records)
    counts = (grid.chosen, grid, summary, summary.comparisons[0])
    header, rows = _table(*counts, lambda cell: _count(cell.learned(UP_TO), cell))
    return [header, *rows]


def _runs(records: Sequence[Record], missing: int) -> str:
    failures = sum(not record.finished for record in records)
    failed = f" ({failures:,} failed)" if failures else ""
    return f"{len(records):,} of {len(records) + missing:,} runs{failed}, {device_time(records)}."


def tasks_table(page: Page, summary: StudySummary) -> None:
    rows = []
    for task, setup in summary.tasks.items():
        tested = ", ".join(map(_span, setup.bins))
        numbers = (_span(setup.trained), tested, f"{setup.validated:,}", _span(setup.steps), _span(setup.batch))
        rows.append([summary.task(task), task, setup.summary, *numbers])
    page.table(
        "The tasks",
        ("task", "on the command line", "question", "trained on", "test bins", "validated to", "steps", "batch"),
        rows,
        "Lengths are in symbols; test bins are Bin0, Bin1 and so on. A run has diverged if its loss, its gradient or a "
        "parameter became NaN or infinite, or if its loss reached a bound (1,000 nats unless its spec says "
        "otherwise). It has collapsed if Bin0 is not solved and at least 99.9 % of its answers there are the same.",
    )


def _span(span: Span) -> str:
    """`51-100`, or one number."""
    return "-".join(f"{end:,}" for end in dict.fromkeys(span))


def _comparisons(page: Page, grid: Grid, summary: StudySummary) -> None:
    """The first in detail, the others as a table each, and one line that names those without any finished cell."""
    first = summary.comparisons[0]
    if first.tasks:
        raise BadInput(f"the first comparison, '{first.title}', covers all tasks of its variants; it cannot name some")
    begun = [comparison for comparison in summary.comparisons if _begun(grid, comparison)]
    if first in begun:
        _first(page, grid, summary)
        _robustness(page, grid, summary)
        _divergence(page, grid, summary)
    for comparison in (comparison for comparison in begun if comparison != first):
        page.table(
            comparison.title,
            *_table(grid.chosen, grid, summary, comparison, _compared),
            f"{comparison.says} In each cell: the mean share of right sequences in {UP_TO} in %; {SEEDS}; and {STEPS}. "
            f"{_limits(grid, summary, comparison)}",
            "grid",
        )
    if waiting := [comparison.title for comparison in summary.comparisons if comparison not in begun]:
        page.words("", f"Not run yet: {'; '.join(waiting)}.")


def _begun(grid: Grid, comparison: Comparison) -> bool:
    return any(pair in grid.cells for pair in grid.pairs(comparison))


def _limits(grid: Grid, summary: StudySummary, comparison: Comparison) -> str:
    """`Limits: parity, Dyck-1: 5,000 steps at lr 0.001, 0.003.`"""
    tasks_by_limit: dict[str, list[str]] = {}
    for task in grid.tasks(comparison):
        cells = (grid.pooled.get((variant, task)) for variant in comparison.variants)
        records = [record for cell in cells if cell for record in cell.records]
        if records:
            steps = [record.spec["training"]["steps"] for record in records]
            limit = f"{_span((min(steps), max(steps)))} steps at lr {', '.join(rates(records))}"
            tasks_by_limit.setdefault(limit, []).append(summary.task(task))
    limits = (f"{', '.join(tasks)}: {limit}" for limit, tasks in tasks_by_limit.items())
    return f"Trained at most: {'; '.join(limits)}."


def _at_a_glance(page: Page, grid: Grid, summary: StudySummary) -> None:
    from assay.report import figures, paper_figures

    first = summary.comparisons[0]
    page.chart(
        "table",
        paper_figures.table(grid, summary, UP_TO),
        first.title,
        f"{first.says} Upper chart: seeds that have learned up to {UP_TO}, with at least {LEARNED_IN_PERCENT} of the "
        "sequences of each bin right. Lower chart: seeds that are perfect up to the longest lengths tested. Of several "
        f"settings, the one with the best validation is shown. {figures.SHADING} Blank: not all runs have finished.",
    )


def _first(page: Page, grid: Grid, summary: StudySummary) -> None:
    from assay.report import figures, paper_figures

    first = summary.comparisons[0]
    page.table(
        f"{first.title}, in numbers",
        *_table(grid.chosen, grid, summary, first, _accuracy_and_seeds),
        f"In each cell: the mean share of right sequences in {UP_TO} in %; {SEEDS}; and how many of these seeds are "
        "perfect. On the web page, a cell is the bluer, the larger the lower end of this interval, here and below.",
        "grid",
    )
    page.table(
        "At the longest lengths",
        *_table(grid.chosen, grid, summary, first, _to_the_end),
        "The mean share of right sequences in the last bin in %, and the seeds that are perfect in all bins.",
        "grid",
    )
    page.chart(
        "by-length",
        paper_figures.by_length(grid, summary),
        "Accuracy against length",
        "The share of right sequences by length: lines are means over the seeds of the chosen setting, dots are seeds "
        "(larger where several agree). Each bin is divided into up to three ranges of length. Dashed: the end of the "
        "lengths of training. Lines are drawn a little apart, so that none hides another. A run that diverged counts "
        "as 0.",
    )
    shown = [cell for task in grid.tasks(first) for v in first.variants if (cell := grid.chosen.get((v, task)))]
    page.lengths(figures.accuracies(shown, summary.task_titles))


def _table(
    cells: Mapping[Pair, Cell],
    grid: Grid,
    summary: StudySummary,
    comparison: Comparison,
    show: Callable[[Cell], Value],
) -> tuple[list[str], list[list[str | Value]]]:
    """Variants down, tasks across; a cell that was not run is empty."""
    tasks = grid.tasks(comparison)
    rows: list[list[str | Value]] = []
    for variant in comparison.variants:
        row = (cells.get((variant, task)) for task in tasks)
        rows.append([variant, *("" if cell is None else show(cell) for cell in row)])
    return ["", *map(summary.task, tasks)], rows


def _accuracy_and_seeds(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    perfect = [f"{len(cell.perfect(UP_TO))} perfect"] if learned else []
    return _shaded(learned, cell, percent(cell.accuracy(UP_TO)), _with_interval(learned, cell), *perfect)


def _to_the_end(cell: Cell) -> Shaded:
    perfect = cell.perfect(cell.longest_bin)
    return _shaded(perfect, cell, percent(cell.accuracy(cell.longest_bin)), _with_interval(perfect, cell))


def _compared(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    return _shaded(learned, cell, percent(cell.accuracy(UP_TO)), *_seeds_and_steps(learned, cell))


def _pooled(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    ends: Counter[str] = Counter(record.verdict for record in cell.records)
    bad = (f"{ends[end]} {end}" for end in BAD_ENDS if ends[end])
    return _shaded(learned, cell, *_seeds_and_steps(learned, cell), *bad)


def _seeds_and_steps(learned: Sequence[Record], cell: Cell) -> list[str]:
    steps = median_steps(learned)
    return [_with_interval(learned, cell), *([] if steps is None else [f"{steps:,.0f} steps"])]


def _shaded(successes: Sequence[Record], cell: Cell, *lines: str) -> Shaded:
    """A cell as dark as the lower end of Wilson's interval: 1 of 1 says less than 10 of 10."""
    return Shaded("\n".join(lines), wilson(len(successes), len(cell.records))[0])


def _count(successes: Sequence[Record], cell: Cell) -> str:
    return f"{len(successes)} of {len(cell.records)}"


def _with_interval(successes: Sequence[Record], cell: Cell) -> str:
    return f"{_count(successes, cell)} ({in_percent(wilson(len(successes), len(cell.records)))})"


def _robustness(page: Page, grid: Grid, summary: StudySummary) -> None:
    from assay.report import paper_figures

    page.chart(
        "by-rate",
        paper_figures.by_rate(grid, summary, UP_TO),
        "Robustness",
        f"Seeds that have learned up to {UP_TO}, by learning rate: no setting is chosen here. Blank: not run.",
    )
    page.table(
        "",
        *_table(grid.pooled, grid, summary, summary.comparisons[0], _pooled),
        f"All runs at all learning rates: those that have learned up to {UP_TO}, with Wilson's 95 % interval of their "
        f"share in %; {STEPS}; and the numbers of runs that diverged or collapsed to one answer, if any did.",
        "grid",
    )


def _divergence(page: Page, grid: Grid, summary: StudySummary) -> None:
    from assay.report import paper_figures

    heading, variants = "Divergence", summary.comparisons[0].variants
    diverged = {v: sum(record.verdict == "diverged" for record in grid.variants[v]) for v in variants}
    counts = ", ".join(f"{variant} {count:,}" for variant, count in diverged.items() if count)
    text = (
        f"Runs that diverged, at all learning rates and on all tasks above: {counts}."
        if counts
        else "None of the runs above diverged."
    )
    suspects = {e.variant for f in summary.findings for e in f.expects if e.outcome not in ABOUT_SEEDS}
    shown = [_worst(grid, variant) for variant, count in diverged.items() if count or variant in suspects]
    if not any(shown):
        page.words(heading, text)
        return
    page.chart(
        "divergence",
        paper_figures.losses([cell for cell in shown if cell], summary, UP_TO),
        heading,
        f"{text} The training loss of each run, in a panel for each learning rate, on the task on which most of the "
        "model's runs diverged (or else collapsed, or were censored). A cross marks where a run diverged, at its last "
        "recorded loss, or at the top if it has none; x7 beside a cross means seven runs.",
    )


def _worst(grid: Grid, variant: str) -> Cell | None:
    """A variant's runs on the task on which most of them diverged, or else ended badly."""

    def badness(cell: Cell) -> tuple[int, int]:
        ends = [record.verdict for record in cell.records]
        return ends.count("diverged"), sum(end in ("diverged", "collapsed", "censored") for end in ends)

    return max((cell for pair, cell in grid.pooled.items() if pair[0] == variant), key=badness, default=None)


def cost(page: Page, summary: StudySummary, records: Sequence[Record]) -> None:
    by_digest = {record.digest: record for record in records}
    pieces = {name: [by_digest[d] for d in digests if d in by_digest] for name, digests in summary.pieces.items()}
    minutes = device_minutes(pieces)
    asked = summary.replication or summary.separations or summary.tracking
    questions = asked.questions if asked else {}
    rows = [
        [
            name,
            *([questions.get(name, "")] if questions else []),
            f"{len(runs):,} of {len(summary.pieces[name]):,}",
            f"{minutes[name]:,.1f}" if runs else "",
            distinct(r.device for r in runs),
            distinct(r.commit or "unknown" for r in runs),
            f"{summary.study_command} --piece {shlex.quote(name)}",
        ]
        for name, runs in pieces.items()
    ]
    if rows:
        page.table(
            "Cost",
            ("piece", *(["question"] if questions else []), "runs", "minutes", "device", "commit", "command"),
            rows,
            "The number of recorded runs of each piece, and the minutes that it had the device, from the start of its "
            "runs to their end (minutes of work, where a record does not say when it ended). Pieces that ran on a "
            "device at the same time share its time equally.",
        )
