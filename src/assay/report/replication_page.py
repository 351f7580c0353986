"""The page of a replication: findings judged by two rules, the differences between the protocols, and what each does.

The first screen answers; everything after "Appendices" is for reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from assay.analysis.rules import (
    Judged,
    Reached,
    TwoRules,
    by_two_rules,
    effects,
    judged,
)
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary
from assay.analysis.titles import row_title, variant_title
from assay.errors import BadInput
from assay.findings import Replication
from assay.record import Record
from assay.report import figures, replication_tables
from assay.report.findings import LEARNED_IN_PERCENT, UNFINISHED
from assay.report.page import STYLE, Page
from assay.report.paper_page import MORE_STYLE, cost, tasks_table
from assay.report.provenance import provenance
from assay.report.replication_tables import Cells, by_both_rules, in_points, tasks_of
from assay.report.text import listed, percent

ANSWER_STYLE = """
body{margin:1rem auto} h1{font-size:1.6rem;margin:0} h1+p{margin:.3rem 0} figure{margin:.5rem 0}
h2{margin:1.2rem 0 .5rem} h2+p{margin:.5rem 0} table{margin:.5rem 0}
table.answer th:nth-child(n),table.answer td:nth-child(n),table.words th:nth-child(n),table.words td:nth-child(n){
text-align:left;vertical-align:top;white-space:normal}
table.answer{width:100%} table.answer td:first-child{width:58%} table.answer td:nth-child(3){width:18%}
table.answer td:nth-child(2){width:13%} table.words td:first-child{min-width:7.5rem}
table.words td:last-child{min-width:9rem}
table.changes th{white-space:normal;vertical-align:bottom}
table.changes th:nth-child(n+2),table.changes td:nth-child(n+2){text-align:right}
table.grid th{vertical-align:bottom}
table.grid tr>:first-child,table.changes tr>:first-child{position:sticky;left:0;background:var(--paper)}
@media(max-width:40rem){table.answer{font-size:12px}
table.answer th:nth-child(n),table.answer td:nth-child(n){padding:.25rem}
table.answer td:nth-child(n){width:auto;min-width:0} table.answer td:first-child{width:40%}
table.words{min-width:40rem}}
"""
NOTE = "shares of right sequences are means over seeds, rounded down, and a run that diverged counts as 0"
RULES = (
    "The table counts pairs of model and language that are as stated. Bin0 has the lengths of training, Bin1 longer "
    "ones.",
    "Reachable: some run, of any size, rate, length of training and strings, makes no mistake in Bin0 and Bin1, in the "
    "state that these bins select. Nowhere else do test bins select anything.",
    "Reliable: validation chooses the rate and the state. A seed has learned a language if "
    f"{LEARNED_IN_PERCENT} of Bin0 and of Bin1 are right. The model learns it if the 95 % interval of the share of "
    "such seeds lies above one half, and fails if it lies below; else this is undecided.",
    "Extrapolates: of the pairs that should be learned, those with a seed that makes no mistake in any bin, nor on any "
    "probe (a pattern that is rare in random strings).",
    f"Picture, right: darker where the 95 % interval begins higher (10 of 10, 5 of 5, 4 of 5). Blank: {UNFINISHED}.",
)


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    return render(subject.summary, subject.records, subject.missing).save(folder)


def render(summary: StudySummary, records: Sequence[Record], missing: int) -> Page:
    replication = summary.replication
    if replication is None or not summary.comparisons:
        raise BadInput(f"{summary.name} needs REPLICATION and COMPARISONS for this page")
    page = Page(replication.title, summary.question, STYLE + MORE_STYLE + ANSWER_STYLE)
    cells = by_two_rules(summary.variants, replication.configurations, records, replication.decisive)
    findings = judged(summary.findings, cells)
    quoted = [one for one in findings if one.finding.quote]
    _answer(page, quoted, summary, replication, cells, _unfinished(records, missing))
    replication_tables.table(page, summary, cells)
    replication_tables.differences(page, summary, replication, cells)
    page.words("Appendices", "For reference: the numbers behind the tables above, and what was run.")
    replication_tables.probes(page, summary, cells)
    replication_tables.baselines(page, [one for one in findings if not one.finding.quote])
    replication_tables.thresholds(page, quoted)
    replication_tables.details(page, summary, cells)
    replication_tables.best_runs(page, summary, cells)
    replication_tables.other_strings(page, summary, replication, cells)
    replication_tables.lengths(page, summary, cells)
    tasks_table(page, summary)
    for comparison in summary.comparisons[1:]:
        replication_tables.further_comparison(page, comparison, summary, cells)
    cost(page, summary, records)
    page.facts(
        [
            *provenance(records, missing, NOTE, summary.task_titles),
            f"{summary.made_by} Beside this page: verdicts.csv (every model and language by both rules).",
        ]
    )
    page.files["verdicts.csv"] = replication_tables.verdicts_csv(cells)
    return page


# -- the first screen --------------------------------------------------------------------------------------------------


def _answer(
    page: Page,
    findings: Sequence[Judged],
    summary: StudySummary,
    replication: Replication,
    cells: Cells,
    unfinished: str,
) -> None:
    main = next(one for one in findings if one.finding.name == replication.main)
    sentences = (_in_a_sentence(main), _largest_effect(replication, cells), unfinished)
    page.words("", " ".join(filter(None, sentences)))
    page.chart("verdicts", _map(summary, cells), "", "")
    rows = [[f"“{one.finding.quote}” ({one.finding.source})", *by_both_rules(one)] for one in findings]
    header = ("finding", "reachable (published rule)", "reliable (our rule)", "extrapolates")
    page.table("Do the findings hold?", header, rows, "", "answer")
    page.facts([*_exceptions(findings, summary), *RULES])


def _in_a_sentence(one: Judged) -> str:
    """`“All variants count” (p. 1). By the published rule, this holds for 13 of 16 pairs ...; by ours, it ...`."""
    counts = by_both_rules(one)[:2]
    reachable, reliable = (f"is {text}" if text == UNFINISHED else f"holds for {text}" for text in counts)
    return (
        f"“{one.finding.quote}” ({one.finding.source}). By the published rule, this {reachable} (pairs of model and "
        f"language); by ours, it {reliable}."
    )


def _largest_effect(replication: Replication, cells: Cells) -> str:
    """Which choice of the protocol changes Bin1 most, over the pairs for which the effect of each choice is known."""
    known = {choice.name: effects(replication, cells, choice) for choice in replication.protocol if choice.effect}
    pairs = [pair for pair in replication.contested if known and all(pair in found for found in known.values())]
    if not pairs:
        return "Which difference between the two protocols explains this is not known yet." if known else ""
    means = {name: mean(found[pair] for pair in pairs) for name, found in known.items()}
    largest = max((c for c in replication.protocol if c.effect), key=lambda choice: abs(means[choice.name]))
    return (
        "Of the differences between the published protocol and ours, the largest effect on accuracy in Bin1 is that of "
        f"the {largest.name} (published: {largest.published}; ours: {largest.here}): "
        f"{in_points(means[largest.name])} percentage points in the mean of {len(pairs)} of the "
        f"{len(replication.contested)} contested pairs below."
    )


def _unfinished(records: Sequence[Record], missing: int) -> str:
    """How many of the study's runs have finished, if not all."""
    planned, finished = len(records) + missing, sum(record.finished for record in records)
    return f"Of {planned:,} planned runs, {finished:,} have finished." if finished < planned else ""


