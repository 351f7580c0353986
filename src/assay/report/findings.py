"""Judged findings as sentences and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.analysis.cells import wilson
from assay.analysis.findings import Evidence, FindingStatus, Judgement
from assay.analysis.grid import Grid
from assay.analysis.settings import LEARNED
from assay.analysis.summary import StudySummary
from assay.analysis.titles import variant_title
from assay.findings import ABOUT_SEEDS
from assay.report.page import Page
from assay.report.text import in_percent, listed

LEARNED_IN_PERCENT = f"{100 * LEARNED:.0f} %"
HEADING = "Findings of the paper, and what the records show"
EXPLANATION = (
    f"A seed has learned a task if it is right at every position of at least {LEARNED_IN_PERCENT} of the sequences in "
    "Bin0 and in Bin1, whose lengths are beyond those of training; it is perfect if it is right in all of them. In "
    "brackets, Wilson's 95 % interval. Of several settings, the one with the best validation is judged. A model learns "
    "a task if at least half of its seeds do, and fails if at most a tenth do; in between, its seeds do not agree "
    "(marked ?). A model diverges or collapses if at least a tenth of all its runs do, in any setting. The "
    f'{LEARNED_IN_PERCENT} was chosen after the first records were seen: the column "if perfect" shows the status if '
    "only perfect seeds counted as having learned. Where a model does not learn a task as expected, the table also "
    "counts the seeds that had learned both validation bins: at some check during training, and in the state that was "
    "tested. Training can lose what it had learned; and validation ends in the middle of Bin1, so that a seed can be "
    "right on validation and wrong on the longest sequences of Bin1. The published code stops training and chooses "
    "models by the lengths that it reports."
)
UNFINISHED = "not finished yet"
MARKS = {True: "✓", False: "✗", None: "?"}
COUNTED: dict[FindingStatus, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "not tested": ("is not tested yet", "are not tested yet"),
}
EXPLAINED: dict[FindingStatus, tuple[str, str]] = {
    "in part": ("Holds in part", "Against it"),
    "under way": ("Under way", "Against it so far"),
}
ORDER: tuple[FindingStatus, ...] = ("holds", "does not hold", "in part", "under way", "not tested")


def findings_table(page: Page, judgements: Iterable[Judgement], grid: Grid, summary: StudySummary) -> None:
    rows = (_row(judgement, grid, summary) for judgement in judgements)
    page.table(HEADING, ("finding", "status", "if perfect", "evidence"), rows, EXPLANATION, "findings")


def in_short(judgements: Sequence[Judgement], summary: StudySummary) -> list[str]:
    """How many findings hold, and which; for those that hold in part or are under way, the numbers against them."""
    lines = []
    for asked_here, origin in ((False, "of the paper"), (True, "added by this study")):
        group = [judged for judged in judgements if judged.finding.asked_here == asked_here]
        for status in ORDER:
            judged_so = [judged for judged in group if judged.status() == status]
            if status in EXPLAINED:
                lines += [_explained(judged, summary) for judged in judged_so]
            elif judged_so:
                names = "; ".join(judged.finding.name for judged in judged_so)
                verb = COUNTED[status][len(judged_so) > 1]
                lines.append(f"{len(judged_so)} of {len(group)} findings {origin} {verb}: {names}.")
    return lines


def _explained(judgement: Judgement, summary: StudySummary) -> str:
    """`Holds in part: gates. Against it: the GRU learns parity in 1 of 4 and Dyck-1 in 0 of 4 seeds.`"""
    head, against = EXPLAINED[judgement.status()]
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for evidence in judgement.evidence:
        if evidence.runs and not evidence.met():
            groups.setdefault((evidence.expected.variant, _verb(evidence)), []).append(evidence)
    sentences = []
    for (variant, verb), group in groups.items():
        counts = [f"{_task(e, summary)} in {e.count():,} of {len(e.runs):,}" for e in group]
        sentences.append(f"{variant_title(variant)} {verb} {listed(counts)} {_unit(group[0])}")
    return f"{head}: {judgement.finding.name}." + (f" {against}: {'; '.join(sentences)}." if sentences else "")


def _verb(evidence: Evidence) -> str:
    outcome = evidence.expected.outcome
    return "learns" if outcome in ABOUT_SEEDS else f"{outcome} on"


def _unit(evidence: Evidence) -> str:
    return "seeds" if evidence.expected.outcome in ABOUT_SEEDS else "runs"


def _task(evidence: Evidence, summary: StudySummary) -> str:
    task = evidence.expected.task
    return summary.task(task) if task else "all tasks"


def _row(judgement: Judgement, grid: Grid, summary: StudySummary) -> list[str]:
    finding, status = judgement.finding, judgement.status()
    lines = [_line(evidence, grid, summary) for evidence in judgement.evidence]
    if status != "holds" and finding.differs:
        lines.append(finding.differs)
    statement = f"{finding.name}\n{finding.says} ({finding.source})"
    return [statement, status, judgement.status(1.0), "\n".join(lines)]


def _line(evidence: Evidence, grid: Grid, summary: StudySummary) -> str:
    """`✓ the LSTM learns parity in 9 of 10 seeds (60-98 %), 8 perfect, lr=0.003`; if not met, also the expectation."""
    expected, count, runs = evidence.expected, evidence.count(), len(evidence.runs)
    variant, task = variant_title(expected.variant), _task(evidence, summary)
    if not runs:
        return f"- {variant} on {task}: not all runs have finished"
    counted = f"{count:,} of {runs:,} {_unit(evidence)} ({in_percent(wilson(count, runs))} %)"
    line = f"{MARKS[evidence.met()]} {variant} {_verb(evidence)} {task} in {counted}"
    if expected.outcome in ABOUT_SEEDS and count:
        line += f", {evidence.count(1.0)} perfect"
    if setting := chosen_setting(evidence, grid):
        line += f", {setting}"
    if evidence.met():
        return line
    line += f"; expected: {expected.outcome}"
    if expected.outcome != "learns":
        return line
    return f"{line}; had learned validation: {evidence.at_some_check} at some check, {evidence.as_tested} when tested"


def chosen_setting(evidence: Evidence, grid: Grid) -> str:
    """The setting that validation chose; empty where all runs are counted."""
    expected = evidence.expected
    if expected.outcome not in ABOUT_SEEDS:
        return ""
    cell = grid.chosen.get((expected.variant, expected.task))
    return cell.setting if cell else ""


def holds_for(met: Sequence[bool | None], finished: Sequence[bool]) -> str:
    """`3 of 6, 1 undecided, 1 not finished yet`: of finished pairs, what is not known is undecided."""
    if not any(finished):
        return UNFINISHED if met else "-"
    right, count = met.count(True), len(met)
    unfinished = finished.count(False)
    parts = [f"all {count}" if right == count > 1 else f"{right or 'none'} of {count}"]
    parts += [f"{undecided} undecided"] if (undecided := met.count(None) - unfinished) else []
    return ", ".join(parts + ([f"{unfinished} {UNFINISHED}"] if unfinished else []))
