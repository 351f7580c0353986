"""The page of a study that repeats a paper: its findings judged, its table re-made, and what is compared beside it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from assay.description import BadInput
from assay.findings import ABOUT_SEEDS, Comparison
from assay.record import Record
from assay.report import files, judged
from assay.report.about import About, Span
from assay.report.facts import each, facts, minutes, took
from assay.report.grid import Grid, Place, last_bin
from assay.report.page import STYLE, Page, Shaded
from assay.report.tables import Cell, in_percent, median_steps, percent, rates, wilson

UP_TO = "Bin1"  # as far as the first paper looked
TROUBLE = ("diverged", "collapsed")
Value = TypeVar("Value")
MORE_STYLE = """
table.grid th,table.grid td{text-align:center;padding:.25rem .4rem}
table.grid td,td.lines{font-size:12.5px;line-height:1.35}
table.grid th:first-child,table.grid td:first-child{text-align:left;font-size:inherit}
table.findings th,table.findings td{text-align:left;vertical-align:top;white-space:normal}
table.findings td:first-child{min-width:18rem} table.findings td:last-child{min-width:30rem}
table.findings td:first-child::first-line{font-weight:600}
"""
NOTE = "shares of right sequences are means over seeds, a run that diverged counting as 0, and are rounded down"
STEPS = f"the median steps until {judged.LEARNED_IN_PERCENT} of validation was right"


def write(about: About, records: Sequence[Record], missing: int, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    grid, page = Grid(about.variants, records), Page(about.title, about.asks, STYLE + MORE_STYLE)
    first, judgements = about.comparisons[0], judged.judgements(about.findings, grid)
    page.words("In short", "")
    page.facts([*judged.in_short(judgements), _runs(records, missing)])
    if _begun(grid, first):
        _at_a_glance(page, grid, first)
    _tasks(page, about)
    if judgements:
        judged.findings(page, judgements, grid)
    _comparisons(page, grid, about)
    _cost(page, about, records)
    page.facts(
        [
            *facts(records, missing, NOTE),
            f"{about.made_by} Beside this page: cells.csv (every cell with all its numbers), findings.csv (every "
            "expectation), table.tex (the first table).",
        ]
    )
    page.files |= {
        "cells.csv": files.cells_csv(grid, UP_TO),
        "findings.csv": files.findings_csv(judgements, grid),
        "table.tex": files.table_tex(grid, first, UP_TO, about.report_command),
    }
    return page.save(folder)


def headline(about: About, records: Sequence[Record]) -> list[list[str]]:
    """The first comparison in short, header first: in how many seeds is it learned up to Bin1?"""
    grid = Grid(about.variants, records)
    header, rows = _table(grid.chosen, grid, about.comparisons[0], lambda cell: _count(cell.learned(UP_TO), cell))
    return [header, *rows]


def _runs(records: Sequence[Record], missing: int) -> str:
    failed = sum(not record.finished for record in records)
    which = f" ({failed:,} failed)" if failed else ""
    return f"{len(records):,} of {len(records) + missing:,} runs{which}, {took(records)}."


def _tasks(page: Page, about: About) -> None:
    rows = []
    for task, setup in about.tasks.items():
        tested = ", ".join(map(_span, setup.bins))
        numbers = (_span(setup.trained), tested, f"{setup.validated:,}", _span(setup.steps), _span(setup.batch))
        rows.append([task, setup.says, *numbers])
    page.table(
        "The tasks",
        ("task", "asks", "trained on", "test bins", "validated to", "steps", "batch"),
        rows,
        "Lengths are in symbols; test bins are Bin0, Bin1 and so on. A run has diverged if its loss, its gradient or a "
        "parameter became NaN or infinite, or its loss exceeded its bound (1,000 nats unless it says otherwise), and "
        "has collapsed if Bin0 is not solved and at least 99.9 % of the answers given there are the same one.",
    )


def _span(span: Span) -> str:
    """`51-100`, or one number."""
    return "-".join(f"{end:,}" for end in dict.fromkeys(span))


def _comparisons(page: Page, grid: Grid, about: About) -> None:
    """The first in detail, the others as a table each; in one line those of which nothing was run."""
    first = about.comparisons[0]
    if first.tasks:
        raise BadInput(f"the first comparison, '{first.title}', is of all tasks of its variants: it cannot name some")
    begun = [comparison for comparison in about.comparisons if _begun(grid, comparison)]
    if first in begun:
        _first(page, grid, first)
        _robustness(page, grid, first)
        _divergence(page, grid, first, about)
    for comparison in (comparison for comparison in begun if comparison != first):
        page.table(
            comparison.title,
            *_table(grid.chosen, grid, comparison, _compared),
            f"{comparison.says} In each cell the mean share of right sequences in {UP_TO} in %; seeds that have "
            f"learned up to {UP_TO}, and their 95 % interval in %; and {STEPS}. {_limits(grid, comparison)}",
            "grid",
        )
    if waiting := [comparison.title for comparison in about.comparisons if comparison not in begun]:
        page.words("", f"Not run yet: {'; '.join(waiting)}.")


def _begun(grid: Grid, comparison: Comparison) -> bool:
    tasks = grid.tasks(comparison.variants, comparison.tasks)
    return any((variant, task) in grid.cells for variant in comparison.variants for task in tasks)


def _limits(grid: Grid, comparison: Comparison) -> str:
    """`At most: parity, dyck-1 5,000 steps at lr 0.001, 0.003.` What differs from one comparison to the next."""
    alike: dict[str, list[str]] = {}
    for task in grid.tasks(comparison.variants, comparison.tasks):
        cells = (grid.pooled.get((variant, task)) for variant in comparison.variants)
        records = [record for cell in cells if cell for record in cell.records]
        if records:
            steps = [record.spec["training"]["steps"] for record in records]
            said = f"{_span((min(steps), max(steps)))} steps at lr {', '.join(rates(records))}"
            alike.setdefault(said, []).append(task)
    return "At most: " + "; ".join(f"{', '.join(tasks)} {limit}" for limit, tasks in alike.items()) + "."


def _at_a_glance(page: Page, grid: Grid, first: Comparison) -> None:
    from assay.report import paper_figures as figures

    page.chart(
        "table",
        figures.table(grid, first.variants, UP_TO),
        first.title,
        f"{first.says} Above, seeds that have learned up to {UP_TO}: right in at least {judged.LEARNED_IN_PERCENT} of "
        "the sequences of each bin. Below, seeds that are perfect up to the longest lengths tested. Of several "
        "settings, the one that validation likes best. Blank: not run, or not all of its runs.",
    )


def _first(page: Page, grid: Grid, first: Comparison) -> None:
    from assay.report import paper_figures as figures

    page.table(
        f"{first.title}, in numbers",
        *_table(grid.chosen, grid, first, _accuracy_and_seeds),
        f"In each cell the mean share of right sequences in {UP_TO} in %; the seeds that have learned up to {UP_TO}, "
        "and in brackets Wilson's 95 % interval of their share in %; and those of them that are perfect.",
        "grid",
    )
    page.table(
        "How far it carries",
        *_table(grid.chosen, grid, first, _to_the_end),
        "The mean share of right sequences in the last bin in %, and the seeds that are perfect to its end.",
        "grid",
    )
    page.chart(
        "by-length",
        figures.by_length(grid, first.variants),
        "Accuracy against length",
        "Right sequences by length: lines are means over the seeds of the chosen setting, dots are seeds (larger where "
        "several agree). Each bin is cut into up to three stretches of length. Dashed: where the lengths of training "
        "end. All lines are drawn a little apart, so that none hides another. A run that diverged counts as 0.",
    )


def _table(
    cells: Mapping[Place, Cell], grid: Grid, comparison: Comparison, said: Callable[[Cell], Value]
) -> tuple[list[str], list[list[str | Value]]]:
    """Variants down, tasks across; a cell that was not run is empty."""
    tasks = grid.tasks(comparison.variants, comparison.tasks)
    rows: list[list[str | Value]] = []
    for variant in comparison.variants:
        mine = (cells.get((variant, task)) for task in tasks)
        rows.append([variant, *("" if cell is None else said(cell) for cell in mine)])
    return ["", *tasks], rows


def _accuracy_and_seeds(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    perfect = [f"{len(cell.right(UP_TO))} perfect"] if learned else []
    return _shaded(learned, cell, percent(cell.accuracy(UP_TO)), _with_interval(learned, cell), *perfect)


def _to_the_end(cell: Cell) -> Shaded:
    last = last_bin(cell)
    right = cell.right(last)
    return _shaded(right, cell, percent(cell.accuracy(last)), _with_interval(right, cell))


def _compared(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    return _shaded(learned, cell, percent(cell.accuracy(UP_TO)), *_soon(learned, cell))


def _pooled(cell: Cell) -> Shaded:
    learned = cell.learned(UP_TO)
    ends: Counter[str] = Counter(record.verdict for record in cell.records)
    return _shaded(learned, cell, *_soon(learned, cell), *(f"{ends[end]} {end}" for end in TROUBLE if ends[end]))


def _soon(learned: Sequence[Record], cell: Cell) -> list[str]:
    steps = median_steps(learned)
    return [_with_interval(learned, cell), *([] if steps is None else [f"{steps:,.0f} steps"])]


def _shaded(some: Sequence[Record], cell: Cell, *lines: str) -> Shaded:
    return Shaded("\n".join(lines), len(some) / len(cell.records))


def _count(some: Sequence[Record], cell: Cell) -> str:
    return f"{len(some)} of {len(cell.records)}"


def _with_interval(some: Sequence[Record], cell: Cell) -> str:
    return f"{_count(some, cell)} ({in_percent(wilson(len(some), len(cell.records)))})"


def _robustness(page: Page, grid: Grid, first: Comparison) -> None:
    from assay.report import paper_figures as figures

    page.chart(
        "by-rate",
        figures.by_rate(grid, first.variants, UP_TO),
        "Robustness",
        f"Seeds that have learned up to {UP_TO}, by learning rate: no setting is chosen here. Blank: not run.",
    )
    page.table(
        "",
        *_table(grid.pooled, grid, first, _pooled),
        f"All runs at all learning rates: those that have learned up to {UP_TO}, their 95 % interval in %, "
        f"{STEPS}, and how many runs diverged or collapsed to one answer, if any.",
        "grid",
    )


def _divergence(page: Page, grid: Grid, first: Comparison, about: About) -> None:
    from assay.report import paper_figures as figures

    ended = {variant: _diverged(grid, variant) for variant in first.variants}
    counts = ", ".join(f"{variant} {len(some):,}" for variant, some in ended.items() if some)
    said = (
        f"Runs that diverged, at all learning rates and on all tasks above: {counts}."
        if counts
        else "None of the runs above diverged."
    )
    suspects = {e.variant for f in about.findings for e in f.expects if e.outcome not in ABOUT_SEEDS}
    shown = [_worst(grid, variant) for variant, some in ended.items() if some or variant in suspects]
    if not any(shown):
        page.words("What divergence looks like", said)
        return
    page.chart(
        "divergence",
        figures.losses([cell for cell in shown if cell], UP_TO),
        "What divergence looks like",
        f"{said} Training loss, a line for each run and a panel for each learning rate, on the task on which most of a "
        "model's runs diverged (else collapsed, or were censored). A cross: a run diverged here, at the height of the "
        "last loss that was noted, or at the top if none was; x7 beside it: seven runs did.",
    )


def _diverged(grid: Grid, variant: str) -> list[Record]:
    return [r for r in grid.variants[variant] if r.verdict == "diverged"]


def _worst(grid: Grid, variant: str) -> Cell | None:
    """A variant's runs on the task that gave it most trouble."""

    def trouble(cell: Cell) -> tuple[int, int]:
        ends = [record.verdict for record in cell.records]
        return ends.count("diverged"), sum(end in ("diverged", "collapsed", "censored") for end in ends)

    return max((cell for place, cell in grid.pooled.items() if place[0] == variant), key=trouble, default=None)


def _cost(page: Page, about: About, records: Sequence[Record]) -> None:
    found = {record.digest: record for record in records}
    pieces = {piece: [found[d] for d in digests if d in found] for piece, digests in about.pieces.items()}
    spent, rows = minutes(pieces), []
    for piece, mine in pieces.items():
        rows.append(
            [
                piece,
                f"{len(mine):,} of {len(about.pieces[piece]):,}",
                f"{spent[piece]:,.1f}" if mine else "",
                each(r.device for r in mine),
                each(r.commit or "unknown" for r in mine),
                f"{about.study_command} --piece {shlex.quote(piece)}",
            ]
        )
    if rows:
        page.table(
            "What it took",
            ("piece", "runs", "minutes", "device", "commit", "command"),
            rows,
            "Runs recorded of runs asked for, and the minutes of the device from their beginnings to their ends (of "
            "work, where a record does not say when it ended); where several pieces were under way on it at once, they "
            "share its time equally.",
        )