def _exceptions(findings: Sequence[Judged], summary: StudySummary) -> list[str]:
    """The pairs that are not as the paper says by the published rule, each once, with the best that any run reached."""
    against = {
        (expected.outcome, cell.variant, cell.task): cell.reached
        for one in findings
        for (expected, cell), met in zip(one.cells, one.reachable, strict=True)
        if met is False and cell.reached
    }
    lines = []
    for outcome, start in (("learns", "Not reached"), ("fails", "Reached without a mistake, though it should fail")):
        pairs = [
            f"{variant_title(variant)} on {summary.task(task)} ({_how_near(reached)})"
            for (expected, variant, task), reached in against.items()
            if expected == outcome
        ]
        lines += [f"{start}: {listed(pairs)}."] if pairs else []
    return lines


def _how_near(reached: Reached) -> str:
    if reached.perfect:
        return f"{reached.in_perfect_runs} runs"
    return f"{percent(reached.accuracy())} % of Bin1, best of {reached.runs:,} runs"


def _map(summary: StudySummary, cells: Cells) -> figures.Chart:
    """Languages across and models down, twice: by the published rule and by ours."""
    first = summary.comparisons[0]
    tasks = tasks_of(first, summary)
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
        "Reachable: Bin1 of the best run in % (darkest: no mistake)",
        f"Reliable: seeds with {LEARNED_IN_PERCENT} of Bin0 and Bin1 right",
    )
    charts = [
        figures.seed_map(rows, "task", list(map(summary.task, tasks)), models, named=side == 0, size=12, wrapped=True)
        | {"width": {"step": 57}, "height": {"step": 24}, "title": title}
        for side, (rows, title) in enumerate(zip((reached, seeds), titles, strict=True))
    ]
    return figures.styled({"hconcat": charts, "spacing": 15})


def _shade(reached: Reached) -> float:
    """A run that makes no mistake is another matter than one that makes few."""
    return 1.0 if reached.perfect else 0.6 * reached.accuracy()


def _square(cell: TwoRules, summary: StudySummary, shade: float, text: str) -> dict[str, str | float]:
    return {"task": summary.task(cell.task), "model": row_title(cell.variant), "shade": round(shade, 4), "text": text}
