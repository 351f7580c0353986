"""The page of records without a study: models by task, charts, every setting; with CSV and LaTeX beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.analysis.cells import Cell, bins
from assay.analysis.collection import Collection, run_rows
from assay.report import figures
from assay.report.files import as_csv, escaped, title_tex
from assay.report.page import MATRIX_STYLE, STYLE, Page, Shaded
from assay.report.provenance import provenance
from assay.report.study_page import NOTE, cell_table
from assay.report.text import listed, percent

MATRIX = (
    "Seeds that solve the task (every random test sequence and every probe is right), and below them the mean share of "
    "right sequences in the longest test bin, in %. Of several settings of a model, validation chose one. A run that "
    "failed with an error counts neither way."
)


def write(collection: Collection, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    return render(collection).save(folder)


def render(collection: Collection) -> Page:
    page, chosen = Page(collection.title, about(collection), STYLE + MATRIX_STYLE), collection.chosen
    if len(chosen) > 1 or collection.failed:
        page.table("Models by task", *matrix(collection), MATRIX, kind="matrix")
    page.chart(
        "by-length",
        figures.by_length(chosen, {}),
        "Right sequences by length",
        "In the settings that validation chose. Darker is better. Columns are the tested lengths, not to scale; those "
        "of training end at the red line.",
    )
    page.lengths(figures.accuracies(chosen, {}))
    page.table("Every setting", *cell_table(collection.cells, {}))
    records = [r for runs in (collection.records, *_beside(collection)) for r in runs]
    files = "Beside this page: cells.csv (every setting), runs.csv (every run) and table.tex (models by task)."
    page.facts([*_pending(collection), *provenance(records, 0, NOTE, {}), f"Made by `{collection.command}`. {files}"])
    page.files |= {"cells.csv": cells_csv(collection), "runs.csv": as_csv(run_rows(records))}
    page.files["table.tex"] = table_tex(collection)
    return page


def about(collection: Collection) -> str:
    """What the records are, in a sentence or two."""
    text = f"{len(collection.records):,} runs of {listed(sorted({r.model for r in collection.records}))}."
    for study, runs in zip(collection.beside, _beside(collection), strict=True):
        text += f" Beside them are {len(runs):,} published runs of {study} with the same tasks, lengths and test bins"
        text += "; models, steps and rates are those of that study."
    return text


def _pending(collection: Collection) -> list[str]:
    """How many runs are still to come."""
    if not collection.pending:
        return []
    return [
        f"{collection.pending:,} runs that commands on this store have named have no record yet. Runs that learn soon "
        "end first, so the numbers above may be better than those of all runs will be."
    ]


def _beside(collection: Collection) -> list[list[Any]]:
    return [[r for runs in variants.values() for r in runs] for variants in collection.beside.values()]


def matrix(collection: Collection) -> tuple[list[str], list[list[str | Shaded]]]:
    """Models down, tasks across; a model that was not run on a task has a dash."""
    rows: list[list[str | Shaded]] = []
    for variant in collection.variants:
        pairs = [(variant, task) for task in collection.tasks]
        rows.append([variant, *(_square(collection.grid.chosen.get(pair), collection.failed[pair]) for pair in pairs)])
    return ["model", *collection.tasks], rows


def _square(cell: Cell | None, failed: int) -> str | Shaded:
    """The seeds that have a result, and below them how many runs failed with an error and have none."""
    errors = f"{failed} failed" if failed else ""
    if cell is None:
        return errors or "-"
    solved, seeds = len(cell.solved), len(cell.records)
    return Shaded("\n".join(filter(None, [f"{solved} of {seeds}", longest_accuracy(cell), errors])), solved / seeds)


def longest_accuracy(cell: Cell) -> str:
    """The mean share of right sequences in the longest test bin, in percent."""
    return percent(cell.accuracy(cell.longest_bin))


def cells_csv(collection: Collection) -> str:
    names, chosen = bins(collection.cells), collection.chosen
    return as_csv([_csv_row(cell, any(cell is other for other in chosen), names) for cell in collection.cells])


def _csv_row(cell: Cell, is_chosen: bool, names: Sequence[str]) -> dict[str, Any]:
    sizes = cell.records[0]
    row: dict[str, Any] = {"task": cell.task, "model": cell.model, "setting": cell.setting}
    row |= {"chosen by validation": "yes" if is_chosen else "no", "seeds": len(cell.records)}
    row |= {"right on random": len(cell.right_on_random), "solved": len(cell.solved)}
    row |= dict(zip(("low", "high"), cell.interval, strict=True))
    row |= {f"accuracy {name}": cell.accuracy(name) for name in names}
    row |= {"first wrong length": cell.first_failing_length, "wrong word": cell.wrong_word}
    row |= {"steps to solve": cell.steps_to_solve, "seconds to solve": cell.seconds_to_solve}
    return row | {"parameters": sizes.parameters, "state floats": sizes.state_floats, "state bits": sizes.state_bits}


def table_tex(collection: Collection) -> str:
    """Models by task as a tabular for \\input; it needs the package booktabs."""
    tasks = collection.tasks
    lines = [
        "% Seeds that solve the task, and in small digits the mean share of right sequences in the longest test bin",
        f"% in %, in the setting that validation chose. Made by: {collection.command}",
        f"\\begin{{tabular}}{{l{'c' * len(tasks)}}}",
        r"\toprule",
        f"{' & '.join(['', *map(title_tex, tasks)])} \\\\",
        r"\midrule",
    ]
    for variant in collection.variants:
        pairs = [(variant, task) for task in tasks]
        cells = (_tex_square(collection.grid.chosen.get(pair), collection.failed[pair]) for pair in pairs)
        lines.append(f"{' & '.join([escaped(variant), *cells])} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_square(cell: Cell | None, failed: int) -> str:
    errors = f" {{\\footnotesize ({failed} failed)}}" if failed else ""
    if cell is None:
        return f"--{errors}"
    return f"{len(cell.solved)}/{len(cell.records)} {{\\footnotesize {longest_accuracy(cell)}}}{errors}"
