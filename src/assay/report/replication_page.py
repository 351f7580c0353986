"""The page of a replication: findings judged by two rules, the differences between the protocols, and what each does.

The first screen answers; everything after "Appendices" is for reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from assay.analysis.cells import Cell
from assay.analysis.rules import (
    FIRST_BINS,
    SHARES,
    Judged,
    Reached,
    Seeds,
    State,
    TwoRules,
    accuracy,
    by_two_rules,
    judged,
)
from assay.analysis.settings import LEARNED
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title, variant_title
from assay.description import BadInput
from assay.findings import Change, Comparison, Replication
from assay.record import Record
from assay.report import figures
from assay.report.files import as_csv
from assay.report.page import STYLE, Page, Shaded
from assay.report.paper_page import MORE_STYLE, cost, tasks_table
from assay.report.provenance import device_time, provenance
from assay.report.text import in_percent, listed, percent

Cells = Mapping[tuple[str, str], TwoRules]
NOTE = "shares of right sequences are means over seeds, rounded down, and a run that diverged counts as 0"
STATES: tuple[State, State] = ("best", "last")  # of our rule
LEARNED_IN_PERCENT = f"{100 * LEARNED:.0f} %"
RULES = (
    "Reachable, by the published rule: some run, at any size, rate and length of training, makes no mistake in Bin0 "
    "and Bin1, in the state that these bins select.",
    "Reliable, by ours: validation chooses the rate and the state. A seed has learned a language if "
    f"{LEARNED_IN_PERCENT} of Bin0 and of Bin1 are right. The model learns it if the 95 % interval of the share of "
    "such seeds lies above one half, and fails if it lies below; else this is undecided.",
    "Extrapolates: some of these seeds make no mistake in any longer bin, nor on any probe.",
    "Each number counts the pairs of model and language that are as the paper says. Bin0 has the lengths of training, "
    "Bin1 up to twice these.",
)


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    replication = summary.replication
    if replication is None or not summary.comparisons:
        raise BadInput(f"{summary.name} needs REPLICATION and COMPARISONS for this page")
    page = Page(summary.title, summary.question, STYLE + MORE_STYLE)
    cells = by_two_rules(summary.variants, replication.configurations, records)
    findings = judged(summary.findings, cells)
    _answer(page, [one for one in findings if one.finding.quote], summary, cells)
    _table(page, summary, cells)
    _differences(page, summary, replication, cells)
    _probes(page, summary, cells)
    page.words("Appendices", "")
    _baselines(page, [one for one in findings if not one.finding.quote], summary)
    _shares(page, summary, cells)
    _lengths(page, summary, cells)
    tasks_table(page, summary)
    for comparison in summary.comparisons[1:]:
        _comparison(page, comparison, summary, cells)
    cost(page, summary, records)
    edges = _rates_at_an_edge(summary, cells)
    page.facts(
        [
            f"{len(records):,} of {len(records) + missing:,} runs, {device_time(records)}.",
            *([f"The chosen learning rate is at an edge of those tried for {'; '.join(edges)}."] if edges else []),
            *provenance(records, missing, NOTE, summary.task_titles),
            f"{summary.made_by} Beside this page: verdicts.csv (every model and language by both rules).",
        ]
    )
    page.files["verdicts.csv"] = verdicts_csv(cells)
    return page


# -- the first screen --------------------------------------------------------------------------------------------------


def _answer(page: Page, findings: Sequence[Judged], summary: StudySummary, cells: Cells) -> None:
    rows = [
        [
            f"“{one.finding.quote}” ({one.finding.source})",
            *_by_both_rules(one),
        ]
        for one in findings
    ]
    page.table("Do the findings hold?", ("the paper", "reachable", "reliable", "extrapolates"), rows, "", "findings")
    page.facts([*(line for one in findings for line in _exceptions(one, summary)), *RULES])
    page.chart("verdicts", _map(summary, cells), "", "")


def _by_both_rules(one: Judged) -> list[str]:
    """Whether a finding is reachable, reliable and extrapolates."""
    watched = [cell.reached for _, cell in one.cells]
    if not any(watched) and all(cell.seeds for _, cell in one.cells):
        return ["not watched", _reliable(one), _counted(one.extrapolates)]
    return [_counted(one.reachable), _reliable(one), _counted(one.extrapolates)]


def _counted(met: Sequence[bool | None]) -> str:
    """`3 of 4`, of which some may not be known yet."""
    known = [value for value in met if value is not None]
    if not known:
        return "not finished yet"
    unknown = f" ({len(met) - len(known)} not finished yet)" if len(known) < len(met) else ""
    return f"{sum(known)} of {len(met)}{unknown}"


def _reliable(one: Judged) -> str:
    """`3 of 4, 1 undecided`."""
    begun = [value for (_, cell), value in zip(one.cells, one.reliable, strict=True) if cell.seeds]
    if not begun:
        return "not finished yet"
    parts = [f"{sum(value is True for value in begun)} of {len(one.cells)}"]
    if undecided := sum(value is None for value in begun):
        parts.append(f"{undecided} undecided")
    if len(begun) < len(one.cells):
        parts.append(f"{len(one.cells) - len(begun)} not finished yet")
    return ", ".join(parts)


def _exceptions(one: Judged, summary: StudySummary) -> list[str]:
    """Where a finding does not hold by the published rule: the best that any run reached."""
    against = [
        (expected.outcome, cell)
        for (expected, cell), met in zip(one.cells, one.reachable, strict=True)
        if met is False and cell.reached
    ]
    short = [
        f"{variant_title(cell.variant)} on {summary.task(cell.task)} ({percent(cell.reached.accuracy())} % of Bin1)"
        for outcome, cell in against
        if outcome == "learns" and cell.reached
    ]
    surprising = [
        f"{variant_title(cell.variant)} on {summary.task(cell.task)} "
        f"(in {cell.reached.perfect} of {cell.reached.runs:,} runs)"
        for outcome, cell in against
        if outcome == "fails" and cell.reached
    ]
    lines = [f"{one.finding.says} Not reached: {listed(short)}." if short else ""]
    lines += [f"{one.finding.says} Learned after all: {listed(surprising)}." if surprising else ""]
    return [line for line in lines if line]


def _map(summary: StudySummary, cells: Cells) -> figures.Chart:
    """Languages across and models down, twice: by the published rule and by ours."""
    first = summary.comparisons[0]
    tasks = list(dict.fromkeys(task for variant in first.variants for task in summary.variants[variant]))
    shown = [cells[variant, task] for variant in first.variants for task in tasks if (variant, task) in cells]
    reached = [
        _square(cell, summary, _shade(cell.reached), percent(cell.reached.accuracy())) for cell in shown if cell.reached
    ]
    seeds = [
        _square(cell, summary, cell.reliable.interval[0], f"{cell.reliable.learned} of {cell.reliable.seeds}")
        for cell in shown
        if cell.seeds
    ]
    models = list(map(row_title, first.variants))
    titles = (
        "Reachable, by the published rule: Bin1 of the best run in % (darkest: some run makes no mistake)",
        f"Reliable, by ours: seeds that are right on {LEARNED_IN_PERCENT} of Bin0 and Bin1",
    )
    charts = [
        figures.seed_map(rows, "task", list(map(summary.task, tasks)), models, named=True, size=13)
        | {"width": {"step": 92}, "height": {"step": 27}, "title": title}
        for rows, title in zip((reached, seeds), titles, strict=True)
    ]
    return figures.styled({"vconcat": charts, "spacing": 25})


def _shade(reached: Reached) -> float:
    """A run that makes no mistake is another matter than one that makes few."""
    return 1.0 if reached.perfect else 0.6 * reached.accuracy()


def _square(cell: TwoRules, summary: StudySummary, shade: float, text: str) -> dict[str, str | float]:
    return {"task": summary.task(cell.task), "model": row_title(cell.variant), "shade": round(shade, 4), "text": text}


# -- the table, the differences, the probes ----------------------------------------------------------------------------


def _grid(
    comparison: Comparison, summary: StudySummary, cells: Cells, show: Callable[[TwoRules], Shaded | str]
) -> tuple[list[str], list[list[str | Shaded]]]:
    """Variants down, tasks across; a pair that was not run is empty."""
    tasks = list(dict.fromkeys(task for variant in comparison.variants for task in summary.variants[variant]))
    rows: list[list[str | Shaded]] = []
    for variant in comparison.variants:
        pairs = ((variant, task) for task in tasks)
        rows.append([row_title(variant), *(show(cells[pair]) if pair in cells else "" for pair in pairs)])
    return ["", *map(summary.task, tasks)], rows


def _table(page: Page, summary: StudySummary, cells: Cells) -> None:
    page.table(
        "Bin0 and Bin1 by both rules",
        *_grid(summary.comparisons[0], summary, cells, _both),
        f"{summary.comparisons[0].says} In each cell, right sequences in Bin0/Bin1 in %: of the best run by the "
        "published rule, and the mean over seeds by ours; then the seeds that have learned both bins by ours. The "
        "darker a cell of the web page, the larger the lower end of the 95 % interval of their share. Empty: not "
        "finished yet.",
        "grid",
    )


def _both(cell: TwoRules) -> Shaded | str:
    lines = [_bins(cell.reached.accuracy)] if cell.reached else []
    if cell.seeds:
        lines += [_bins(cell.accuracy), f"{cell.reliable.learned} of {cell.reliable.seeds}"]
    return Shaded("\n".join(lines), cell.reliable.interval[0] if cell.seeds else 0.0)


def _bins(accuracy: Callable[[int], float | None]) -> str:
    return "/".join(percent(accuracy(number)) for number in range(FIRST_BINS))


def _differences(page: Page, summary: StudySummary, replication: Replication, cells: Cells) -> None:
    changes, rows, known = replication.changes, list[list[str]](), list[list[float]]()
    for model, task in replication.contested:
        values = [_value(cells.get((model + change.suffix, task)), change) for change in changes]
        best = cells[model, task].reached
        values.append(best.accuracy() if best else None)
        rows.append([f"{variant_title(model)} on {summary.task(task)}", *map(_percent_or_empty, values)])
        if all(value is not None for value in values):
            known.append([value for value in values if value is not None])
    if known:
        rows.append([f"mean of {len(known)}", *(percent(mean(column)) for column in zip(*known, strict=True))])
    words = "; ".join(f"{change.title}: {change.says}" for change in changes)
    page.table(
        "Which difference explains it?",
        ("Bin1 in %", *(change.title for change in changes), "best run"),
        rows,
        f"From our rule towards the published one, mean over the seeds at the chosen rate. {words}. Best run: of any "
        "size, rate and length of training. Empty: not finished yet.",
    )
    page.table(
        "The published protocol and ours",
        ("choice", "published code", "here"),
        replication.protocol,
        "The paper's own tables and its appendix with sizes were not available to us; its claims and its code were.",
    )


def _value(cell: TwoRules | None, change: Change) -> float | None:
    return accuracy(cell.seeds, 1, change.state) if cell else None


def _percent_or_empty(share: float | None) -> str:
    return "" if share is None else percent(share)


def _probes(page: Page, summary: StudySummary, cells: Cells) -> None:
    def how_far(cell: TwoRules) -> str:
        found = cell.extrapolation
        return f"{found.learned}/{found.longer}/{found.probed}" if cell.seeds else ""

    page.table(
        "How far is right?",
        *_grid(summary.comparisons[0], summary, cells, how_far),
        "Seeds by our rule that make no mistake: in Bin0 and Bin1 / also in every longer bin / also on every probe. A "
        "probe is a pattern that random strings hardly contain (docs/verdicts.md).",
        "grid",
    )


# -- appendices --------------------------------------------------------------------------------------------------------


def _baselines(page: Page, findings: Sequence[Judged], summary: StudySummary) -> None:
    if findings:
        rows = [[one.finding.name, one.finding.says, *_by_both_rules(one)] for one in findings]
        header = ("baseline", "expected", "reachable", "reliable", "extrapolates")
        page.table("Baselines", header, rows, "What is known of models that the paper compares with; not its findings.")


def _shares(page: Page, summary: StudySummary, cells: Cells) -> None:
    rows = []
    for variant in summary.comparisons[0].variants:
        for task in summary.variants[variant]:
            cell = cells[variant, task]
            if cell.seeds:
                counts = [_counts(cell, state) for state in STATES]
                size = (f"{cell.seeds[0].parameters:,}", f"{cell.seeds[0].rate:g}", _interval(cell.reliable))
                rows.append([summary.task(task), row_title(variant), *size, *counts, cell.extrapolation.shortest_wrong])
    shares = ", ".join(f"{100 * share:.0f}" for share in SHARES)
    page.table(
        "By our rule in detail",
        ("language", "model", "parameters", "rate", "learned", "best state", "last state", "shortest wrong probe"),
        rows,
        "Seeds that have learned Bin0 and Bin1, with the 95 % interval of their share in %; then the seeds that are "
        f"right on at least {shares} % of both bins, in the state that validation chooses and in the last one "
        f"({LEARNED_IN_PERCENT} was fixed before these runs were made); and the shortest probe that a seed without a "
        "mistake in these bins gets wrong.",
    )


def _interval(seeds: Seeds) -> str:
    return f"{seeds.learned} of {seeds.seeds} ({in_percent(seeds.interval)})"


def _counts(cell: TwoRules, state: State) -> str:
    return " / ".join(str(cell.learned(share, state).learned) for share in SHARES)


def _lengths(page: Page, summary: StudySummary, cells: Cells) -> None:
    first = summary.comparisons[0]
    tasks = list(dict.fromkeys(task for variant in first.variants for task in summary.variants[variant]))
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
        "The share of right sequences in the last state, over the seeds at the chosen rate. Red: the end of the "
        "lengths of training.",
    )


def _comparison(page: Page, comparison: Comparison, summary: StudySummary, cells: Cells) -> None:
    header, rows = _grid(comparison, summary, cells, _both)
    begun = [row for row in rows if any(isinstance(value, Shaded) and value.text for value in row)]
    if begun:
        page.table(comparison.title, header, begun, f"{comparison.says} As in the first table.", "grid")
    else:
        page.words(comparison.title, f"{comparison.says} Not run yet.")


def _rates_at_an_edge(summary: StudySummary, cells: Cells) -> list[str]:
    """The pairs of the first comparison whose chosen rate is the lowest or the highest that was tried."""
    first = [cell for (variant, _), cell in cells.items() if variant in summary.comparisons[0].variants and cell.seeds]
    return [
        f"{variant_title(cell.variant)} on {summary.task(cell.task)} ({cell.seeds[0].rate:g})"
        for cell in first
        if len(cell.rates) > 1 and cell.seeds[0].rate in (cell.rates[0], cell.rates[-1])
    ]


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
    return row | {"verdict": cell.reliable.verdict if seeds else None, "shortest wrong probe": far.shortest_wrong}
