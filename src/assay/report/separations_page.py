"""The page of a study of separations: which size of which architecture solves a task of length N, beside theory.

The first screen answers; everything after "Appendices" is for reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.analysis.bounds import StatePoint, alphabet_of, state_points, task_bounds
from assay.analysis.growth import Growth, Standard, growth
from assay.analysis.inspections import read_inspection
from assay.analysis.lengths import (
    NEARLY_ALL,
    LengthCell,
    LengthJudgement,
    Lengths,
    SizedCell,
    accuracy,
    judge_lengths,
)
from assay.analysis.settings import LEARNED
from assay.analysis.subjects import StudyRecords
from assay.analysis.summary import StudySummary, lengths_of
from assay.analysis.titles import row_title, variant_title
from assay.errors import BadInput
from assay.findings import Separations
from assay.record import Record
from assay.report import separations_figures, separations_tables
from assay.report.findings import LEARNED_IN_PERCENT, UNFINISHED, holds_for
from assay.report.page import STYLE, Page
from assay.report.paper_page import MORE_STYLE, cost
from assay.report.provenance import provenance
from assay.report.replication_page import ANSWER_STYLE
from assay.report.text import listed, percent

STANDARDS: tuple[Standard, ...] = ("reachable", "reliable")
CHANCE = 4  # standard errors
NOTE = "shares of right sequences are rounded down, and a run that diverged counts as 0"
CLAIMS = ("claim", "reachable", "reliable", "on every probe")
RULES = (
    "N counts the symbols of an input, without the separator and the index: the string in index lookup, the brackets "
    "in Dyck, and both halves in copying, equality and disjointness. Guessing is right on one answer in S of index "
    "lookup, with S symbols, and on half of the questions with a yes or no.",
    f"The table counts pairs of model and N. A run solves N if {LEARNED_IN_PERCENT} of the test strings are right; "
    f"{100 * NEARLY_ALL:.0f} % of equality of random strings and of Dyck with corrupted negatives, where counting "
    "symbols is nearly enough. Reachable: some run of any width, rate and seed does. Reliable: of the seeds at the "
    "width and the rate that validation chooses, the 95 % interval of the share that does lies above one half (or "
    "below it, for a model that should fail). On every probe: some of these seeds makes no mistake on any test string, "
    "nor on rare inputs that random strings hardly ever contain. Runs that compare learning rates count, too: some "
    "cells have a seed more.",
)
PICTURE = (
    "Dots: the best run of each size of a recurrent model; open dots: models whose state is rounded to few bits. Grey: "
    "no machine with so few bits of state can be so accurate (Fano's inequality). Red: attention, at the smallest "
    "width that solves N, or the most accurate one; its memory grows with N."
)


def write(subject: StudyRecords, folder: Path) -> list[Path]:
    """Write the page, its charts and the files beside it; returns the files."""
    inspection = read_inspection(subject.source)
    return render(subject.summary, subject.records, subject.missing, inspection).save(folder)


def render(
    summary: StudySummary, records: Sequence[Record], missing: int, inspection: Mapping[str, Any] | None = None
) -> Page:
    separations = summary.separations
    if separations is None:
        raise BadInput(f"{summary.name} needs SEPARATIONS for this page")
    lengths = lengths_of(summary, records)
    findings = known_findings(summary, lengths)
    growths = growths_of(separations, lengths)
    page = Page(separations.title, summary.question, STYLE + MORE_STYLE + ANSWER_STYLE)
    _answer(page, summary, separations, lengths, findings, growths, _unfinished(records, missing))
    separations_tables.sizes(page, summary, lengths, growths)
    separations_tables.depths(page, summary, lengths)
    separations_tables.tasks(page, summary, lengths)
    separations_tables.inside(page, summary, inspection)
    page.words("Appendices", "For reference: the numbers behind the charts above, and what was run.")
    separations_tables.cells(page, summary, lengths)
    separations_tables.states(page, separations, lengths)
    separations_tables.harder_strings(page, summary, lengths)
    separations_tables.probes(page, summary, lengths)
    separations_tables.thresholds(page, findings)
    cost(page, summary, records)
    page.facts(
        [
            *provenance(records, missing, NOTE, summary.task_titles),
            f"{summary.made_by} Beside this page: cells.csv (every size at every length), sizes.csv (the smallest "
            "width that solves N, and the bounds), sizes.tex (the same as a table).",
        ]
    )
    page.files |= separations_tables.files(summary, lengths, growths)
    return page


def headline(summary: StudySummary, records: Sequence[Record]) -> tuple[str, list[list[str]]]:
    """The first sentences and the table of claims, header first."""
    separations = summary.separations
    assert separations is not None
    lengths = lengths_of(summary, records)
    rows = [[_said(one), *_verdicts(one)] for one in known_findings(summary, lengths)]
    return _sentences(separations, lengths, growths_of(separations, lengths)), [list(CLAIMS), *rows]


def known_findings(summary: StudySummary, lengths: Lengths) -> list[LengthJudgement]:
    """The findings of which anything is known."""
    judged = judge_lengths(summary.findings, lengths)
    return [one for one in judged if any(met is not None for met in one.reachable()) or any(one.judged)]


def growths_of(separations: Separations, lengths: Lengths) -> list[Growth]:
    """The growth of the smallest width, by both standards, for each pair that the study names."""
    return [growth(lengths, variant, task, standard) for variant, task in separations.growing for standard in STANDARDS]


# -- the first screen --------------------------------------------------------------------------------------------------


def _answer(
    page: Page,
    summary: StudySummary,
    separations: Separations,
    lengths: Lengths,
    findings: Sequence[LengthJudgement],
    growths: Sequence[Growth],
    unfinished: str,
) -> None:
    points = points_by_length(separations, lengths)
    beside = {n: attention_at(separations, lengths, n) for n in points}
    if separations.main not in {finding.name for finding in summary.findings}:
        raise BadInput(f"the main finding '{separations.main}' is not one of the study's findings")
    sentences = (_sentences(separations, lengths, growths), unfinished)
    page.words("", " ".join(filter(None, sentences)) or f"The runs of the main comparison have {UNFINISHED}.")
    chart = separations_figures.state_bits(points, beside, separations.attention)
    page.chart("state-bits", chart, "", PICTURE if chart else "")
    page.table("Do the claims hold?", CLAIMS, [[_said(one), *_verdicts(one)] for one in findings], "", "answer")
    waiting = len(summary.findings) - len(findings)
    unknown = [f"Nothing is known yet of {waiting} more claim{'s' * (waiting > 1)}."] if waiting else []
    page.facts([*unknown, *_exceptions(findings, summary), *_above(points), *RULES])


def _sentences(separations: Separations, lengths: Lengths, growths: Sequence[Growth]) -> str:
    points = points_by_length(separations, lengths)
    beside = {n: attention_at(separations, lengths, n) for n in points}
    sentences = (_largest(separations, lengths, points, beside), _nearest(points), _growing(growths))
    return " ".join(filter(None, sentences))


def points_by_length(separations: Separations, lengths: Lengths) -> dict[int, list[StatePoint]]:
    """The finished recurrent machines of the first picture, at each N that one was tried at."""
    every = {n for v in separations.recurrent for n in lengths.lengths(v, separations.lookup)}
    points = {n: state_points(lengths, separations.recurrent, separations.lookup, n) for n in sorted(every)}
    return {n: found for n, found in points.items() if found}


def attention_at(separations: Separations, lengths: Lengths, length: int) -> SizedCell | None:
    """The narrowest cell of attention that solves N; without one, the most accurate; None if none has finished."""
    cells = [cell for cell in lengths.at(separations.attention, separations.lookup, length) if cell.best]
    solving = [cell for cell in cells if cell.reached()]
    return solving[0] if solving else max(cells, key=lambda cell: accuracy(cell.best), default=None)  # type: ignore[arg-type]


def _largest(
    separations: Separations,
    lengths: Lengths,
    points: Mapping[int, Sequence[StatePoint]],
    beside: Mapping[int, SizedCell | None],
) -> str:
    """At the largest N that attention solves, or else the largest: what it and the best recurrent machine reach."""
    both = {n: cell for n in points if (cell := beside.get(n))}
    solved = [n for n, cell in both.items() if cell.reached()]
    n = max(solved or both, default=None)
    cell = beside[n] if n else None
    if n is None or cell is None or cell.best is None:
        return ""
    best = max(points[n], key=lambda point: (point.accuracy, -point.bits))
    pair = lengths.pair(separations.attention, separations.lookup, n)
    seeds = pair.learned()
    reliably = (
        f"; at width {pair.chosen.place.width}, which validation chose, {seeds.learned} of {seeds.seeds} seeds solve "
        "this length"
        if pair.chosen
        else ""
    )
    needed = task_bounds(best.cell.records[0], n).bits
    room = (
        f" The task needs {needed:,} bits of state, for which there is room, but it is not learned."
        if needed and best.bits >= needed and best.accuracy < LEARNED
        else f" No machine with so few bits can be right in more than {percent(best.ceiling)} %."
        if best.ceiling < 1
        else ""
    )
    steps = max(int(record.spec["training"]["steps"]) for record in (*cell.records, *best.cell.records))
    widths = sorted({point.cell.place.width for point in points[n]})
    largest = ", the largest that attention solves," if solved and n < max(both) else ""
    edge = _edge(best.cell) if best.accuracy < LEARNED else ""
    return (
        f"At N = {n}{largest} and in at most {steps:,} steps, {variant_title(separations.attention)} of width "
        f"{cell.place.width} gives the right symbol for {percent(accuracy(cell.best))} % of the test strings in its "
        f"best run{reliably}. Of the recurrent machines run there (width {listed([*map(str, widths)])}), the "
        f"best is {variant_title(best.cell.variant)} with {best.bits:,} bits of state: {percent(best.accuracy)} %"
        f"{edge}.{room}"
    )


def _edge(cell: SizedCell) -> str:
    """Whether the best run has the lowest or the highest rate of those that were tried."""
    rates, rate = sorted({record.rate for record in cell.records}), cell.best and cell.best.rate
    if rate not in (rates[0], rates[-1]) or len(rates) == 1:
        return ""
    return f" (with a learning rate of {rate:g}, the {'highest' if rate == rates[-1] else 'lowest'} that was tried)"


def _nearest(points: Mapping[int, Sequence[StatePoint]]) -> str:
    """The machine that comes nearest to its ceiling, of those whose states have too few bits to solve N."""
    bounded = [(n, point) for n, found in points.items() for point in found if point.ceiling < LEARNED]
    if not bounded:
        return ""
    n, point = max(bounded, key=lambda pair: (pair[1].accuracy / pair[1].ceiling, -pair[1].bits))
    return (
        "Of the states with too few bits for the task, nearest to the ceiling, as a ratio, is that of "
        f"{variant_title(point.cell.variant)} with {point.bits:,} bits at N = {n}: {percent(point.accuracy)} % of at "
        f"most {percent(point.ceiling)} % (guessing: {percent(1 / alphabet_of(point.cell.records[0]))} %)."
    )


def _growing(growths: Sequence[Growth]) -> str:
    """Whether the smallest widths that training found grow like log N or like N."""
    known = [one for one in growths if one.standard == "reachable" and one.nearer]
    parts = [f"{variant_title(one.variant)} like {one.decision}" for one in known if one.decision]
    undecided = len(known) - len(parts)
    if not parts:
        undecided_only = (
            "Whether the smallest width at which some run solves N grows like log N or like N is undecided."
        )
        return undecided_only * bool(known)
    rest = f" ({undecided} more undecided)" if undecided else ""
    return f"The smallest width at which some run solves N grows: {listed(parts)}{rest}."


def _unfinished(records: Sequence[Record], missing: int) -> str:
    """How many of the study's runs have finished, if not all."""
    planned, finished = len(records) + missing, sum(record.finished for record in records)
    return f"Of {planned:,} planned runs, {finished:,} have finished." if finished < planned else ""


