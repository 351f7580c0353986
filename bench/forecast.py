"""The device time that the pieces of a study need at most, from the measured speed of populations.

python bench/forecast.py STUDY [--record FILE] [--json]

A step takes as long as in the record with 64 members, in proportion to batch and length (attention: longer by a 1,600th
for every token, as its long rows in the record show) and to width^1.5 (Mamba and DSS: ^1.3, as their wide rows show),
and for a model that the record lacks as long as the slowest. Looks at test bins and tests of all states count as
forward passes, a third of a step. A state that is changed after every step makes a run six times as slow (LSTM, GRU and
e-LSTM of the study leaks: 3.5 to 6.6 times). Runs that stop early take less.

Few runs do not fill a device: a step of a program, however few its members, takes at least 0.3 ms and 5 microseconds a
token (one member of 400 tokens in the record: 0.5 to 2.8 ms), of which eight programs share the device. A command takes
20 s to begin; a program 1 s, and 1.5 s more if its kernels must be compiled (54 runs in six programs: 22 s, on a fresh
machine 31 s).

The pieces of irie2023 took 57 minutes on an H200, and this says 55: each took 0.4 to 2 times its forecast. Longest of
all took reset Dyck-1, whose strings take longest to draw.
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
from assay.lab.plan import GROUPS_ON_GPU
from assay.lab.program import program_of
from assay.spec import RunSpec
from assay.studies import Study, study_named
from assay.tasks.bins import Bin

MEMBERS, TIME, BATCH, WIDTH = 64, 50, 32, 64  # of the measured steps
STEPWISE = 6  # how many times as long a step takes with a state that is changed after it
ATTENTION = ("transformer", "forgetting-transformer", "stick-breaking", "path")
EXPONENTS = {"mamba": 1.3, "dss": 1.3}  # exponents of the width
TOKENS = 1600  # of which attention takes twice as long as in proportion
COMMAND, PROGRAM, COMPILED = 20.0, 1.0, 1.5  # seconds to begin: once, for each program, for each architecture
LEAST_MS, TOKEN_MS = 0.3, 0.005  # of a step of few members
RECORD = Path(__file__).parent / "results" / "population-h200.json"


def measured(record: Path) -> dict[str, float]:
    """Milliseconds of a round by model, per member and step."""
    rows = json.loads(record.read_text())["rows"]
    small = [row for row in rows if (row["part"], row["members"], row["time"]) == ("small", MEMBERS, TIME)]
    return {row["model"]: row["round_ms"] for row in small if "round_ms" in row}


def seconds(run: RunSpec, speeds: dict[str, float]) -> float:
    """What a run takes at most, as one of many."""
    training, testing, options = run.training, run.testing, run.model.plain()
    width, layers = int(options.get("width", WIDTH)), len(options.get("mixers", "12"))
    looks = training.steps / testing.watch_every if "watched" in testing.states else 0.0
    tokens = float(training.steps * training.batch * run.width)
    tokens += looks * _tokens(run, testing.first_bins) / 3
    tokens += (1 + len(testing.states)) * _tokens(run, testing.bins) / 3
    size = tokens / (BATCH * TIME) * max(width / WIDTH, 0.25) ** EXPONENTS.get(run.model.name, 1.5) * layers / 2
    size *= STEPWISE if options.get("state") else 1
    size *= 1 + run.width / TOKENS if run.model.name in ATTENTION else 1
    return float(size * speeds.get(run.model.name, max(speeds.values())) / 1000)


def _tokens(run: RunSpec, bins: Sequence[Bin]) -> int:
    """The tokens of test sets, padded to their longest length."""
    return sum(run.testing.rows * run.task.width(bin_.high) for bin_ in bins)


def piece_seconds(runs: Sequence[RunSpec], speeds: dict[str, float]) -> float:
    """What the runs of one command take at most."""
    programs: dict[str, list[RunSpec]] = {}
    for run in runs:
        programs.setdefault(program_of(run), []).append(run)
    alone = [max(map(_least_seconds, members)) for members in programs.values()]
    busy = max(sum(seconds(run, speeds) for run in runs), sum(alone) / GROUPS_ON_GPU, *alone)
    architectures = {run.model for run in runs}
    return COMMAND + PROGRAM * len(programs) + COMPILED * len(architectures) + busy


def _least_seconds(run: RunSpec) -> float:
    """What a run takes at least, however few share its steps."""
    looks = run.training.steps / run.testing.watch_every / 3 if "watched" in run.testing.states else 0.0
    each = (LEAST_MS + TOKEN_MS * run.width) * (STEPWISE if run.model.plain().get("state") else 1)
    return (run.training.steps + looks) * each / 1000


class Row(NamedTuple):
    """A piece with the number of its runs and programs, their steps, and the minutes that they take at most."""

    piece: str
    runs: int
    programs: int
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
            len({program_of(run) for run in runs}),
            sum(run.training.steps for run in runs),
            piece_seconds(runs, speeds) / 60,
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
    for column in ("piece", "runs", "programs", "million steps", "minutes", "together", "question"):
        shown.add_column(column, justify="left" if column in ("piece", "question") else "right", no_wrap=True)
    for row in rows:
        together += row.minutes
        sizes = f"{row.runs:,}", f"{row.programs}", f"{row.steps / 1e6:.2f}"
        shown.add_row(row.piece, *sizes, f"{row.minutes:.1f}", f"{together:.1f}", row.question)
    Console(width=200, highlight=False).print(shown)


if __name__ == "__main__":
    main()
