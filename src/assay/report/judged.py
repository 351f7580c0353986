"""Findings and what the records make of them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.findings import ABOUT_SEEDS, LEARNED, Evidence, Judgement, Verdict, right_up_to
from assay.report.grid import Grid
from assay.report.page import Page
from assay.report.tables import in_percent, percent, wilson

LEARNED_IN_PERCENT = f"{100 * LEARNED:.0f} %"
HEADING = "What the paper found, and what is found here"
SAYS = (
    f"A seed has learned a task if it is right at every position of at least {LEARNED_IN_PERCENT} of the sequences, "
    "also at the longer lengths of Bin1, and is perfect if of all; with Wilson's 95 % interval; of several settings, "
    "the one that validation likes best. A model learns a task with half of its seeds or more, and fails with a tenth "
    "or fewer; between these its seeds do not agree. It diverges or collapses if a tenth of all its runs do, whatever "
    "their setting. Where it does not learn what the paper says it does, the best moment is given as well: the largest "
    "share of the longer validation sequences that any of its runs got right at any check. The published code stops, "
    "chooses and reports by the same lengths, and shows that moment."
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
    """`✓ lstm on parity: 9 of 10 (60-98 %), 8 perfect, lr=0.003`; where it is not met, also what was expected."""
    expected, runs = evidence.expected, len(evidence.runs)
    if not runs:
        return f"- {_place(evidence)}: not run in full"
    interval = in_percent(wilson(evidence.count, runs))
    count = f"{evidence.count} of {runs}{COUNTED.get(expected.outcome, '')} ({interval} %)"
    said = f"{MARKS[evidence.met]} {_place(evidence)}: {count}"
    if expected.outcome in ABOUT_SEEDS and evidence.count:
        said += f", {sum(right_up_to(run, expected.up_to) for run in evidence.runs)} perfect"
    if setting := chosen_setting(evidence, grid):
        said += f", {setting}"
    if evidence.met:
        return said
    moment = f" (best moment {percent(evidence.best_moment)} %)" if expected.outcome == "learns" else ""
    return f"{said}, expected: {expected.outcome}{moment}"


def chosen_setting(evidence: Evidence, grid: Grid) -> str:
    """What tells the chosen setting from the others; nothing where all runs are counted."""
    expected = evidence.expected
    if expected.outcome not in ABOUT_SEEDS:
        return ""
    cell = grid.chosen.get((expected.variant, expected.task))
    return cell.setting if cell else ""
