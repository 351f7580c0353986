"""The device time that the pieces of a study need at most, from the measured speed of populations.

python bench/forecast.py STUDY [--record FILE] [--json]

A step takes as long as in the record with 64 members, in proportion to batch, length and width, and for a model that
the record lacks as long as the slowest. Looks at test bins and tests of all states count as forward passes, a third of
a step. A state that is changed after every step makes a run six times as slow (LSTM, GRU and e-LSTM of the study leaks:
3.5 to 6.6 times). Runs that stop early take less. Starting a group takes some seconds more, and so do few long runs,
which do not fill a device: three pieces of irie2023 took 1.3, 1.3 and 1.9 times their forecast on an H200.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from assay.errors import BadInput
from assay.spec import RunSpec
from assay.studies import Study, study_named
from assay.tasks.task import Bin

MEMBERS, TIME, BATCH, WIDTH = 64, 50, 32, 64  # of the measured steps
STEPWISE = 6  # how many times as long a step takes with a state that is changed after it
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
    looks = training.steps / testing.watch_every if "watched" in testing.states else 0.0
    tokens = float(training.steps * training.batch * run.width)
    tokens += looks * _tokens(run, testing.first_bins) / 3
    tokens += (1 + len(testing.states)) * _tokens(run, testing.bins) / 3
    size = tokens / (BATCH * TIME) * max(width / WIDTH, 0.25) ** 1.5 * layers / 2
    size *= STEPWISE if options.get("state") else 1
    return float(size * speeds.get(run.model.name, max(speeds.values())) / 1000)


def _tokens(run: RunSpec, bins: Sequence[Bin]) -> int:
    """The tokens of test sets, padded to their longest length."""
    return sum(run.testing.rows * run.task.width(bin_.high) for bin_ in bins)


class Row(NamedTuple):
    """A piece with the number of its runs, their steps, and the minutes that they take at most."""

    piece: str
    runs: int
    steps: int
    minutes: float
    question: str


def table(study: Study, speeds: dict[str, float]) -> list[Row]:
    """The pieces of a study in their order, or all of its runs if it has none."""
    about = study.replication or study.separations or study.tracking
    questions = about.questions if about else {}
    return [
        Row(
            name,
            len(runs),
            sum(run.training.steps for run in runs),
            sum(seconds(run, speeds) for run in runs) / 60,
            questions.get(name, ""),
        )
        for name, runs in (dict(study.pieces) or {"": study.runs}).items()
    ]


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
    rows = table(study, speeds)
    if arguments.json:
        print(json.dumps([row._asdict() for row in rows]))
        return
    shown, together = Table(box=None, padding=(0, 1, 0, 0)), 0.0
    for column in ("piece", "runs", "million steps", "minutes", "together", "question"):
        shown.add_column(column, justify="left" if column in ("piece", "question") else "right", no_wrap=True)
    for row in rows:
        together += row.minutes
        numbers = (f"{row.runs:,}", f"{row.steps / 1e6:.2f}", f"{row.minutes:.1f}", f"{together:.1f}")
        shown.add_row(row.piece, *numbers, row.question)
    Console(width=150, highlight=False).print(shown)


if __name__ == "__main__":
    main()
