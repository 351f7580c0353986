"""What a person sees while runs go on and when they are over."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from assay.lab.sweep import Event
from assay.record import Record
from assay.report.tables import Cell, bins, or_dash, percent
from assay.spec import RunSpec

COLOURS = {"solved": "green", "partly": "yellow", "diverged": "red", "failed": "red"}


def console(stderr: bool = False) -> Console:
    """Where a person reads; 100 columns wide where it is not a terminal."""
    out = Console(highlight=False, stderr=stderr)
    return out if out.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, stderr=stderr, width=100)


class Live:
    """A bar for all runs and one for each that is under way; a line for each that ends where there is no terminal."""

    def __init__(self, console: Console, todo: Sequence[RunSpec], quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        self.specs = {spec.digest: spec for spec in todo}
        self.bars: dict[str, TaskID] = {}
        self.done, self.solved = 0, 0
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
        )
        self.all = self.progress.add_task("[bold]all runs", total=len(self.specs), said="")

    def __enter__(self) -> Live:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def tell(self, event: Event) -> None:
        spec = self.specs[event.digest]
        if event.digest not in self.bars:
            self.bars[event.digest] = self.progress.add_task(escape(name_of(spec)), total=spec.training.steps, said="")
        bar = self.bars[event.digest]
        if event.record is None:
            said = f"loss {event.loss:.3f}  accuracy {percent(event.accuracy)} %" if event.step else ""
            self.progress.update(bar, completed=event.step, said=said)
            return
        self.progress.remove_task(bar)
        self.done += 1
        self.solved += event.record.verdict == "solved"
        self.progress.update(self.all, completed=self.done, said=f"{self.solved} solved")
        if not self.quiet and not self.console.is_terminal:
            said = f"[{self.done}/{len(self.specs)}] {name_of(spec)}: {outcome(event.record)}"
            self.console.print(said, markup=False)


def name_of(spec: RunSpec) -> str:
    return f"{spec.task.kind} {spec.model.name} seed {spec.seed}"


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
