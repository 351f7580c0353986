"""What lies beside a page for other programs: cells and findings as CSV, the first comparison as LaTeX."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from assay.findings import ABOUT_SEEDS, Comparison, Evidence, Judgement
from assay.record import Verdict
from assay.report.grid import Grid
from assay.report.judged import LEARNED_IN_PERCENT, chosen_setting, tasks_of
from assay.report.tables import Cell, bins, in_percent, median_steps, percent, wilson

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}


def cells_csv(grid: Grid, up_to: str) -> str:
    """Every cell with all its numbers; steps are those of the seeds that have learned up to this bin."""
    places = [(cell, cell is grid.chosen[place]) for place, some in grid.cells.items() for cell in some]
    named = bins(cell for cell, _ in places)
    return _csv([_cell(cell, is_chosen, named, up_to) for cell, is_chosen in places])


def _cell(cell: Cell, is_chosen: bool, named: Sequence[str], up_to: str) -> dict[str, Any]:
    own, seeds, sizes = bins([cell]), len(cell.records), cell.records[0]
    row: dict[str, Any] = {"variant": cell.model, "task": cell.task, "setting": cell.setting}
    row |= {"chosen": "yes" if is_chosen else "no", "seeds": seeds}
    for name in named:
        learned = len(cell.learned(name)) if name in own else None
        low, high = (None, None) if learned is None else wilson(learned, seeds)
        row |= {f"learned up to {name}": learned, f"low {name}": low, f"high {name}": high}
        row |= {f"perfect up to {name}": len(cell.right(name)) if name in own else None}
        row |= {f"accuracy {name}": cell.accuracy(name)}
    verdicts = Counter(record.verdict for record in cell.records)
    row |= {verdict: verdicts[verdict] for verdict in get_args(Verdict) if verdict != "failed"}
    row |= {f"median steps to {LEARNED_IN_PERCENT} of validation": median_steps(cell.learned(up_to))}
    row |= {"seconds": sum(sum(record.seconds.values()) for record in cell.records)}
    row |= {"first wrong length": cell.first_failing_length}
    return row | {"parameters": sizes.parameters, "state floats": sizes.state_floats}


def findings_csv(judgements: Iterable[Judgement], grid: Grid) -> str:
    """One row for each expectation."""
    return _csv([_expected(judged, piece, grid) for judged in judgements for piece in judged.evidence])


def _expected(judged: Judgement, piece: Evidence, grid: Grid) -> dict[str, Any]:
    finding, expected, runs = judged.finding, piece.expected, len(piece.runs)
    low, high = wilson(piece.count(), runs) if runs else (None, None)
    return {
        "finding": finding.name,
        "says": finding.says,
        "source": finding.source,
        "verdict": judged.verdict(),
        "if perfect": judged.verdict(1.0),
        "variant": expected.variant,
        "task": tasks_of(piece),
        "expected": expected.outcome,
        "up to": expected.up_to if expected.outcome in ABOUT_SEEDS else "",
        "setting": chosen_setting(piece, grid),
        "count": piece.count() if runs else None,
        "runs": runs,
        "low": low,
        "high": high,
        "validation learned at some check": piece.at_some_check if expected.outcome in ABOUT_SEEDS and runs else None,
        "validation learned as tested": piece.as_tested if expected.outcome in ABOUT_SEEDS and runs else None,
        "met": {True: "yes", False: "no", None: ""}[piece.met()],
    }


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _plain(value: Any) -> str:
    """Empty for what is not known; six digits are more than seeds can tell."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def table_tex(grid: Grid, comparison: Comparison, up_to: str, command: str) -> str:
    """A tabular for \\input: two lines a variant, first the mean accuracy, then seeds and their interval."""
    tasks = grid.tasks(comparison.variants)
    lines = [
        f"% {comparison.title}. Of the setting chosen by validation: mean share of right sequences of {up_to} in %;",
        f"% below, seeds that have learned up to {up_to} and Wilson's 95 % interval of their share in %.",
        f"% Made by: {command}",
        f"\\begin{{tabular}}{{l{'c' * len(tasks)}}}",
        r"\hline",
        f"{' & '.join(['', *map(escaped, tasks)])} \\\\",
        r"\hline",
    ]
    for variant in comparison.variants:
        mine = [grid.chosen.get((variant, task)) for task in tasks]
        lines.append(f"{' & '.join([escaped(variant), *(_accuracy(cell, up_to) for cell in mine)])} \\\\")
        lines.append(f"{' & '.join(['', *(_seeds(cell, up_to) for cell in mine)])} \\\\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _accuracy(cell: Cell | None, up_to: str) -> str:
    return percent(cell.accuracy(up_to)) if cell else ""


def _seeds(cell: Cell | None, up_to: str) -> str:
    if cell is None:
        return ""
    learned, seeds = len(cell.learned(up_to)), len(cell.records)
    return f"{{\\footnotesize {learned}/{seeds} ({in_percent(wilson(learned, seeds)).replace('-', '--')})}}"


def escaped(text: str) -> str:
    """
    >>> escaped("a_b & 50 % ^n")
    'a\\\\_b \\\\& 50 \\\\% \\\\textasciicircum{}n'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)
