"""What the command line shows: progress while runs are trained and tested, and tables at the end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import rich.live
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from assay.analysis.cells import Cell, bins
from assay.lab.engines.engine import Event
from assay.lab.status import EvaluationStatus, Status
from assay.record import Record
from assay.report.collection_page import matrix
from assay.report.text import in_percent, or_dash, percent

if TYPE_CHECKING:
    from assay.analysis.collection import Collection
    from assay.lab.progress import Process
    from assay.lab.progress import Progress as StoreProgress
    from assay.theory.bounds.sizes import Size
    from assay.theory.claim import CheckResult

VERDICT_WIDTH = 13  # a little more than the longest single verdict
WORD_WIDTH = 12  # of the shortest wrong input
COLOURS = {"solved": "green", "proved": "green", "refuted": "yellow", "partly": "yellow"}
COLOURS |= {"diverged": "red", "failed": "red"}


def console(stderr: bool = False) -> Console:
    """A console for people; 100 columns wide if the output is not a terminal."""
    out = Console(highlight=False, stderr=stderr)
    return out if out.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, stderr=stderr, width=100)


class LiveProgress:
    """A bar for all runs and a line for each worker; without a terminal, a line for each run that ends."""

    STATUS_INTERVAL = 30.0  # seconds between two status lines where there is no terminal

    def __init__(self, console: Console, total: int, quiet: bool) -> None:
        self.console, self.quiet, self.total = console, quiet, total
        self.lines: dict[int, TaskID] = {}
        self.verdicts: Counter[str] = Counter()
        self.message = ""
        self.steps, self.start, self.last_status = 0, time.monotonic(), time.monotonic()
        self.runs = Progress(
            TextColumn("[bold]all runs"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self.workers = Progress(TextColumn("{task.description}"), TextColumn("{task.fields[text]}"))
        self.bar = self.runs.add_task("", total=self.total, text="")
        self.live = rich.live.Live(Group(self.runs, self.workers), console=console, transient=True)

    def __enter__(self) -> LiveProgress:
        if not self.quiet and self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def receive(self, event: Event) -> None:
        if event.message:
            self._show_message(event.message)
        elif event.status:
            self._show_status(event.worker, event.status)
        elif event.record:
            self._show_record(event.record)
        elif event.worker in self.lines:
            self.workers.update(self.lines[event.worker], visible=False)

    def _show_message(self, message: str) -> None:
        """Show why everything waits, once."""
        if message != self.message and not self.quiet:
            self.console.print(message, markup=False)
        self.message = message

    def _show_status(self, worker: int, status: Status | EvaluationStatus) -> None:
        if worker not in self.lines:
            self.lines[worker] = self.workers.add_task("", total=None, text="")
        visible = isinstance(status, EvaluationStatus) or status.alive > 0
        text = status_text(status)
        self.workers.update(self.lines[worker], description=escape(status_name(status)), visible=visible, text=text)
        due = time.monotonic() - self.last_status >= self.STATUS_INTERVAL
        if self._prints and visible and due:
            self.last_status = time.monotonic()
            self.console.print(f"{status_name(status)}: {text}", markup=False)

    def _show_record(self, record: Record) -> None:
        self.verdicts[record.verdict] += 1
        self.steps += record.steps
        done = sum(self.verdicts.values())
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common(3))
        self.runs.update(self.bar, completed=done, text=verdicts)
        if self._prints:
            line = f"[{done}/{self.total}] {record.task} {record.model} seed {record.seed}: {outcome(record)}"
            self.console.print(line, markup=False)

    @property
    def _prints(self) -> bool:
        return not self.quiet and not self.console.is_terminal

    def summary(self) -> str:
        """How many runs ended with which verdict, and how fast."""
        seconds = time.monotonic() - self.start
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        rate = f"{self.steps:,} steps at {self.steps / seconds:,.0f} a second"
        return f"{counted(sum(self.verdicts.values()), 'run')} in {clock(seconds)}: {verdicts}; {rate}"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def status_name(status: Status | EvaluationStatus, width: int = 29) -> str:
    """
    >>> status_name(Status("lstm", ("parity", "dyck-1"), *[0] * 13))
    'lstm parity + 1'
    >>> status_name(EvaluationStatus("a-very-long-model-name", "parity", 0, 1, 2))
    'a-very-long-model-name parity'
    """
    first, *others = status.tasks if isinstance(status, Status) else (status.task,)
    suffix = f" + {len(others)}" if others else ""
    name, space = f"{status.model} {first}", width - len(suffix)
    return (name if len(name) <= space else name[: space - 1] + "…") + suffix


def status_text(status: Status | EvaluationStatus) -> str:
    """The progress of a group in at most 70 columns: members, accuracies (best, median), speed, time left.

    >>> status_text(EvaluationStatus("lstm", "parity", 3, 512, 1024))
    'testing seed 3: 512 of 1,024 sequences'
    """
    if isinstance(status, EvaluationStatus):
        return f"testing seed {status.seed}: {status.rows:,} of {status.total:,} sequences"
    time_left = f"{clock(status.seconds_left)} left"
    if status.slots == 1 and not status.waiting:
        progress = f"step {status.step:,} of {status.steps:,}, loss {status.loss:.3f}, {percent(status.best)} %"
        return f"{progress}, {status.steps_per_second:.3g}/s, {time_left}"
    members = f"{status.alive} training, {status.waiting} waiting, {status.solved} solved, {status.diverged} diverged"
    rate = f"{status.steps_per_second:.3g} x {status.alive} steps/s"
    return f"{members}, {percent(status.best)}/{percent(status.median)} %, {rate}, {time_left}"


def clock(seconds: float) -> str:
    """
    >>> clock(59.7), clock(3700)
    ('1:00', '1:01:40')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def outcome(record: Record) -> str:
    """The outcome of a run in one line."""
    if record.error:
        return f"failed: {record.error}"
    at = f" at step {record.solved_at}" if record.solved_at and record.verdict == "solved" else ""
    wrong = f", first wrong at length {record.first_failing_length}" if record.first_failing_length else ""
    wrong = f" by {record.wrong_word}" if record.verdict == "refuted" and record.wrong_word else wrong
    return f"{record.verdict}{at}{wrong} ({sum(record.seconds.values()):.0f} s)"


