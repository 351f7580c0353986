"""The device time that the pieces of a study need at most, from the measured speed of populations.

python bench/forecast.py STUDY [--record FILE] [--json]

A step takes as long as in the record with 64 members, in proportion to batch, length and width, and for a model that
the record lacks as long as the slowest. Looks at test bins count as forward passes, a third of a step. Runs that stop
early take less; starting a group and testing take some seconds more.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from assay.description import BadInput
from assay.spec import RunSpec
from assay.studies import study_named

MEMBERS, TIME, BATCH, WIDTH = 64, 50, 32, 64  # of the measured steps
RECORD = Path(__file__).parent / "results" / "population-h200.json"


def measured(record: Path) -> dict[str, float]:
    """Milliseconds of a round by model, per member and step."""
    rows = json.loads(record.read_text())["rows"]
    small = [row for row in rows if row["part"] == "small" and (row["members"], row["time"]) == (MEMBERS, TIME)]
    return {row["model"]: row["round_ms"] for row in small}


def seconds(run: RunSpec, speeds: dict[str, float]) -> float:
    """What a run takes at most, as one of many."""
    training, testing, options = run.training, run.testing, run.model.plain()
    width, layers = int(options.get("width", WIDTH)), len(options.get("mixers", "12"))
    tokens = float(training.batch * run.width)
    if "watched" in testing.states:
        rows = sum(testing.rows * run.task.width(bin_.high) for bin_ in testing.first_bins)
        tokens += rows / testing.watch_every / 3
    size = tokens / (BATCH * TIME) * max(width / WIDTH, 0.25) ** 1.5 * layers / 2
    return float(training.steps * size) * speeds.get(run.model.name, max(speeds.values())) / 1000


def table(pieces: dict[str, Sequence[RunSpec]], speeds: dict[str, float]) -> list[tuple[str, int, int, float]]:
    """Pieces with their number of runs, and the steps and minutes that they take at most."""
    rows = []
    for name, runs in pieces.items():
        minutes = sum(seconds(run, speeds) for run in runs) / 60
        rows.append((name, len(runs), sum(run.training.steps for run in runs), minutes))
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("study")
    options.add_argument("--record", type=Path, default=RECORD)
    options.add_argument("--json", action="store_true")
    arguments = options.parse_args()
    try:
        study, speeds = study_named(arguments.study), measured(arguments.record)
    except (BadInput, OSError, ValueError) as error:
        options.error(str(error))
    rows = table(dict(study.pieces) or {"": study.runs}, speeds)
    if arguments.json:
        print(json.dumps([dict(zip(("piece", "runs", "steps", "minutes"), row, strict=True)) for row in rows]))
        return
    shown = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("piece", "runs", "million steps", "minutes at most"):
        shown.add_column(column, justify="left" if column == "piece" else "right")
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows), sum(row[3] for row in rows)))
    for name, runs, steps, minutes in rows:
        shown.add_row(name, f"{runs:,}", f"{steps / 1e6:.2f}", f"{minutes:.1f}")
    Console(width=100, highlight=False).print(shown)


if __name__ == "__main__":
    main()
