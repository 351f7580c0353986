"""Findings and what the records make of them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.findings import Evidence, Judgement, Verdict
from assay.report.grid import Grid
from assay.report.page import Page
from assay.report.tables import in_percent, wilson

HEADING = "What the paper found, and what is found here"
SAYS = (
    "Seeds that are right at every position of every sequence, also at the longer lengths of Bin1, with Wilson's 95 % "
    "interval; of several settings, the one that validation likes best. A model solves a task with half of its seeds "
    "or more, and fails with a tenth or fewer; between these its seeds do not agree. It diverges or collapses if a "
    "tenth of all its runs do, whatever their setting."
)
MARKS = {True: "✓", False: "✗", None: "?"}
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "in part", "not tested")
COUNTED = {"diverges": " diverged", "collapses": " collapsed"}


def findings(page: Page, judgements: Iterable[Judgement], grid: Grid) -> None:
    page.table(
        HEADING,
        ("finding", "says", "source", "verdict", "evidence"),
        (_row(judgement, grid) for judgement in judgements),
        SAYS,
        "findings",
    )


def in_short(judgements: Sequence[Judgement]) -> list[str]:
    """How many findings hold, and which; of those that hold in part, what was not as expected."""
    by = {verdict: [judged for judged in judgements if judged.verdict == verdict] for verdict in VERDICTS}
    return [
        f"{verdict.capitalize()}: {len(some)} of {len(judgements)} findings ({'; '.join(map(_named, some))})."
        for verdict, some in by.items()
        if some
    ]


def _named(judgement: Judgement) -> str:
    if judgement.verdict != "in part":
        return judgement.finding.name
    against = [_place(piece) for piece in judgement.evidence if not piece.met]
    return f"{judgement.finding.name}, but not {', '.join(against)}"


def _row(judgement: Judgement, grid: Grid) -> list[str]:
    finding = judgement.finding
    evidence = "\n".join(_line(piece, grid) for piece in judgement.evidence)
    return [finding.name, finding.says, finding.source, judgement.verdict, evidence]


def _place(evidence: Evidence) -> str:
    return f"{evidence.expected.variant} on {evidence.expected.task}"


def _line(evidence: Evidence, grid: Grid) -> str:
    """`✓ lstm on parity: 9 of 10 (60-98 %), lr=0.003`; where it is not met, also what was expected."""
    expected, runs = evidence.expected, len(evidence.runs)
    if not runs:
        return f"- {_place(evidence)}: not run"
    interval = in_percent(wilson(evidence.count, runs))
    count = f"{evidence.count} of {runs}{COUNTED.get(expected.outcome, '')} ({interval} %)"
    said = f"{MARKS[evidence.met]} {_place(evidence)}: {count}"
    if setting := chosen_setting(evidence, grid):
        said += f", {setting}"
    return said if evidence.met else f"{said}, expected: {expected.outcome}"


def chosen_setting(evidence: Evidence, grid: Grid) -> str:
    """What tells the chosen setting from the others; nothing where all runs are counted."""
    expected = evidence.expected
    if expected.outcome not in ("solves", "fails"):
        return ""
    cell = grid.chosen.get((expected.variant, expected.task))
    return cell.setting if cell else ""