def print_cells(console: Console, cells: Sequence[Cell], traceback: bool = False) -> None:
    """The table of all cells, how to read it, and the runs that failed, with the tracebacks of their errors or without.

    In a narrow terminal the least important columns are left out, so that no value is broken; where that is not enough,
    settings are wrapped.
    """
    columns = _cell_columns(cells)
    for optional in ("sec", "95 %", "steps", "random", "wrong"):
        if _cell_width(cells, columns) > console.width:
            del columns[optional]
    console.print(_cell_table(cells, columns, narrow=_cell_width(cells, columns) > console.width))
    console.print("[dim]Bins: % of sequences right at every position. Bin0: training lengths.")
    if "random" in columns:
        console.print("[dim]Random: seeds right on every random test input. Solved: right on every probe, too.")
    legend = ["Wrong: the shortest wrong input that is known, or its length."] if "wrong" in columns else []
    medians = [name for name in ("steps", "sec") if name in columns]
    legend += [f"{', '.join(medians).capitalize()}: medians of solving seeds."] if medians else []
    if legend:
        console.print(f"[dim]{' '.join(legend)}")
    _print_failures(console, [record for cell in cells for record in cell.records], traceback)


def _print_failures(console: Console, records: Sequence[Record], traceback: bool) -> None:
    failed = [record for record in records if record.error]
    for record in failed:
        console.print(f"[red]failed:[/] {escape(f'{record.task} {record.model} seed {record.seed}: {record.error}')}")
        if traceback and record.traceback:
            console.print(record.traceback, markup=False)
    if not traceback and any(record.traceback for record in failed):
        console.print("[dim]--traceback shows where")


def print_matrix(console: Console, collection: Collection, traceback: bool = False) -> None:
    """Models by task; one row for each of these where that is too wide for the terminal."""
    header, rows = matrix(collection)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(escape(name), justify="left" if name == header[0] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell if isinstance(cell, str) else cell.text.replace("\n", ", ")) for cell in row))
    if console.measure(table).maximum > console.width and collection.chosen:
        print_cells(console, collection.chosen, traceback)
    else:
        console.print(table)
        console.print("[dim]Seeds that solve the task, and the mean % of right sequences in the longest test bin.")
    if len(collection.cells) > len(collection.chosen):
        console.print("[dim]Of several settings (such as learning rates) validation chose one.")
    _print_failures(console, collection.records, traceback)


def print_progress(console: Console, progress: StoreProgress, errors: Sequence[Record]) -> None:
    """What is done, under way, failed and left in a store, and the processes that work on it."""
    verdicts = ", ".join(f"{count:,} {name}" for name, count in progress.verdicts.most_common() if name != "failed")
    console.print(f"done       {progress.done:,}" + f" ({verdicts})" * bool(verdicts), markup=False)
    console.print(f"under way  {progress.under_way:,}")
    console.print(f"failed     {len(progress.failed):,}" + " (the same command tries them again)" * bool(errors))
    seconds, has_work = progress.seconds_left, progress.left or progress.under_way
    time_left = f", about {clock(seconds)} at the present rate" if seconds and has_work else ""
    console.print(f"left       {progress.left:,}{time_left}")
    for record in errors:
        console.print(f"  failed: {record.task} {record.model} seed {record.seed}: {record.error}", markup=False)
    if progress.processes:
        console.print(_process_table(progress.processes))