def _said(one: LengthJudgement) -> str:
    finding = one.finding
    return f"“{finding.quote}” ({finding.source})" if finding.quote else f"{finding.says} ({finding.source})"


def _verdicts(one: LengthJudgement) -> list[str]:
    known = [met is not None for met in one.reachable()]
    probed = [bool(cell.seeds) for expected, cell in one.cells if expected.outcome == "learns"]
    return [holds_for(one.reachable(), known), holds_for(one.reliable(), one.judged), holds_for(one.probed, probed)]


def _exceptions(findings: Sequence[LengthJudgement], summary: StudySummary) -> list[str]:
    """What is not as stated by any run: each model, task and N once, with the best that any run reached."""
    lines = []
    for outcome, start in (("learns", "Not reached"), ("fails", "Solved by some run, though it should fail")):
        against: dict[tuple[str, str], dict[int, LengthCell]] = {}
        for one in findings:
            for (expected, cell), met in zip(one.cells, one.reachable(), strict=True):
                if met is False and expected.outcome == outcome:
                    against.setdefault((cell.variant, cell.task), {})[cell.length] = cell
        parts = [_near(variant, summary.task(task), cells, outcome) for (variant, task), cells in against.items()]
        lines += [f"{start}: {'; '.join(parts)}."] if parts else []
    return lines


def _above(points: Mapping[int, Sequence[StatePoint]]) -> list[str]:
    """Machines that are more accurate than any with so few bits can be, by more than chance explains."""
    wrong = [
        f"{row_title(point.cell.variant)} with {point.bits:,} bits at N = {n}"
        for n, found in points.items()
        for point in found
        if point.accuracy > point.ceiling + CHANCE * math.sqrt(point.ceiling * (1 - point.ceiling) / point.rows)
    ]
    return [f"Above the ceiling, so that these records cannot be right: {'; '.join(wrong)}."] if wrong else []


def _near(variant: str, task: str, cells: Mapping[int, LengthCell], outcome: str) -> str:
    at = listed([f"{n} ({percent(cells[n].best)} %)" if outcome == "learns" else str(n) for n in sorted(cells)])
    return f"{row_title(variant)} on {task} at N = {at}"
