"""A page read back, and its figures computed again from plain records, with nothing of what made the page."""

from __future__ import annotations

import csv
import html
import json
import math
from collections import Counter
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from statistics import mean, median
from typing import Any

from assay import tasks
from assay.record import Record
from assay.studies import Study

BINS = ["Bin0", "Bin1", "Bin2"]
Table = list[list[str]]
ENTRIES = tasks.TASKS.entries
FINDINGS = "Findings of the paper, and what the records show"
SETUPS = [
    ["task", "on the command line", "question", "trained on", "test bins", "validated to", "steps", "batch"],
    ["parity", "parity", ENTRIES["parity"].summary, "2-10", "2-10, 12-20, 22-30", "15", "1,000-2,000", "32"],
    ["Dyck-1", "dyck-1", ENTRIES["dyck-1"].summary, "2-10", "2-10, 12-20, 22-30", "15", "1,000-2,000", "32"],
]


# -- reading a page --


def tables(folder: Path) -> dict[str, Table]:
    """The tables of the Markdown page, header first, by their heading; a second one under it is named `heading 2`."""
    found: dict[str, Table] = {}
    heading, inside = "", False
    for line in (folder / "index.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        if line.startswith("|"):
            name = heading
            if not inside and heading in found:
                heading = name = f"{heading} 2"
            row = [_read(cell) for cell in line[1:-1].split(" |")]
            if not set(line) <= set("|-"):
                found.setdefault(name, []).append(row)
        inside = line.startswith("|")
    return found


def _read(cell: str) -> str:
    return html.unescape(cell.strip().replace("<br>", "\n").replace("\\*", "*"))


class Cells(HTMLParser):
    """The tables of the HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self.open = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.open = True
        elif tag == "br":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        self.open = self.open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.tables[-1][-1][-1] += data


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


# -- the same figures, from plain data --


class Plain:
    """The records of a study as JSON data, by variant, task and learning rate."""

    def __init__(self, study: Study, records: list[Record]) -> None:
        found = {record.digest: json.loads(record.model_dump_json()) for record in records}
        self.all = list(found.values())
        self.runs: dict[tuple[str, str], dict[float, list[dict[str, Any]]]] = {}
        for variant, runs in study.variants.items():
            for run in runs:
                rates = self.runs.setdefault((variant, run.task.kind), {})
                rates.setdefault(run.training.lr, []).append(found.get(run.digest, {"verdict": "failed"}))
        for place, rates in self.runs.items():
            if any(run["verdict"] == "failed" for some in rates.values() for run in some):
                self.runs[place] = {}
        self.pieces = {
            name: [found[run.digest] for run in runs if run.digest in found] for name, runs in study.pieces.items()
        }

    def pooled(self, variant: str, task: str) -> list[dict[str, Any]]:
        return [run for runs in self.runs.get((variant, task), {}).values() for run in runs]

    def everywhere(self, variant: str) -> list[dict[str, Any]]:
        """On all tasks; nothing if one of them was not run in full."""
        mine = [self.pooled(*place) for place in self.runs if place[0] == variant]
        return [run for some in mine for run in some] if all(mine) else []

    def rate(self, variant: str, task: str) -> float | None:
        """The one with the best validation."""
        rates = self.runs.get((variant, task), {})
        return max(rates, key=lambda lr: (*rank(rates[lr]), -lr), default=None)

    def chosen(self, variant: str, task: str) -> list[dict[str, Any]]:
        rate = self.rate(variant, task)
        return [] if rate is None else self.runs[variant, task][rate]


def rank(runs: list[dict[str, Any]]) -> tuple[float, float, float]:
    ends = []
    for run in runs:
        at = {point["step"]: point["sequences"] for point in run["curve"] if run["stopped"] != "diverged"}
        tested = at[run.get("tested_at") or max(at)] if at else {"": 0.0}
        ends.append(sum(tested.values()) / len(tested))
    solved = [run["steps"] for run in runs if run["stopped"] == "solved"]
    return len(solved) / len(runs), sum(ends) / len(ends), -median(solved) if solved else 0


def right(runs: list[dict[str, Any]], up_to: str, least: float = 1) -> list[dict[str, Any]]:
    needed = set(BINS[: BINS.index(up_to) + 1])
    return [run for run in runs if needed <= {s["bin"] for s in run["scores"] if s["sequences"] >= least}]


def learned(runs: list[dict[str, Any]], up_to: str) -> list[dict[str, Any]]:
    return right(runs, up_to, 0.95)


def accuracy(runs: list[dict[str, Any]], bin_: str) -> float | None:
    shares = [[s["sequences"] for s in run["scores"] if s["bin"] == bin_] for run in runs]
    return mean(share[0] if share else 0.0 for share in shares) if any(shares) else None


def interval(k: int, n: int) -> tuple[float, float]:
    """The two shares p at which (k / n - p)^2 = z^2 p (1 - p) / n."""
    a, b, c = 1 + 1.959964**2 / n, -(2 * k / n + 1.959964**2 / n), (k / n) ** 2
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return max(0.0, (-b - root) / 2 / a), min(1.0, (-b + root) / 2 / a)


def in_percent(k: int, n: int) -> str:
    low, high = interval(k, n)
    return f"{round(100 * low)}-{round(100 * high)}"


def share(value: float | None) -> str:
    return "-" if value is None else "100" if value == 1 else f"{math.floor(value * 1000) / 10}"


def counted(some: list[dict[str, Any]], runs: list[dict[str, Any]]) -> str:
    k, n = len(some), len(runs)
    return f"{k} of {n} ({in_percent(k, n)})"


def steps(runs: list[dict[str, Any]]) -> float | None:
    """Of the runs that learned, the median of the first check with 95 % in both validation bins, if there is one."""
    first = [min(good) for run in learned(runs, "Bin1") if (good := good_checks(run))]
    return median(first) if first else None


def good_checks(run: dict[str, Any]) -> list[int]:
    return [p["step"] for p in run["curve"] if p["sequences"]["Val0"] >= 0.95 and p["sequences"]["Val1"] >= 0.95]


def in_steps(runs: list[dict[str, Any]]) -> str:
    return "" if steps(runs) is None else f"{steps(runs):,.0f} steps"


def trouble(runs: list[dict[str, Any]]) -> list[str]:
    ends = Counter(run["verdict"] for run in runs)
    return [f"{ends[end]} {end}" for end in ("diverged", "collapsed") if ends[end]]


def square(variants: tuple[str, ...], tasks: list[str], text: Any) -> Table:
    header = ["", *map(named_task, tasks)]
    return [header, *([variant, *(text(variant, task) for task in tasks)] for variant in variants)]


def named_task(task: str) -> str:
    return {"dyck-1": "Dyck-1", "": "all tasks"}.get(task, task)


def named_variant(variant: str) -> str:
    return {"gru": "the GRU", "elman": "the Elman network"}.get(variant, variant)


def lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def evidence(plain: Plain, expected: Any, least: float = 0.95) -> tuple[int, int, str, str]:
    """Count, runs, whether it is met (met, not met, neither, not run) and the line of an expectation."""
    place = (expected.variant, expected.task)
    solving = expected.outcome in ("learns", "fails")
    ended = {"diverges": "diverged", "collapses": "collapsed"}.get(expected.outcome, "")
    runs = plain.chosen(*place) if solving else plain.pooled(*place) if expected.task else plain.everywhere(place[0])
    variant, task = named_variant(expected.variant), named_task(expected.task)
    if not runs:
        return 0, 0, "not run", f"- {variant} on {task}: not all runs have finished"
    k, n = len(right(runs, "Bin1", least)) if solving else sum(r["verdict"] == ended for r in runs), len(runs)
    if solving:
        met = "met" if (k / n >= 0.5) == (expected.outcome == "learns") else "not met"
        met = "neither" if 0.1 < k / n < 0.5 else met
    else:
        met = "met" if k / n >= 0.1 else "not met"
    mark = {"met": "✓", "not met": "✗", "neither": "?"}[met]
    verb, unit = ("learns", "seeds") if solving else (f"{expected.outcome} on", "runs")
    line = f"{mark} {variant} {verb} {task} in {k} of {n} {unit} ({in_percent(k, n)} %)"
    line += f", {len(right(runs, 'Bin1'))} perfect" if solving and k else ""
    line += f", lr={plain.rate(*place)}" if solving else ""
    if met == "met":
        return k, n, met, line
    line += f"; expected: {expected.outcome}"
    if expected.outcome == "learns":
        some, tested = validated(plain, *place)
        line += f"; had learned validation: {some} at some check, {tested} when tested"
    return k, n, met, line


def validated(plain: Plain, variant: str, task: str) -> tuple[int, int]:
    """How many seeds had validation right at some check, and in the state that was tested."""
    checks = [(good_checks(run), run) for run in plain.chosen(variant, task)]
    tested = [(run.get("tested_at") or run["curve"][-1]["step"]) in good for good, run in checks if run["curve"]]
    return sum(bool(good) for good, _ in checks), sum(tested)


def status(plain: Plain, finding: Any, least: float = 0.95) -> str:
    met = {evidence(plain, expected, least)[2] for expected in finding.expects}
    if "not run" in met:
        return "not tested" if met == {"not run"} else "under way"
    return "holds" if met == {"met"} else "does not hold" if met == {"not met"} else "in part"


def busy(runs: list[dict[str, Any]]) -> set[int]:
    """The seconds at which any of the runs was under way."""
    spans = [[int(datetime.fromisoformat(run[end]).timestamp()) for end in ("started", "ended")] for run in runs]
    return {second for span in spans for second in range(*span)}


def device_minutes(plain: Plain, name: str) -> float:
    """Second by second: a piece's share of the device, among the pieces that have a run under way."""
    at = {piece: busy(runs) for piece, runs in plain.pieces.items()}
    return sum(1 / sum(second in seconds for seconds in at.values()) for second in at[name]) / 60


def recomputed(study: Study, records: list[Record]) -> dict[str, Table]:
    """Every table of a page of this study; of comparisons, those of which something was run."""
    plain, both = Plain(study, records), ["parity", "dyck-1"]
    first, depth, one = (comparison.variants for comparison in study.comparisons)

    def chosen(variant: str, task: str, text: Any) -> str:
        runs = plain.chosen(variant, task)
        return text(runs) if runs else ""

    def near(runs: list[dict[str, Any]]) -> str:
        good = learned(runs, "Bin1")
        perfect = f"{len(right(runs, 'Bin1'))} perfect" if good else ""
        return lines(share(accuracy(runs, "Bin1")), counted(good, runs), perfect)

    def far(runs: list[dict[str, Any]]) -> str:
        return lines(share(accuracy(runs, "Bin2")), counted(right(runs, "Bin2"), runs))

    def soon(runs: list[dict[str, Any]]) -> str:
        return lines(share(accuracy(runs, "Bin1")), counted(learned(runs, "Bin1"), runs), in_steps(runs))

    def robust(variant: str, task: str) -> str:
        runs = plain.pooled(variant, task)
        return lines(counted(learned(runs, "Bin1"), runs), in_steps(runs), *trouble(runs)) if runs else ""

    findings = [["finding", "status", "if perfect", "evidence"]]
    for f in study.findings:
        result = status(plain, f)
        because = lines(*(evidence(plain, e)[3] for e in f.expects), "" if result == "holds" else f.differs)
        findings.append([f"{f.name}\n{f.says} ({f.source})", result, status(plain, f, 1), because])
    cost = [["piece", "runs", "minutes", "device", "commit", "command"]]
    for name, mine in plain.pieces.items():
        cost.append(
            [
                name,
                f"{len(mine)} of {len(study.pieces[name])}",
                f"{device_minutes(plain, name):.1f}" if mine else "",
                ", ".join(sorted({run["device"] for run in mine})),
                ", ".join(sorted({run["commit"] for run in mine})),
                f"assay study mine.py --piece {name}",
            ]
        )
    may = {
        "The tasks": SETUPS,
        FINDINGS: findings,
        "The first, in numbers": square(first, both, lambda v, t: chosen(v, t, near)),
        "At the longest lengths": square(first, both, lambda v, t: chosen(v, t, far)),
        "Robustness": square(first, both, robust),
        "Depth": square(depth, both, lambda v, t: chosen(v, t, soon)),
        "One task": square(one, ["dyck-1"], lambda v, t: chosen(v, t, soon)),
        "Cost": cost,
    }
    return {name: table for name, table in may.items() if any(any(row[1:]) for row in table[1:])}