def _process_table(processes: Sequence[Process]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name, justify in (("process", "left"), ("device", "left"), ("since", "right"), ("runs under way", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for process in sorted(processes, key=lambda process: not process.is_alive):
        silent = "" if process.is_alive else "killed" if process.gone else f"no sign of life for {clock(process.age)}"
        groups = [
            f"{escape(f'{group.model} {group.task}')}: {counted(group.runs, 'run')}, {clock(group.seconds)}"
            for group in process.under_way
        ]
        place = escape(f"{process.host} {process.pid}")
        table.add_row(place, escape(process.device), clock(process.seconds), silent or "\n".join(groups) or "-")
    return table


def _cell_columns(cells: Sequence[Cell]) -> dict[str, Callable[[Cell], str]]:
    """The columns of the table by their headings."""
    columns: dict[str, Callable[[Cell], str]] = {"task": lambda c: c.task, "model": lambda c: c.model}
    if any(cell.setting for cell in cells):
        columns["setting"] = lambda c: c.setting
    columns["random"] = lambda c: f"{len(c.right_on_random)}/{len(c.records)}"
    columns["solved"] = lambda c: f"{len(c.solved)}/{len(c.records)}"
    columns["95 %"] = lambda c: in_percent(c.interval)
    columns |= {name: partial(_bin_text, name) for name in bins(cells)}
    columns["wrong"] = lambda c: c.first_wrong(WORD_WIDTH)
    columns["steps"] = lambda c: or_dash(c.steps_to_solve)
    columns["sec"] = lambda c: or_dash(c.seconds_to_solve)
    columns["verdict"] = lambda c: c.verdicts
    return columns


def _bin_text(name: str, cell: Cell) -> str:
    return percent(cell.accuracy(name))


def _cell_width(cells: Sequence[Cell], columns: dict[str, Callable[[Cell], str]]) -> int:
    """The width of the table if only verdicts are wrapped."""
    fixed = {heading: value for heading, value in columns.items() if heading != "verdict"}
    widths = [max(len(text) for text in (heading, *map(value, cells))) for heading, value in fixed.items()]
    return sum(widths) + len(widths) + VERDICT_WIDTH


def _cell_table(cells: Sequence[Cell], columns: dict[str, Callable[[Cell], str]], narrow: bool) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for heading in columns:
        text = heading in ("task", "model", "setting", "verdict")
        wraps = heading == "verdict" or (narrow and heading == "setting")
        justify: Literal["left", "right"] = "left" if text else "right"
        table.add_column(
            heading, justify=justify, no_wrap=not wraps, min_width=VERDICT_WIDTH if wraps else None, overflow="fold"
        )
    previous = ""
    for cell in cells:
        if previous and cell.task != previous:
            table.add_section()
        values = {heading: escape(value(cell)) for heading, value in columns.items()}
        values["task"] = values["task"] if cell.task != previous else ""
        if style := COLOURS.get(cell.verdicts, ""):
            values["verdict"] = f"[{style}]{values['verdict']}"
        table.add_row(*values.values())
        previous = cell.task
    return table


def print_repetitions(console: Console, outcomes: Counter[str], runs: Sequence[tuple[Record, Record, bool]]) -> None:
    """Repeated runs beside their records."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("seed", justify="right")
    for heading in ("recorded", "steps", "on", "now", "steps", "on"):
        table.add_column(heading, justify="right" if heading == "steps" else "left", no_wrap=True)
    for before, after, same in runs:
        style = "green" if same else "red"
        recorded = (before.verdict, f"{before.steps:,}", escape(before.device))
        repeated = (f"[{style}]{after.verdict}", f"{after.steps:,}", escape(after.device))
        table.add_row(str(before.seed), *recorded, *repeated)
    console.print(table)
    seeds = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    agreed = "they agree" if len(outcomes) == 1 else "they differ, so a repetition may give either"
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
    """Which models can solve a task of some length, and at what size."""
    console.print(f"[bold]{escape(task)}[/], N = {length:,}, numbers of {precision} bits")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    for heading in ("layers", "bits\nneeded", "least\nwidth"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("explicit weights", no_wrap=True)
    table.add_column("", no_wrap=True)
    notes = list(dict.fromkeys(size.known for size in sizes))
    for size in sizes:
        weights = "not known"
        if size.claim:
            layers = f"{size.claim_layers} layer{'' if size.claim_layers == 1 else 's'}"
            weights = f"{size.claim}: width {size.claim_width}, {layers}"
            if size.claim_precision != precision:
                weights += f", {size.claim_precision} bits"
        see = f"[dim]({notes.index(size.known) + 1})"
        table.add_row(size.model, str(size.layers), or_dash(size.bits), or_dash(size.width), weights, see)
    console.print(table)
    for number, note in enumerate(notes, 1):
        console.print(f"[dim]({number}) {escape(note)}")
    console.print("[dim]Least width: the smallest with enough bits, for the usual layers and heads.")
