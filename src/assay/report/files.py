"""The files beside a page for other programs: cells and findings as CSV, the first comparison as LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from assay.analysis.cells import Cell, bins, median_steps, wilson
from assay.analysis.findings import Evidence, Judgement
from assay.analysis.grid import Grid
from assay.analysis.summary import StudySummary
from assay.findings import ABOUT_SEEDS
from assay.record import Verdict
from assay.report.findings import LEARNED_IN_PERCENT, chosen_setting
from assay.report.text import in_percent, percent

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {letter: f"\\{letter}" for letter in "&%$#_{}"}
MATHS = re.compile(r"(\w[_^]\w ?)+")


def cells_csv(grid: Grid, up_to: str) -> str:
    """Every cell with all its numbers; steps are those of the seeds that have learned up to this bin."""
    rows = [(cell, cell is grid.chosen[pair]) for pair, cells in grid.cells.items() for cell in cells]
    names = bins(cell for cell, _ in rows)
    return as_csv([_cell(cell, is_chosen, names, up_to) for cell, is_chosen in rows])


def _cell(cell: Cell, is_chosen: bool, names: Sequence[str], up_to: str) -> dict[str, Any]:
    tested, seeds, sizes = bins([cell]), len(cell.records), cell.records[0]
    row: dict[str, Any] = {"variant": cell.model, "task": cell.task, "setting": cell.setting}
    row |= {"chosen": "yes" if is_chosen else "no", "seeds": seeds}
    for name in names:
        learned = len(cell.learned(name)) if name in tested else None
        low, high = (None, None) if learned is None else wilson(learned, seeds)
        row |= {f"learned up to {name}": learned, f"low {name}": low, f"high {name}": high}
        row |= {f"perfect up to {name}": len(cell.perfect(name)) if name in tested else None}
        row |= {f"accuracy {name}": cell.accuracy(name)}
    verdicts = Counter(record.verdict for record in cell.records)
    row |= {verdict: verdicts[verdict] for verdict in get_args(Verdict) if verdict != "failed"}
    row |= {f"median steps to {LEARNED_IN_PERCENT} of validation": median_steps(cell.learned(up_to))}
    row |= {"seconds": sum(sum(record.seconds.values()) for record in cell.records)}
    row |= {"first wrong length": cell.first_failing_length}
    return row | {"parameters": sizes.parameters, "state floats": sizes.state_floats}


def findings_csv(judgements: Iterable[Judgement], grid: Grid) -> str:
    """One row for each expectation."""
    return as_csv([_expected(judged, evidence, grid) for judged in judgements for evidence in judged.evidence])


def _expected(judged: Judgement, evidence: Evidence, grid: Grid) -> dict[str, Any]:
    finding, expected, runs = judged.finding, evidence.expected, len(evidence.runs)
    about_seeds = expected.outcome in ABOUT_SEEDS
    low, high = wilson(evidence.count(), runs) if runs else (None, None)
    return {
        "finding": finding.name,
        "says": finding.says,
        "source": finding.source,
        "status": judged.status(),
        "status if perfect": judged.status(1.0),
        "variant": expected.variant,
        "task": expected.task or "all tasks",
        "expected": expected.outcome,
        "up to": expected.up_to if about_seeds else "",
        "setting": chosen_setting(evidence, grid),
        "count": evidence.count() if runs else None,
        "runs": runs,
        "low": low,
        "high": high,
        "validation learned at some check": evidence.at_some_check if about_seeds and runs else None,
        "validation learned when tested": evidence.as_tested if about_seeds and runs else None,
        "met": {True: "yes", False: "no", None: ""}[evidence.met()],
    }


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _plain(value: Any) -> str:
    """Empty for an unknown value; six digits are more than seeds can tell."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def table_tex(grid: Grid, summary: StudySummary, up_to: str) -> str:
    """The first comparison as a tabular for \\input: two lines a variant, the mean accuracy and the seeds."""
    comparison = summary.comparisons[0]
    tasks = grid.tasks(comparison)
    lines = [
        f"% {comparison.title}. In the setting chosen by validation: mean share of right sequences in {up_to} in %;",
        f"% below, seeds that have learned up to {up_to}, and Wilson's 95 % interval of their share in %.",
        f"% Made by: {summary.report_command}",
        f"\\begin{{tabular}}{{l{'c' * len(tasks)}}}",
        r"\hline",
        f"{' & '.join(['', *(title_tex(summary.task(task)) for task in tasks)])} \\\\",
        r"\hline",
    ]
    for variant in comparison.variants:
        cells = [grid.chosen.get((variant, task)) for task in tasks]
        lines.append(f"{' & '.join([escaped(variant), *(_accuracy(cell, up_to) for cell in cells)])} \\\\")
        lines.append(f"{' & '.join(['', *(_seeds(cell, up_to) for cell in cells)])} \\\\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def _accuracy(cell: Cell | None, up_to: str) -> str:
    return percent(cell.accuracy(up_to)) if cell else ""


def _seeds(cell: Cell | None, up_to: str) -> str:
    if cell is None:
        return ""
    learned, seeds = len(cell.learned(up_to)), len(cell.records)
    return f"{{\\footnotesize {learned}/{seeds} ({in_percent(wilson(learned, seeds)).replace('-', '--')})}}"


def title_tex(title: str) -> str:
    """
    >>> title_tex("a^n b^n"), title_tex("Z_5"), title_tex("my_task")
    ('$a^n b^n$', '$Z_5$', 'my\\\\_task')
    """
    return f"${title}$" if MATHS.fullmatch(title) else escaped(title)


def escaped(text: str) -> str:
    """
    >>> escaped("a_b & 50 % ^n")
    'a\\\\_b \\\\& 50 \\\\% \\\\textasciicircum{}n'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)
