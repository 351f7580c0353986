"""A study's page, made from records alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.findings import Evidence, Finding, Judgement, judge
from assay.record import Record
from assay.report.page import Page
from assay.report.tables import Cell, bins, cells, in_percent, or_dash, percent, wilson


@dataclass(frozen=True)
class About:
    """What a page says that no record does: its title, what was asked and how to ask again, what others found."""

    title: str
    asks: str
    command: str
    findings: Sequence[Finding] = ()


def write(about: About, records: Sequence[Record], missing: int, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files."""
    from assay.report import figures

    of, page = cells(records), Page(about.title, about.asks)
    if about.findings:
        page.table(
            "What the paper found, and what is found here",
            ("finding", "says", "source", "verdict", "evidence"),
            map(_judged, judge(about.findings, records)),
            "Seeds that are right at every position of every sequence, also at the longer lengths of Bin1; of several "
            "settings, the one that validation likes best. A model solves a task with half of its seeds or more, and "
            "fails with a tenth or fewer.",
        )
    page.chart(
        "solved",
        figures.solved(of),
        "Which tasks are solved",
        "Solved means that every tested sequence is right at every position, also at lengths beyond those of "
        "training where the task has them.",
    )
    page.chart(
        "by-length",
        figures.by_length(of),
        "Right sequences by length",
        "Darker is better; the red line is where the lengths of training end.",
    )
    page.table("Every cell", *_table(of))
    page.facts([*_facts(records, missing), f"Made by `{about.command}`."])
    return page.save(folder)


def _judged(judgement: Judgement) -> list[str]:
    finding = judgement.finding
    return [
        finding.name,
        finding.says,
        finding.source,
        judgement.verdict,
        "; ".join(map(_evidence, judgement.evidence)),
    ]


def _evidence(evidence: Evidence) -> str:
    expected, seeds = evidence.expected, len(evidence.chosen)
    if not seeds:
        return f"{expected.model} on {expected.task}: not run"
    interval = in_percent(wilson(evidence.right, seeds))
    said = f"{expected.model} on {expected.task}: {evidence.right} of {seeds} ({interval} %)"
    return said if evidence.met else f"{said}, expected: {expected.outcome}"


def _table(of: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    named = bins(of)
    probes = sorted({s.probe for cell in of for r in cell.records for s in r.scores if s.probe})
    header = ["task", "model", "solved", "95 %", *named, *(f"Bin0 {probe}" for probe in probes)]
    header += ["first wrong", "steps", "seconds", "parameters", "state floats", "verdict"]
    rows = []
    for cell in of:
        sizes = cell.finished[0] if cell.finished else cell.records[0]
        rows.append(
            [
                cell.task,
                cell.label,
                f"{len(cell.solved)} of {len(cell.records)}",
                cell.interval_in_percent,
                *(percent(cell.accuracy(name)) for name in named),
                *(percent(cell.accuracy("Bin0", probe)) for probe in probes),
                or_dash(cell.first_failing_length),
                or_dash(cell.steps_to_solve),
                or_dash(cell.seconds_to_solve),
                f"{sizes.parameters}",
                or_dash(sizes.state_floats),
                cell.verdicts,
            ]
        )
    return header, rows


def _facts(records: Sequence[Record], missing: int) -> list[str]:
    """Where the figures come from, and what is not in them."""
    minutes = sum(sum(record.seconds.values()) for record in records) / 60
    facts = [
        f"{len(records)} runs, {minutes:.1f} minutes of work in all; bins show the mean share of right sequences in %, "
        "a run that diverged counting as 0; steps and seconds are medians over the seeds that solved.",
        f"Commit {_each(r.commit or 'unknown' for r in records)}; device {_each(r.device for r in records)}; "
        f"torch {_each(r.versions.get('torch', '?') for r in records)}; "
        f"seeds {_each(str(r.seed) for r in records)}.",
    ]
    shared = [score for r in records for score in r.scores if score.shared and not score.probe]
    if shared:
        tasks = sorted({r.task for r in records if any(score.shared for score in r.scores)})
        facts.append(
            "Some lengths have fewer than 64 strings, too few to hold any out: test rows that training or validation "
            f"may have shown occur in {', '.join(tasks)} (the records count them)."
        )
    facts += [f"Failed: {r.task} {r.model} seed {r.seed}: {r.error}" for r in records if r.error]
    if missing:
        facts.append(f"{missing} runs of the study are not in the store yet.")
    return facts


def _each(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))
