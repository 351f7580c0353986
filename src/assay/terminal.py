"""What a person sees while runs go on and when they are over."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import rich.live
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from assay.lab.sweep import Event
from assay.lab.train import Status
from assay.record import Record
from assay.report.tables import Cell, bins, or_dash, percent
from assay.spec import RunSpec

if TYPE_CHECKING:
    from assay.theory.bounds.sizes import Size
    from assay.theory.claim import CheckResult

COLOURS = {"solved": "green", "partly": "yellow", "diverged": "red", "failed": "red"}


def console(stderr: bool = False) -> Console:
    """Where a person reads; 100 columns wide where it is not a terminal."""
    out = Console(highlight=False, stderr=stderr)
    return out if out.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, stderr=stderr, width=100)


class Live:
    """A bar for all runs and a line for each population; without a terminal, a line for each run that ends."""

    SELDOM = 30.0  # seconds between two lines about a population where there is no terminal

    def __init__(self, console: Console, todo: Sequence[RunSpec], quiet: bool) -> None:
        self.console, self.quiet, self.total = console, quiet, len(todo)
        self.bars: dict[int, TaskID] = {}
        self.verdicts: Counter[str] = Counter()
        self.steps, self.begun, self.spoken = 0, time.monotonic(), time.monotonic()
        self.runs = Progress(
            TextColumn("[bold]all runs"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self.lines = Progress(TextColumn("{task.description}"), TextColumn("{task.fields[said]}"))
        self.all = self.runs.add_task("", total=self.total, said="")
        self.shown = rich.live.Live(Group(self.runs, self.lines), console=console, transient=True)

    def __enter__(self) -> Live:
        if not self.quiet and self.console.is_terminal:
            self.shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shown.stop()

    def tell(self, event: Event) -> None:
        if event.status:
            self._status(event.source, event.status)
        if event.record:
            self._record(event.record)

    def _status(self, source: int, status: Status) -> None:
        if source not in self.bars:
            self.bars[source] = self.lines.add_task("", total=None, said="")
        named, on = escape(name_of(status)), status.alive > 0
        self.lines.update(self.bars[source], description=named, visible=on, said=standing(status))
        if not self._speaks or time.monotonic() - self.spoken < self.SELDOM:
            return
        self.spoken = time.monotonic()
        self.console.print(f"{name_of(status)}: {standing(status)}", markup=False)

    def _record(self, record: Record) -> None:
        self.verdicts[record.verdict] += 1
        self.steps += record.steps
        done = sum(self.verdicts.values())
        ends = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common(3))
        self.runs.update(self.all, completed=done, said=ends)
        if self._speaks:
            said = f"[{done}/{self.total}] {record.task} {record.model} seed {record.seed}: {outcome(record)}"
            self.console.print(said, markup=False)

    @property
    def _speaks(self) -> bool:
        return not self.quiet and not self.console.is_terminal

    def summary(self) -> str:
        """What came of all runs, and how fast."""
        spent = time.monotonic() - self.begun
        ends = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        rate = f"{self.steps:,} steps at {self.steps / spent:,.0f} a second"
        return f"{sum(self.verdicts.values())} runs in {clock(spent)}: {ends}; {rate}"


def name_of(status: Status, width: int = 29) -> str:
    """
    >>> name_of(Status("lstm", ("parity", "dyck-1"), *[0] * 13))
    'lstm parity + 1'
    """
    first, *others = status.tasks
    more = f" + {len(others)}" if others else ""
    named = f"{status.model} {first}"
    room = width - len(more)
    return (named if len(named) <= room else named[: room - 1] + "…") + more


def standing(status: Status) -> str:
    """How a population is getting on, in 70 columns: who is in it, accuracy at best and in the middle, speed, time."""
    left = f"{clock(status.left)} left"
    if status.slots == 1 and not status.waiting:
        where = f"step {status.step:,} of {status.steps:,}, loss {status.loss:.3f}, {percent(status.best)} %"
        return f"{where}, {status.steps_per_second:.3g}/s, {left}"
    ends = f"{status.alive} on + {status.waiting}, {status.solved} solved, {status.diverged} diverged"
    rate = f"{status.steps_per_second:.3g} x {status.alive} steps/s"
    return f"{ends}, {percent(status.best)}/{percent(status.median)} %, {rate}, {left}"


def clock(seconds: float) -> str:
    """
    >>> clock(59.7), clock(3700)
    ('1:00', '1:01:40')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def outcome(record: Record) -> str:
    """What came of a run, in one line."""
    if record.error:
        return f"failed: {record.error}"
    at = f" at step {record.solved_at}" if record.solved_at and record.verdict == "solved" else ""
    wrong = f", first wrong at length {record.first_failing_length}" if record.first_failing_length else ""
    return f"{record.verdict}{at}{wrong} ({sum(record.seconds.values()):.0f} s)"


