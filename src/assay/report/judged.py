"""Findings and what the records make of them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from assay.findings import ABOUT_SEEDS, LEARNED, Evidence, Finding, Judgement, Verdict, judge
from assay.report.grid import Grid
from assay.report.page import Page
from assay.report.tables import in_percent, wilson

LEARNED_IN_PERCENT = f"{100 * LEARNED:.0f} %"
HEADING = "What the paper found, and what is found here"
SAYS = (
    f"A seed has learned a task if it is right at every position of at least {LEARNED_IN_PERCENT} of the sequences, "
    "also at the longer lengths of Bin1, and is perfect if of all; with Wilson's 95 % interval; of several settings, "
    "the one that validation likes best. A model learns a task with half of its seeds or more, and fails with a tenth "
    "or fewer; between these its seeds do not agree. It diverges or collapses if a tenth of all its runs do, whatever "
    f'their setting. The {LEARNED_IN_PERCENT} was chosen after the first records were seen: the column "if perfect" '
    "shows what would follow without it, where a seed learns only by being perfect. Where a model does not learn what "
    "the paper says it does, it is also said how many seeds had learned both validation bins, the longer of which ends "
    "in the middle of Bin1, at some check on the way, and how many in the state that was tested: what was reached can "
    "be lost again, and what is right there can be wrong at the longest lengths of Bin1. The published code stops and "
    "chooses by the lengths that it reports."
)
MARKS = {True: "✓", False: "✗", None: "?"}
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "in part", "under way", "not tested")
COUNTED = {"diverges": " diverged", "collapses": " collapsed"}
BUT = {"in part": "but not", "under way": "so far not"}


def judgements(findings: Iterable[Finding], grid: Grid) -> list[Judgement]:
    """What is said of all tasks at once is judged when a variant was run on all of them."""

    def counted(piece: Evidence) -> Evidence:
        pooled = not piece.expected.task
        return replace(piece, runs=()) if pooled and not grid.whole(piece.expected.variant) else piece

    found = judge(findings, grid.variants)
    return [replace(judged, evidence=tuple(map(counted, judged.evidence))) for judged in found]


def findings(page: Page, judgements: Iterable[Judgement], grid: Grid) -> None:
    page.table(
        HEADING,
        ("finding", "verdict", "if perfect", "evidence"),
        (_row(judgement, grid) for judgement in judgements),
        SAYS,
        "findings",
    )


def in_short(judgements: Sequence[Judgement]) -> list[str]:
    """How many findings hold, and which; of those that hold in part or are under way, what is not as expected."""
    said = []
    for asked_here, whose in ((False, "of the paper"), (True, "asked here")):
        mine = [judged for judged in judgements if judged.finding.asked_here == asked_here]
        for verdict in VERDICTS:
            some = [judged for judged in mine if judged.verdict() == verdict]
            if verdict in BUT:
                said += [f"{verdict.capitalize()}: {judged.finding.name}{_but(judged)}." for judged in some]
            elif some:
                names = "; ".join(judged.finding.name for judged in some)
                said.append(f"{verdict.capitalize()}: {len(some)} of {len(mine)} findings {whose} ({names}).")
    return said


def _but(judgement: Judgement) -> str:
    """`, but not delta-net; srwm on dyck-1, shuffle`: variants that fall short on the same tasks are named together."""
    short: dict[str, list[str]] = {}
    for piece in judgement.evidence:
        if piece.runs and not piece.met():
            short.setdefault(piece.expected.variant, []).append(tasks_of(piece))
    together: dict[str, list[str]] = {}
    for variant, tasks in short.items():
        together.setdefault(", ".join(tasks), []).append(variant)
    against = [f"{'; '.join(variants)} on {tasks}" for tasks, variants in together.items()]
    return f", {BUT[judgement.verdict()]} {', nor '.join(against)}" if against else ""


def _row(judgement: Judgement, grid: Grid) -> list[str]:
    finding, verdict = judgement.finding, judgement.verdict()
    evidence = [_line(piece, grid) for piece in judgement.evidence]
    if verdict != "holds" and finding.differs:
        evidence.append(finding.differs)
    said = f"{finding.name}\n{finding.says} ({finding.source})"
    return [said, verdict, judgement.verdict(1.0), "\n".join(evidence)]


def _place(evidence: Evidence) -> str:
    return f"{evidence.expected.variant} on {tasks_of(evidence)}"


def tasks_of(evidence: Evidence) -> str:
    return evidence.expected.task or "all tasks"


def _line(evidence: Evidence, grid: Grid) -> str:
    """`✓ lstm on parity: 9 of 10 (60-98 %), 8 perfect, lr=0.003`; where it is not met, also what was expected."""
    expected, count, runs = evidence.expected, evidence.count(), len(evidence.runs)
    if not runs:
        return f"- {_place(evidence)}: not run in full"
    interval = in_percent(wilson(count, runs))
    counted = f"{count:,} of {runs:,}{COUNTED.get(expected.outcome, '')} ({interval} %)"
    said = f"{MARKS[evidence.met()]} {_place(evidence)}: {counted}"
    if expected.outcome in ABOUT_SEEDS and count:
        said += f", {evidence.count(1.0)} perfect"
    if setting := chosen_setting(evidence, grid):
        said += f", {setting}"
    if evidence.met():
        return said
    validated = f"{evidence.at_some_check} once, {evidence.as_tested} as tested"
    once = f" (validation: {validated})" if expected.outcome == "learns" else ""
    return f"{said}, expected: {expected.outcome}{once}"


def chosen_setting(evidence: Evidence, grid: Grid) -> str:
    """What tells the chosen setting from the others; nothing where all runs are counted."""
    expected = evidence.expected
    if expected.outcome not in ABOUT_SEEDS:
        return ""
    cell = grid.chosen.get((expected.variant, expected.task))
    return cell.setting if cell else ""
