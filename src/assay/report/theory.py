"""The page on theory, made from the record of one run of everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.report.page import Page

ABOUT = (
    "Theorems about sequence architectures, run: explicit weights in the classes that are trained, checked against the "
    "tasks' oracles; lower bounds with witnesses that are checked; and what precision and attention they need. What "
    "each claim says is in docs/theory.md."
)
Rows = Sequence[dict[str, Any]]


def write(record: dict[str, Any], statements: dict[str, tuple[str, str]], folder: Path) -> list[Path]:
    """Write the page and its charts; returns the files. Of each claim, its source and what it says."""
    from assay.report import theory_figures as figures

    page = Page("Theory", ABOUT)
    page.table(
        "The claims",
        ("claim", "holds", "N", "inputs", "width", "bits", "margin", "seconds", "checked"),
        map(_claim, record["claims"]),
        "Bits: of every number of a construction, or what a bound asks for. Margin: the smallest lead of the right "
        "answer.",
    )
    page.table(
        "What they say",
        ("claim", "source", "says"),
        ([row["claim"], *statements[row["claim"]]] for row in record["claims"]),
    )
    page.chart(
        "bits",
        figures.bits(record["bits"]),
        "Bits needed and bits carried",
        "Dashed: what any recurrent machine must carry. A line below it cannot solve the task at that length, however "
        "it is trained. A Transformer's cache grows with its input. Numbers of 32 bits, default sizes.",
    )
    exact = [row for row in record["precision"] if row["bits"] is not None]
    lookups = [row for row in exact if row["claim"].startswith("lookup") and row["part"] == "all"]
    longest = max(row["length"] for row in lookups)
    page.chart(
        "precision",
        figures.precision([row for row in exact if row["part"] == "all"]),
        "Precision needed",
        "Fixed point, for all numbers: a sign, whole bits and fraction bits, as few as keep every checked input right.",
    )
    page.table(
        "Precision, part by part",
        ("claim", "part", *(f"N = {n:,}" for n in _lengths(record["precision"]))),
        _formats(record["precision"]),
        "Whole and fraction bits of fixed point when only this part is rounded; a sign comes on top. A dash: none "
        "found; empty: not measured. Tried on 256 random inputs, of which some are chosen to be hard.",
    )
    page.chart(
        "frontier",
        figures.frontier([row for row in lookups if row["length"] == longest]),
        "The frontier between width and precision",
        "Three ways to say a position: the narrower the vector, the finer its numbers must be.",
    )
    page.table(
        "Attention of other kinds",
        ("claim", "N", *record["variants"]),
        _variants(record["attention"], record["variants"]),
        "The least factor on all logits (a power of two) at which the construction holds with another weighting in "
        "place of softmax; of a sigmoid also what is first taken off, in parts of the layer's largest logit. A dash "
        "where none of those tried does. On 256 random inputs.",
    )
    page.chart(
        "depth",
        figures.depth(record["depth"]),
        "One layer against two",
        "String equality by explicit weights. One layer must carry the string: its width falls only as fast as its "
        "numbers grow finer. The bound is the least m * H that the communication argument allows.",
    )
    page.facts(_facts(record))
    return page.save(folder)


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
    found = {(row["claim"], row["part"], row["length"]): row for row in rows}
    lines = []
    for claim, part in dict.fromkeys((row["claim"], row["part"]) for row in rows):
        cells = [found.get((claim, part, n)) for n in _lengths(rows)]
        lines.append([claim, part, *map(_format, cells)])
    return lines


def _format(row: dict[str, Any] | None) -> str:
    """Empty where it was not measured."""
    if row is None:
        return ""
    return "-" if row["bits"] is None else f"{row['whole']}.{row['fraction']}"


def _variants(rows: Rows, variants: Sequence[str]) -> list[list[str]]:
    found = {(row["claim"], row["length"], row["variant"]): row for row in rows}
    lines = []
    for claim, length in dict.fromkeys((row["claim"], row["length"]) for row in rows):
        cells = [_factor(found.get((claim, length, variant), {})) for variant in variants]
        lines.append([claim, f"{length:,}", *cells])
    return lines


def _factor(row: dict[str, Any]) -> str:
    if row.get("scale") is None:
        return "-"
    return f"x {row['scale']:g}" + (f", less {row['offset']:g}" if row.get("offset") else "")


def _facts(record: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {said}" for name, said in record["versions"].items())
    made = record["made"]
    commits = ", ".join(dict.fromkeys(part["commit"] for part in made.values()))
    minutes = sum(part["minutes"] for part in made.values())
    return [
        f"Commit {commits}; {record['device']}; {versions}; {minutes:.0f} minutes.",
        f"Made by `{record['command']}`.",
    ]
