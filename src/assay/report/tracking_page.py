"""The page of a study that sets many architectures side by side, beside the numbers of papers and beside theory.

The first screen answers; everything after "Appendices" is for reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.analysis.cells import Cell, bins, wilson
from assay.analysis.grid import Grid, Pair
from assay.analysis.refutations import GENERAL_FORM, refutations
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title
from assay.analysis.tracking import CLOSE, Beside, Compared, beside_theory, compare, order
from assay.errors import BadInput
from assay.findings import PublishedTable, Tracking
from assay.record import Record
from assay.report import figures
from assay.report.files import as_csv
from assay.report.page import STYLE, Page, Shaded
from assay.report.paper_page import MORE_STYLE, cost, tasks_table
from assay.report.provenance import provenance
from assay.report.study_page import cell_table
from assay.report.text import listed

MORE = """
table.grid th{vertical-align:bottom} table.grid tr>:first-child{position:sticky;left:0;background:var(--paper)}
table.grid td:first-child{max-width:17rem;white-space:normal}
"""
NOTE = "shares of right sequences are means over seeds, rounded down, and a run that diverged counts as 0"
PICTURE = (
    "Each square has the number of seeds that are right on every random test string. If fewer of them are also right "
    "on every probe (patterns that repeat, and other rare inputs), their number follows the arrow. Validation chooses "
    "the learning rate. The darker a square, the larger the lower end of the 95 % interval of the share of seeds that "
    "are right on both. Blank: not all runs have finished."
)
FEW = 6  # names in a sentence


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    tracking = summary.tracking
    if tracking is None or not summary.comparisons:
        raise BadInput(f"{summary.name} needs TRACKING and COMPARISONS for this page")
    grid, page = Grid(summary.variants, records), Page(tracking.title, summary.question, STYLE + MORE_STYLE + MORE)
    tables = [(table, compare(table, grid)) for table in tracking.published]
    theory = beside_theory(tracking, summary.predicted, grid)
    tasks = [task for task in grid.tasks(summary.comparisons[0]) if any(pair[1] == task for pair in grid.chosen)]
    page.facts([*_answer(grid, summary, tasks, tables, theory), *_unfinished(records, missing)])
    page.chart("map", _map(grid, summary, tracking, tasks), "", PICTURE)
    for table, compared in tables:
        _published(page, table, compared)
    _theory(page, summary, tracking, theory)
    page.words("Appendices", "For reference: the numbers behind the tables above, and what was run.")
    cells = [grid.chosen[pair] for task in tasks for pair in _of_task(grid, summary, task)]
    _probes(page, summary, cells)
    shown = [Cell(cell.task, row_title(cell.model), "", cell.records) for cell in cells]
    page.chart(
        "by-length",
        figures.by_length(shown, summary.task_titles),
        "Accuracy against length",
        "The share of right sequences, over the seeds at the chosen rate: the darker, the larger. The red line is "
        "where the training lengths end.",
    )
    page.lengths(figures.accuracies(shown, summary.task_titles))
    page.table("Every cell", *cell_table(shown, summary.task_titles), _rates(cells))
    tasks_table(page, summary)
    cost(page, summary, records)
    page.facts(
        [
            *provenance(records, missing, NOTE, summary.task_titles),
            f"{summary.made_by} Beside this page: cells.csv (every cell with all its numbers), published.csv (every "
            "published number with ours).",
        ]
    )
    page.files["cells.csv"] = as_csv([_cell_row(cell, bins(cells)) for cell in cells])
    page.files["published.csv"] = as_csv(
        [row for table, compared in tables for row in _published_rows(table, compared)]
    )
    return page


def _of_task(grid: Grid, summary: StudySummary, task: str) -> list[Pair]:
    return [(variant, task) for variant in summary.comparisons[0].variants if (variant, task) in grid.chosen]


# -- the first screen --------------------------------------------------------------------------------------------------


def _answer(
    grid: Grid,
    summary: StudySummary,
    tasks: Sequence[str],
    tables: Sequence[tuple[PublishedTable, Mapping[Pair, Compared]]],
    theory: Mapping[Pair, Beside],
) -> list[str]:
    """What most readers want to know, in one sentence each."""
    facts = [_leaders(grid, summary, tasks)] if tasks else []
    cells = [refutations(cell) for cell in grid.pooled.values()]
    right, refuted = (sum(getattr(cell, name) for cell in cells) for name in ("right_on_random", "refuted"))
    facts.append(
        f"Of {sum(cell.runs for cell in cells):,} runs, {right:,} are right on every random test string, and "
        f"{refuted:,} of these are wrong on a probe."
    )
    for table, compared in tables:
        counted = order(compared)
        if pairs := sum(counted):
            facts.append(
                f"{table.title}: the published numbers order {pairs} pairs of models. Ours order {counted.same} of "
                f"them in the same way and {counted.opposite} in the opposite way; {counted.close} are within "
                f"{CLOSE:.0f} points of each other here."
            )
    against = [
        f"{row_title(name)} on {summary.task(task)}" for (name, task), row in theory.items() if row.agrees is False
    ]
    known = sum(row.agrees is not None for row in theory.values())
    if known:
        which = f" ({'; '.join(against)})" if 0 < len(against) <= FEW else ""
        facts.append(
            f"Theory makes {known} statements about a class of models and a task. Training agrees with "
            f"{known - len(against)} of them: some run does what is possible, and none does what is not{which}."
        )
    return facts


def _leaders(grid: Grid, summary: StudySummary, tasks: Sequence[str]) -> str:
    """`Tasks on which some seed is right on all that was checked, of 12: PD-SSM 9, LSTM 8, ...`"""
    counts = {
        variant: sum(bool(cell.solved) for task in tasks if (cell := grid.chosen.get((variant, task))))
        for variant in summary.comparisons[0].variants
    }
    best = sorted(counts, key=lambda variant: -counts[variant])[:FEW]
    names = ", ".join(f"{row_title(variant)} {counts[variant]}" for variant in best)
    return (
        f"Tasks, of {len(tasks)}, on which some seed is right on everything that was checked (the best {len(best)} "
        f"architectures): {names}."
    )


def _unfinished(records: Sequence[Record], missing: int) -> list[str]:
    planned, finished = len(records) + missing, sum(record.finished for record in records)
    return [f"Of {planned:,} planned runs, {finished:,} have finished."] if finished < planned else []


def _map(grid: Grid, summary: StudySummary, tracking: Tracking, tasks: Sequence[str]) -> figures.Chart | None:
    """Tasks across and models down, group by group."""
    if not tasks:
        return None
    panels = []
    for number, (group, variants) in enumerate(tracking.groups.items()):
        rows = []
        for variant, task in ((variant, task) for variant in variants for task in tasks):
            if cell := grid.chosen.get((variant, task)):
                right, solved = len(cell.right_on_random), len(cell.solved)
                text = f"{right}" if right == solved else f"{right}→{solved}"
                square = figures.square(solved, len(cell.records), text)
                rows.append({"task": summary.task(task), "model": row_title(variant), **square})
        names = [summary.task(task) for task in tasks]
        chart = figures.seed_map(rows, "task", names, [row_title(v) for v in variants], True, 12, wrapped=True)
        if number:
            for layer in chart["layer"]:
                layer["encoding"]["x"] = layer["encoding"]["x"] | {"axis": None}
        title = {"text": group, "frame": "group"}
        panels.append(chart | {"width": {"step": 68}, "height": {"step": 22}, "title": title})
    return figures.styled({"vconcat": panels, "spacing": 8})


# -- beside papers and theory ------------------------------------------------------------------------------------------


def _published(page: Page, table: PublishedTable, compared: Mapping[Pair, Compared]) -> None:
    header = ["", *table.columns]
    rows: list[list[str | Shaded]] = []
    for variant in table.numbers:
        cells = [compared.get((variant, name)) for name in table.columns]
        if any(cells):
            shown = [_beside(table, variant, name, compared.get((variant, name))) for name in table.columns]
            rows.append([table.names.get(variant, row_title(variant)), *shown])
    if not rows:
        page.words(table.title, f"{table.source}. Not finished yet.")
        return
    page.table(
        table.title,
        header,
        rows,
        f"{table.source}. {table.protocol} Each cell has the {table.measure} in %: the published number, and below it "
        "the mean of our seeds, with the lowest and the highest. ▲: ours are higher. ▼: ours are lower. The mark means "
        f"that the published number is more than {CLOSE:.0f} points outside of the range of our seeds.",
        "grid",
    )


def _beside(table: PublishedTable, variant: str, name: str, compared: Compared | None) -> str:
    if name not in table.numbers[variant]:
        return ""
    published = f"{table.numbers[variant][name]:g}"
    if compared is None:
        return f"{published}\n-"
    mark = {"higher here": " ▲", "lower here": " ▼"}.get(compared.verdict, "")
    return f"{published}\n{compared.mean:.1f} ({min(compared.ours):.1f}-{max(compared.ours):.1f}){mark}"


def _published_rows(table: PublishedTable, compared: Mapping[Pair, Compared]) -> list[dict[str, Any]]:
    return [
        {
            "table": table.title,
            "measure": table.measure,
            "variant": variant,
            "column": name,
            "published": one.published,
            "mean": one.mean,
            "lowest": min(one.ours),
            "highest": max(one.ours),
            "seeds": len(one.ours),
            "verdict": one.verdict,
        }
        for (variant, name), one in compared.items()
    ]


def _theory(page: Page, summary: StudySummary, tracking: Tracking, theory: Mapping[Pair, Beside]) -> None:
    """Classes of models down, regular tasks across: what is possible, and what was trained."""
    if not theory:
        return
    tasks = [task for task in summary.predicted if any(pair[1] == task for pair in theory)]
    rows: list[list[str | Shaded]] = []
    for name in dict.fromkeys(name for name, _ in theory):
        members = [row_title(variant) for variant, its_class in tracking.classes.items() if its_class == name]
        row = (theory.get((name, task)) for task in tasks)
        rows.append([f"{name}\n{listed(members)}", *("" if one is None else _possible(one) for one in row)])
    page.table(
        "Beside theory",
        ["class of models", *map(summary.task, tasks)],
        rows,
        "Each cell has what published theorems say about the class (docs/tasks.md has their sources and assumptions), "
        "and below it the number of runs, at all learning rates, that are right on every random test string and on "
        "every probe. Theorems are about every length; tests end at 1,024 tokens. An exclamation mark: no run does "
        "what is possible (which may need more layers, width or writes per token than these models have), or some run "
        "does, up to this length, what is not possible for all lengths.",
        "grid",
    )


def _possible(one: Beside) -> Shaded:
    mark = "" if one.agrees in (True, None) else " !"
    return Shaded(f"{one.prediction.answer}{mark}\n{one.solved} of {one.runs}", wilson(one.solved, one.runs)[0])


# -- appendices --------------------------------------------------------------------------------------------------------


def _probes(page: Page, summary: StudySummary, cells: Sequence[Cell]) -> None:
    rows: list[list[str]] = []
    for cell in cells:
        found = refutations(cell)
        if found.refuted:
            shortest = "" if found.median_length is None else f"{found.median_length:,.0f}"
            counts = (str(found.right_on_random), str(found.refuted), str(found.within_training), shortest)
            rows.append([summary.task(cell.task), row_title(cell.model), *counts, found.commonest_word])
    if rows:
        page.table(
            "What probes find",
            (
                "task",
                "model",
                "right on random",
                "refuted",
                "within training lengths",
                "median length",
                "most common wrong probe",
            ),
            rows,
            "Right on random: seeds at the chosen rate that are right on every random test string. Refuted: those of "
            "them that are wrong on a probe. Within training lengths: those that are wrong on a probe that is no "
            "longer than the training inputs. Median length: of the shortest wrong probe. "
            f"{GENERAL_FORM}",
        )


def _rates(cells: Sequence[Cell]) -> str:
    """How often validation chose each rate: beyond the lowest and the highest a better one may lie."""
    counts = Counter(cell.records[0].rate for cell in cells)
    chosen = listed([f"{rate:g} ({count:,})" for rate, count in sorted(counts.items())])
    return f"The learning rates that validation chose, and in how many cells: {chosen}." if counts else ""


def _cell_row(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"task": cell.task, "variant": cell.model, "setting": cell.setting}
    row |= {"seeds": len(cell.records), "right on random": len(cell.right_on_random), "solved": len(cell.solved)}
    row |= {name: cell.accuracy(name) for name in names}
    return row | {"shortest wrong": cell.wrong_word, "parameters": cell.records[0].parameters}
