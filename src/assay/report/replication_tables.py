"""The sections of the page of a replication after its first screen, and the file beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

from assay.analysis.cells import Cell
from assay.analysis.rules import (
    FIRST_BINS,
    SHARES,
    Judged,
    Seeds,
    State,
    TwoRules,
    accuracy,
    effects,
    value,
)
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title, variant_title
from assay.findings import Choice, Comparison, Replication
from assay.report import figures
from assay.report.files import as_csv
from assay.report.findings import LEARNED_IN_PERCENT, UNFINISHED, holds_for
from assay.report.page import Page, Shaded
from assay.report.text import in_percent, listed, percent

Cells = Mapping[tuple[str, str], TwoRules]
CELL_LINES = "best run\nours, mean\nours, seeds"  # what the lines of a cell are
OWN_RUNS = "Cells as in the first table, but the best run is one of this row."
STATES: tuple[State, State] = ("best", "last")  # of our rule


# -- the table and the differences -------------------------------------------------------------------------------------


def tasks_of(comparison: Comparison, summary: StudySummary) -> list[str]:
    return list(dict.fromkeys(task for variant in comparison.variants for task in summary.variants[variant]))


def _grid(
    comparison: Comparison, summary: StudySummary, cells: Cells, show: Callable[[TwoRules], Shaded | str]
) -> tuple[list[str], list[list[str | Shaded]]]:
    """Variants down, tasks across; a pair that was not run is empty."""
    tasks = tasks_of(comparison, summary)
    rows: list[list[str | Shaded]] = []
    for variant in comparison.variants:
        pairs = ((variant, task) for task in tasks)
        rows.append([row_title(variant), *(show(cells[pair]) if pair in cells else "" for pair in pairs)])
    return ["", *map(summary.task, tasks)], rows


def _with_sizes(
    comparison: Comparison, summary: StudySummary, cells: Cells
) -> tuple[list[str], list[list[str | Shaded]]]:
    """The grid of both rules, and the number of parameters of each variant, which depends little on the language."""
    header, rows = _grid(comparison, summary, cells, _both)
    for variant, row in zip(comparison.variants, rows, strict=True):
        sizes = {record.parameters for task in summary.variants[variant] for record in cells[variant, task].seeds}
        row.append("-".join(f"{size:,}" for size in sorted({min(sizes), max(sizes)})) if sizes else "")
    return [CELL_LINES, *header[1:], "parameters"], rows


def table(page: Page, summary: StudySummary, cells: Cells) -> None:
    page.table(
        "Bin0 and Bin1 by both rules",
        *_with_sizes(summary.comparisons[0], summary, cells),
        f"{summary.comparisons[0].says} Right sequences in Bin0/Bin1 in %: of the best run of any configuration by the "
        "published rule, and the mean over seeds by ours. Below, the seeds that have learned both bins by ours, shaded "
        f"as in the picture. Empty: {UNFINISHED}.",
        "grid",
    )


def _both(cell: TwoRules) -> Shaded | str:
    lines = [_bins(cell.reached.accuracy)] if cell.reached else []
    if cell.seeds:
        lines += [_bins(cell.accuracy), f"{cell.reliable.learned} of {cell.reliable.seeds}"]
    return Shaded("\n".join(lines), cell.reliable.interval[0] if cell.seeds else 0.0)


def _bins(accuracy: Callable[[int], float | None]) -> str:
    return "/".join(percent(accuracy(number)) for number in range(FIRST_BINS))


def differences(page: Page, summary: StudySummary, replication: Replication, cells: Cells) -> None:
    page.table(
        "The published protocol, ours, and what each difference does",
        ("choice", "published code", "here", "effect on Bin1"),
        [[c.name, c.published, c.here, _effect(c, summary, replication, cells)] for c in replication.protocol],
        "The paper's own tables and its appendix with sizes were not available to us; its claims and its code were. "
        "Effect: the percentage points that the published choice adds to right sequences in Bin1, in the mean of the "
        "contested pairs of the next table.",
        "words",
    )
    changes, rows, columns = replication.changes, list[list[str]](), list[list[float | None]]()
    for model, task in replication.contested:
        values = [value(cells.get((model + change.suffix, task)), change) for change in changes]
        columns.append(values)
        best = cells[model, task].reached
        whole = f"{percent(best.accuracy())} ({best.in_perfect_runs})" if best else ""
        rows.append([f"{variant_title(model)} on {summary.task(task)}", *map(_percent_or_empty, values), whole])
    rows.append(["mean", *(_mean_or_empty(column) for column in zip(*columns, strict=True)), ""])
    columns_in_words = f"Columns: {'; '.join(f'{change.title}: {change.says}' for change in changes)}"
    page.table(
        "From our rule to the published one",
        ("Bin1 in %", *(change.title for change in changes), "any run (perfect)"),
        rows,
        f"Means over the seeds at the rate that validation chose. {columns_in_words}. "
        "Any run: the best of any configuration, and how many of all runs make no mistake in Bin0 and Bin1. "
        f"Empty: {UNFINISHED}.",
        "changes",
        totals=1,
    )


def _effect(choice: Choice, summary: StudySummary, replication: Replication, cells: Cells) -> str:
    if choice.effect is None:
        return f"see {choice.see}" if choice.see else "not varied"
    differences = effects(replication, cells, choice)
    return f"{in_points(mean(differences.values()))} points ({len(differences)} pairs)" if differences else UNFINISHED


def in_points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def _percent_or_empty(share: float | None) -> str:
    return "" if share is None else percent(share)


def _mean_or_empty(column: Sequence[float | None]) -> str:
    """The mean of a column that is complete: means of different pairs cannot be compared."""
    known = [share for share in column if share is not None]
    return percent(mean(known)) if len(known) == len(column) else ""


# -- appendices --------------------------------------------------------------------------------------------------------


def probes(page: Page, summary: StudySummary, cells: Cells) -> None:
    is_any_proved = any(cell.extrapolation.proved for cell in cells.values())

    def how_far(cell: TwoRules) -> str:
        far = cell.extrapolation
        counts = [far.learned, far.longer, far.probed, *([far.proved] if is_any_proved else [])]
        return f"{'/'.join(map(str, counts))} of {len(cell.seeds)}" if cell.seeds else ""

    first = summary.comparisons[0]
    page.table(
        "How far do the seeds extrapolate?",
        *_grid(first, summary, cells, how_far),
        "Seeds by our rule that make no mistake: in Bin0 and Bin1 / also in every longer bin / also on every probe"
        f"{' / also on every input, by a certificate' if is_any_proved else ''}. A "
        "probe is a pattern that random strings hardly contain (docs/verdicts.md).",
        "grid",
    )
    rows = []
    for task in tasks_of(first, summary):
        finished = [cells[v, task] for v in first.variants if (v, task) in cells and cells[v, task].seeds]
        if any(cell.extrapolation.longer for cell in finished):
            random, probed = (_leading(finished, count) for count in (_longer, _probed))
            rows.append([summary.task(task), random, probed])
    if rows:
        page.table(
            "Do probes change the ranking?",
            ("language", "most seeds right on all random strings", "most seeds also right on every probe"),
            rows,
            "The model with the largest share of seeds without a mistake; equal ones are all named.",
        )


def _longer(cell: TwoRules) -> int:
    return cell.extrapolation.longer


def _probed(cell: TwoRules) -> int:
    return cell.extrapolation.probed


def _leading(cells: Sequence[TwoRules], count: Callable[[TwoRules], int]) -> str:
    """The models with the largest share of seeds, and these seeds."""
    most = max(count(cell) / len(cell.seeds) for cell in cells)
    leaders = [cell for cell in cells if count(cell) / len(cell.seeds) == most]
    return listed([f"{row_title(cell.variant)} ({count(cell)} of {len(cell.seeds)})" for cell in leaders if most])


def by_both_rules(one: Judged) -> list[str]:
    """For how many of its pairs a finding is reachable, is reliable and extrapolates."""
    is_begun = [bool(cell.seeds) for _, cell in one.cells]
    extrapolating = [bool(cell.seeds) for expected, cell in one.cells if expected.outcome == "learns"]
    reachable = [met is not None for met in one.reachable]
    return [
        holds_for(one.reachable, reachable),
        holds_for(one.reliable, is_begun),
        holds_for(one.extrapolates, extrapolating),
    ]


def baselines(page: Page, findings: Sequence[Judged]) -> None:
    if findings:
        rows = [[one.finding.name, one.finding.says, *by_both_rules(one)] for one in findings]
        header = ("baseline", "expected", "reachable", "reliable", "extrapolates")
        text = "Models that the paper compares with; these are not its findings. Counts as on the first screen."
        page.table("Baselines", header, rows, text, "words")


def thresholds(page: Page, findings: Sequence[Judged]) -> None:
    rows = []
    for one in findings:
        is_begun = [bool(cell.seeds) for _, cell in one.cells]
        rows.append([one.finding.says, *(holds_for(one.reliable_from(share), is_begun) for share in SHARES)])
    page.table(
        "Would another threshold change the verdicts?",
        ("reliable by our rule", *(f"{100 * share:.0f} %" for share in SHARES)),
        rows,
        "The pairs of model and language that are as stated, if a seed has learned a bin from this share of right "
        f"sequences on. {LEARNED_IN_PERCENT} was fixed before these runs were made.",
        "words",
    )


def details(page: Page, summary: StudySummary, cells: Cells) -> None:
    rows = []
    for variant in summary.comparisons[0].variants:
        for task in summary.variants[variant]:
            cell = cells[variant, task]
            if cell.seeds:
                counts = [_counts(cell, state) for state in STATES]
                numbers = (f"{cell.seeds[0].parameters:,}", _rate(cell), _interval(cell.reliable))
                word = cell.extrapolation.shortest_wrong
                rows.append([summary.task(task), row_title(variant), *numbers, *counts, word])
    shares = ", ".join(f"{100 * share:.0f}" for share in SHARES)
    page.table(
        "By our rule in detail",
        ("language", "model", "parameters", "rate", "learned", "best state", "last state", "shortest wrong input"),
        rows,
        "Seeds that have learned Bin0 and Bin1, with the 95 % interval of their share in %; then the seeds that are "
        f"right on at least {shares} % of both bins, in the state that validation chooses and in the last one; and the "
        "shortest probe that a seed without a mistake in these bins gets wrong. An exclamation mark: the chosen rate "
        "is the lowest or the highest that was tried.",
    )


def _rate(cell: TwoRules) -> str:
    rate = cell.seeds[0].rate
    return f"{rate:g}{' !' if len(cell.rates) > 1 and rate in (cell.rates[0], cell.rates[-1]) else ''}"


def best_runs(page: Page, summary: StudySummary, cells: Cells) -> None:
    """Which configurations speak by the published rule, so that each can be found among the records."""
    names = {name: variant for variant, tasks in summary.variants.items() for runs in tasks.values() for name in runs}
    rows = []
    for variant in summary.comparisons[0].variants:
        for task in summary.variants[variant]:
            if found := cells[variant, task].reached:
                record = found.record
                change = names[record.digest].partition(", ")[2] or "as in the table"
                size = (f"{record.parameters:,}", f"{record.rate:g}", f"{found.state.step:,}")
                bins = _bins(found.accuracy)
                rows.append(
                    [summary.task(task), row_title(variant), change, *size, bins, found.in_perfect_runs, record.digest]
                )
    page.table(
        "The best runs by the published rule",
        ("language", "model", "configuration", "parameters", "rate", "step", "Bin0/Bin1", "perfect runs", "digest"),
        rows,
        "Of equal runs the smallest. Step: that of the state which the test bins select. Bin0/Bin1: right sequences in "
        "%. Perfect runs: those without a mistake in both bins, of all runs of the model. Digest: the run's name in "
        "the records.",
    )


def other_strings(page: Page, summary: StudySummary, replication: Replication, cells: Cells) -> None:
    """The runs of the changes that were tested with both strings of their task."""
    rows = []
    for model, task in replication.contested:
        for variant in dict.fromkeys(model + change.suffix for change in replication.changes):
            cell = cells.get((variant, task))
            if cell is None or not any(record.other_scores for record in cell.seeds):
                continue
            shares = [
                "/".join(percent(accuracy(cell.seeds, number, state, other)) for number in range(FIRST_BINS))
                for state in (cell.state, "watched")
                for other in (False, True)
            ]
            rows.append([summary.task(task), row_title(variant), *shares])
    if rows:
        page.table(
            "Tested on the other strings",
            ("language", "model", "ours, own", "ours, other", "published rule, own", "published rule, other"),
            rows,
            "Bin0/Bin1 in %, means over the seeds at the chosen rate, in the state that each rule selects: on the "
            "strings of the run's own kind, and on the others. Own strings are the published ones for runs that were "
            "trained on them, and uniform ones for all others.",
        )


def _interval(seeds: Seeds) -> str:
    return f"{seeds.learned} of {seeds.seeds} ({in_percent(seeds.interval)})"


def _counts(cell: TwoRules, state: State) -> str:
    return " / ".join(str(cell.learned(share, state).learned) for share in SHARES)


def lengths(page: Page, summary: StudySummary, cells: Cells) -> None:
    first = summary.comparisons[0]
    tasks = tasks_of(first, summary)
    shown = [
        Cell(task, row_title(variant), "", cells[variant, task].seeds)
        for task in tasks
        for variant in first.variants
        if (variant, task) in cells and cells[variant, task].seeds
    ]
    page.chart(
        "by-length",
        figures.by_length(shown, summary.task_titles),
        "Accuracy against length",
        "The share of right sequences in the last state, over the seeds at the chosen rate: the darker, the more. Red: "
        "the end of the lengths of training. Of many tested lengths, neighbours share a column.",
    )
    page.lengths(figures.accuracies(shown, summary.task_titles))


def further_comparison(page: Page, comparison: Comparison, summary: StudySummary, cells: Cells) -> None:
    header, rows = _with_sizes(comparison, summary, cells)
    begun = [row for row in rows if any(isinstance(value, Shaded) and value.text for value in row)]
    if begun:
        page.table(comparison.title, header, begun, f"{comparison.says} {OWN_RUNS}", "grid")
    else:
        page.words(comparison.title, f"{comparison.says} Not finished yet.")


def verdicts_csv(cells: Cells) -> str:
    """Every variant and task by both rules; what is not known yet is empty."""
    return as_csv([_verdicts(cell) for cell in cells.values()])


def _verdicts(cell: TwoRules) -> dict[str, Any]:
    found, seeds, far = cell.reached, cell.seeds, cell.extrapolation
    row: dict[str, Any] = {"variant": cell.variant, "task": cell.task}
    row |= {"runs watched": found and found.runs, "perfect": found and found.perfect}
    row |= {f"best run Bin{number}": found and found.accuracy(number) for number in range(FIRST_BINS)}
    row |= {"best run": found and found.record.digest, "rate": seeds[0].rate if seeds else None, "seeds": len(seeds)}
    for state in STATES:
        counts = {f"{state} {100 * share:.0f} %": cell.learned(share, state).learned for share in SHARES}
        row |= {name: count if seeds else None for name, count in counts.items()}
        row |= {f"{state} Bin{number}": cell.accuracy(number, state) for number in range(FIRST_BINS)}
    row |= {"right in Bin0 and Bin1": far.learned, "in every bin": far.longer, "on every probe": far.probed}
    row |= {"proved": far.proved, "verdict": cell.reliable.verdict if seeds else None}
    return row | {"shortest wrong input": far.shortest_wrong}
