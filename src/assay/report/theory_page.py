"""The page on theory, made from the record of a measurement of all claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.analysis.subjects import TheoryRecord
from assay.report.page import Page

ABOUT = (
    "Theorems about sequence architectures that can be run: explicit weights in the same classes that are trained, "
    "checked against the tasks' oracles; lower bounds, whose witnesses are checked; and the precision and the kind of "
    "attention that the constructions need. docs/theory.md explains each claim."
)
Rows = Sequence[dict[str, Any]]


def write(subject: TheoryRecord, folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files."""
    page = Page("Theory", ABOUT)
    _claims(page, subject)
    _precision(page, subject.record)
    _attention_and_depth(page, subject.record)
    page.facts(_facts(subject.record))
    return page.save(folder)


def _claims(page: Page, subject: TheoryRecord) -> None:
    from assay.report import theory_figures as figures

    record = subject.record
    page.table(
        "The claims",
        ("claim", "holds", "N", "inputs", "width", "bits", "margin", "seconds", "checked"),
        map(_claim, record["claims"]),
        "Bits: the precision of a construction's numbers, or the bits that a bound demands. Margin: the smallest lead "
        "of the right answer's logit.",
    )
    page.table(
        "Statements",
        ("claim", "source", "statement"),
        ([row["claim"], *subject.statements[row["claim"]]] for row in record["claims"]),
    )
    page.chart(
        "bits",
        figures.bits(record["bits"]),
        "Bits needed and bits carried",
        "Dashed: the bits that any recurrent machine must carry. A model below the dashed line cannot solve the task "
        "at that length, however it is trained. A Transformer's cache grows with its input. Default sizes, 32-bit "
        "numbers. The models of the two papers; the table has all models.",
    )
    tasks = list(dict.fromkeys(row["task"] for row in record["bits"]))
    page.table(
        "Bits of every model's state",
        ("models", "bits, shortest input", "bits, longest input", *(f"enough for {task} to" for task in tasks)),
        _states(record["bits"], tasks),
        f"Default sizes, 32-bit numbers. Shortest and longest input of {tasks[0]} that was measured. The last columns: "
        "the longest measured N at which a model carries at least the bits that the task needs; 'all': at every one.",
    )


def _precision(page: Page, record: dict[str, Any]) -> None:
    from assay.report import theory_figures as figures

    exact = [row for row in record["precision"] if row["bits"] is not None]
    lookups = [row for row in exact if row["claim"].startswith("lookup") and row["part"] == "all"]
    longest = max(row["length"] for row in lookups)
    page.chart(
        "precision",
        figures.precision([row for row in exact if row["part"] == "all"]),
        "Precision needed",
        "The fewest bits of fixed point, for all numbers, with which every checked input is right: a sign, whole bits "
        "and fraction bits.",
    )
    page.table(
        "Precision, part by part",
        ("claim", "part", *(f"N = {n:,}" for n in _lengths(record["precision"]))),
        _formats(record["precision"]),
        "Whole and fraction bits of fixed point when only this part is rounded; the sign is one more bit. A dash: no "
        "format was found; empty: not measured. Measured on 256 random inputs, some of them chosen to be hard.",
    )
    page.chart(
        "frontier",
        figures.frontier([row for row in lookups if row["length"] == longest]),
        "The frontier between width and precision",
        "Three encodings of a position: the narrower the vector, the more precise its numbers must be.",
    )


def _attention_and_depth(page: Page, record: dict[str, Any]) -> None:
    from assay.report import theory_figures as figures

    page.table(
        "Attention of other kinds",
        ("claim", "N", *record["variants"]),
        _variants(record["attention"], record["variants"]),
        "The smallest factor on all logits (a power of two) with which the construction holds when softmax is replaced "
        "by another weighting; for a sigmoid also the offset that is subtracted first, as a share of the layer's "
        "largest logit. A dash: the construction failed with every factor that was tried. Measured on 256 random "
        "inputs.",
    )
    page.chart(
        "depth",
        figures.depth(record["depth"]),
        "One layer against two",
        "String equality by explicit weights. One layer must carry the whole string: it can be narrower only if its "
        "numbers are more precise. The bound is the smallest m * H that the communication argument allows.",
    )


def _states(rows: Rows, tasks: Sequence[str]) -> Iterator[list[str]]:
    from assay.report import theory_figures as figures

    for models in figures.alike(rows, list(dict.fromkeys(row["model"] for row in rows))):
        own = [row for row in rows if row["model"] == models[0]]
        bits = [row["available"] for row in own if row["task"] == tasks[0]]
        reach = (_reach([row for row in own if row["task"] == task]) for task in tasks)
        yield [", ".join(models), f"{bits[0]:,}", f"{bits[-1]:,}", *reach]


def _reach(rows: Rows) -> str:
    """The longest N, of one model on one task, up to which the bits are enough."""
    too_long = [row["length"] for row in rows if row["available"] < row["needed"]]
    if not too_long:
        return "all"
    return f"N = {max((row['length'] for row in rows if row['length'] < min(too_long)), default=0):,}"


def _claim(row: dict[str, Any]) -> list[str]:
    return [
        row["claim"],
        "yes" if row["holds"] else "NO",
        f"{row['length']:,}",
        f"{row['inputs']:,}",
        _number(row["width"]),
        _number(row["bits"]),
        _number(row["margin"]),
        f"{row['seconds']:.1f}",
        row["note"] or row["checked"],
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _lengths(rows: Rows) -> list[int]:
    return sorted({row["length"] for row in rows})


def _formats(rows: Rows) -> list[list[str]]:
    by_key = {(row["claim"], row["part"], row["length"]): row for row in rows}
    lines = []
    for claim, part in dict.fromkeys((row["claim"], row["part"]) for row in rows):
        cells = [by_key.get((claim, part, n)) for n in _lengths(rows)]
        lines.append([claim, part, *map(_format, cells)])
    return lines


def _format(row: dict[str, Any] | None) -> str:
    """Empty if it was not measured."""
    if row is None:
        return ""
    return "-" if row["bits"] is None else f"{row['whole']}.{row['fraction']}"


def _variants(rows: Rows, variants: Sequence[str]) -> list[list[str]]:
    by_key = {(row["claim"], row["length"], row["variant"]): row for row in rows}
    lines = []
    for claim, length in dict.fromkeys((row["claim"], row["length"]) for row in rows):
        cells = [_factor(by_key.get((claim, length, variant), {})) for variant in variants]
        lines.append([claim, f"{length:,}", *cells])
    return lines


def _factor(row: dict[str, Any]) -> str:
    if row.get("scale") is None:
        return "-"
    return f"x {row['scale']:g}" + (f", less {row['offset']:g}" if row.get("offset") else "")


def _facts(record: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    parts = record["made"].values()
    commits = ", ".join(dict.fromkeys(part["commit"] for part in parts))
    minutes = sum(part["minutes"] for part in parts)
    return [
        f"Commit {commits}; {record['device']}; {versions}; {minutes:.0f} minutes.",
        f"Made by `{record['command']}`.",
    ]