def show(console: Console, of: Sequence[Cell]) -> None:
    """The final table; it fits 100 columns."""
    named = bins(of)
    settings = any(cell.setting for cell in of)
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.add_column("task", no_wrap=True)
    table.add_column("model", no_wrap=True)
    if settings:
        table.add_column("setting", overflow="fold")
    table.add_column("solved", justify="right")
    table.add_column("95 %", justify="right")
    for name in named:
        table.add_column(name, justify="right")
    for heading in ("wrong", "steps", "sec"):
        table.add_column(heading, justify="right")
    table.add_column("verdict", overflow="fold")
    before = ""
    for cell in of:
        if before and cell.task != before:
            table.add_section()
        style = COLOURS.get(cell.verdicts, "")
        table.add_row(
            escape(cell.task) if cell.task != before else "",
            escape(cell.model),
            *([escape(cell.setting)] if settings else []),
            f"{len(cell.solved)}/{len(cell.records)}",
            cell.interval_in_percent,
            *(percent(cell.accuracy(name)) for name in named),
            or_dash(cell.first_failing_length),
            or_dash(cell.steps_to_solve),
            or_dash(cell.seconds_to_solve),
            f"[{style}]{cell.verdicts}" if style else cell.verdicts,
        )
        before = cell.task
    console.print(table)
    console.print("[dim]Bins: % of sequences right everywhere; Bin0 as trained, then longer (index lookup: longest).")
    console.print("[dim]Wrong: the shortest length with a mistake. Steps, sec: median to solve.")
    for record in (record for cell in of for record in cell.records if record.error):
        said = f"{record.task} {record.model} seed {record.seed}: {record.error}"
        console.print(f"[red]failed:[/] {escape(said)}")


def repeated(console: Console, outcomes: Counter[str], runs: Sequence[tuple[Record, Record, bool]]) -> None:
    """Runs that were made again, beside their records."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("seed", justify="right")
    for heading in ("recorded", "steps", "on", "now", "steps", "on"):
        table.add_column(heading, justify="right" if heading == "steps" else "left", no_wrap=True)
    for before, after, same in runs:
        style = "green" if same else "red"
        told = ((run.verdict, f"{run.steps:,}", escape(run.device)) for run in (before, after))
        (was, took, there), (now, takes, here) = told
        table.add_row(str(before.seed), was, took, there, f"[{style}]{now}", takes, here)
    console.print(table)
    seeds = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    agreed = "they agree" if len(outcomes) == 1 else "they do not agree, so that either may come out"
    console.print(f"[dim]Recorded seeds of this cell: {seeds}; {agreed}.")


# -- theory --------------------------------------------------------------------------------------------------------

CLAIM = "{:<24} {:<5} {:>6} {:>7} {:>5} {:>7} {:>8} {:>5}  {}"


def claim_header() -> str:
    return "[bold]" + CLAIM.format("claim", "holds", "N", "inputs", "width", "bits", "margin", "sec", "checked")


def claim_line(result: CheckResult) -> str:
    """One claim in one line of 100 columns."""
    line = CLAIM.format(
        result.claim[:24],
        "yes" if result.holds else "NO",
        f"{result.length}",
        f"{result.inputs:,}",
        or_dash(result.width),
        or_dash(result.bits if result.bits is None else round(result.bits, 2)),
        "-" if result.margin is None else f"{result.margin:.3g}",
        f"{result.seconds:.1f}",
        escape(result.note if not result.holds else result.checked),
    )
    return line if result.holds else f"[red]{line}[/]"


def show_sizes(console: Console, task: str, length: int, precision: int, sizes: Sequence[Size]) -> None:
    """Who can do a task of some length, and at what size."""
    console.print(f"[bold]{escape(task)}[/], N = {length:,}, numbers of {precision} bits")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for heading in ("layers", "bits needed", "least width"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("explicit weights", no_wrap=True)
    table.add_column("", no_wrap=True)
    notes = list(dict.fromkeys(size.known for size in sizes))
    for size in sizes:
        weights = "not known"
        if size.claim:
            layers = f"{size.claim_layers} layer{'' if size.claim_layers == 1 else 's'}"
            weights = f"{size.claim}: width {size.claim_width}, {layers}, {size.claim_precision} bits"
        see = f"[dim]({notes.index(size.known) + 1})"
        table.add_row(size.model, str(size.layers), or_dash(size.bits), or_dash(size.width), weights, see)
    console.print(table)
    for number, note in enumerate(notes, 1):
        console.print(f"[dim]({number}) {escape(note)}")
    console.print("[dim]Least width: with the usual layers and heads, the smallest that has the bits; fewer cannot do.")
