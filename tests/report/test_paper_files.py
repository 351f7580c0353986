"""The files beside the page: every column is recomputed, and what is committed is what the shipped records say."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.findings import Comparison
from assay.record import Record
from assay.studies import Study
from tests.report.paper_study import page
from tests.report.recomputed import (
    BINS,
    Plain,
    accuracy,
    csv_rows,
    evidence,
    in_percent,
    interval,
    learned,
    right,
    share,
    status,
    steps,
    validated,
)


def test_every_column_of_the_files_is_recomputed(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    plain = Plain(study, records)
    page(study, records, tmp_path)
    rows = csv_rows(tmp_path / "cells.csv")
    assert len(rows) == sum(len(rates) for rates in plain.runs.values())
    for row in rows:
        lr = float(row["setting"].removeprefix("lr="))
        runs = plain.runs[row["variant"], row["task"]][lr]
        wrong = [run["first_failing_length"] for run in runs if run["first_failing_length"]]
        expected: dict[str, Any] = {"variant": row["variant"], "task": row["task"], "setting": row["setting"]}
        expected |= {"chosen": "yes" if lr == plain.rate(row["variant"], row["task"]) else "no", "seeds": len(runs)}
        for bin_ in BINS:
            k = len(learned(runs, bin_))
            low, high = interval(k, len(runs))
            expected |= {f"learned up to {bin_}": k, f"low {bin_}": low, f"high {bin_}": high}
            expected |= {f"perfect up to {bin_}": len(right(runs, bin_))}
            expected |= {f"accuracy {bin_}": accuracy(runs, bin_)}
        for end in ("solved", "refuted", "partly solved", "collapsed", "diverged", "censored"):
            expected[end] = sum(run["verdict"] == end for run in runs)
        expected |= {"median steps to 95 % of validation": steps(runs)}
        expected |= {"seconds": sum(run["seconds"]["train"] + run["seconds"]["test"] for run in runs)}
        expected |= {"first wrong length": min(wrong, default=None)}
        expected |= {"parameters": runs[0]["parameters"], "state floats": 8}
        assert list(row) == list(expected)
        for name, value in expected.items():
            assert same(row[name], value), (row["variant"], row["task"], name, row[name], value)

    stated = [(finding, expected) for finding in study.findings for expected in finding.expects]
    for row, (finding, one) in zip(csv_rows(tmp_path / "findings.csv"), stated, strict=True):
        k, n, met, line = evidence(plain, one)
        assert (row["finding"], row["says"], row["source"]) == (finding.name, finding.says, finding.source)
        assert (row["variant"], row["task"], row["expected"]) == (one.variant, one.task or "all tasks", one.outcome)
        assert (row["status"], row["status if perfect"]) == (status(plain, finding), status(plain, finding, 1))
        assert row["met"] == {"met": "yes", "not met": "no"}.get(met, "")
        assert (row["count"], row["runs"]) == (str(k) if n else "", str(n))
        assert row["setting"] == "".join(re.findall(r"lr=[\d.]+\d", line))
        for name, bound in zip(("low", "high"), interval(k, n) if n else (None, None), strict=True):
            assert same(row[name], bound)
        about_seeds = n and one.outcome in ("learns", "fails")
        some, tested = validated(plain, one.variant, one.task) if about_seeds else (None, None)
        assert same(row["validation learned at some check"], some)
        assert same(row["validation learned when tested"], tested)


def same(text: str, value: Any) -> bool:
    if value is None:
        return text == ""
    return text == value if isinstance(value, str) else float(text) == pytest.approx(value, rel=1e-5, abs=1e-9)


def test_the_table_in_latex_says_the_same(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    plain = Plain(study, records)
    text = (page(study, records, tmp_path) / "table.tex").read_text()
    body = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert body[0] == " & parity & Dyck-1 \\\\"
    places = [[(variant, task) for task in ("parity", "dyck-1")] for variant in ("gru", "elman")]
    for above, below, mine in zip(body[1::2], body[2::2], places, strict=True):
        means, seeds = (line.removesuffix(" \\\\").split(" & ")[1:] for line in (above, below))
        for said, numbers, place in zip(means, seeds, mine, strict=True):
            runs = plain.chosen(*place)
            assert said == (share(accuracy(runs, "Bin1")) if runs else "")
            k, n = len(learned(runs, "Bin1")), len(runs)
            brackets = in_percent(k, n).replace("-", "--") if runs else ""
            assert numbers == (f"{{\\footnotesize {k}/{n} ({brackets})}}" if runs else "")
    assert text.count("{") == text.count("}")
    packages = set(re.findall(r"\\([a-z]+)", text))
    assert packages <= {"begin", "end", "hline", "footnotesize"}, "no package is needed"


def test_names_are_escaped_in_latex(study: Study, records: list[Record], tmp_path: Path, undrawn: None):
    swapped = replace(study, comparisons=[Comparison("50 % & more", "", ("gru_2, deep",))])
    text = (page(swapped, records, tmp_path) / "table.tex").read_text()
    assert "gru\\_2, deep & " in text
    assert all(line.startswith("%") for line in text.splitlines() if "50 %" in line)
