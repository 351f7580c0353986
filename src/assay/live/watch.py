"""`assay watch`: members as dots, what is left, and the newest verdicts, while other processes work on a store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import rich.live
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from assay.live.overview import NEWEST, Members, News, Observer, Overview, shown
from assay.terminal import clock, counted, status_name, status_text

STATUS_SECONDS = 30.0  # between two lines that tell the progress where there is no terminal


class Dot(NamedTuple):
    """How a member is drawn; the letter is for terminals without such signs."""

    sign: str
    letter: str
    style: str


DOTS = {
    "solved": Dot("●", "S", "green"),
    "refuted": Dot("◆", "R", "yellow"),
    "partly solved": Dot("◑", "P", "yellow"),
    "collapsed": Dot("▼", "C", "magenta"),
    "diverged": Dot("✕", "D", "red"),
    "censored": Dot("○", "n", "blue"),
    "failed": Dot("!", "!", "bold red"),
    "under way": Dot("◌", "u", "cyan"),
    "waiting": Dot("·", ".", "dim"),
}
UNKNOWN = Dot("?", "?", "red")


def watch(console: Console, observer: Observer, every: float, once: bool) -> None:
    """Show a store until all runs that commands have named have ended."""
    overview = observer.look()
    if once or overview.is_complete:
        console.print(picture(console, overview))
    elif console.is_terminal:
        with rich.live.Live(picture(console, overview), console=console, auto_refresh=False) as live:
            while not overview.is_complete:
                time.sleep(every)
                overview = observer.look()
                live.update(picture(console, overview), refresh=True)
    else:
        _print_lines(console, observer, overview, every)


def _print_lines(console: Console, observer: Observer, overview: Overview, every: float) -> None:
    """A line for each run that ends, and now and then one that tells the progress."""
    console.print(summary(overview), markup=False)
    told, last = set(overview.newest), time.monotonic()
    while not overview.is_complete:
        time.sleep(every)
        before, overview = len(overview.progress.index), observer.look()
        news = [news for news in overview.newest if news not in told]
        if len(news) == NEWEST and (others := len(overview.progress.index) - before - len(news)) > 0:
            console.print(f"{counted(others, 'run')} ended before these:")
        for one in reversed(news):
            console.print(_told(one))
        told |= set(news)
        if time.monotonic() - last >= STATUS_SECONDS or overview.is_complete:
            last = time.monotonic()
            console.print(summary(overview), markup=False)


def picture(console: Console, overview: Overview) -> RenderableType:
    """Everything at once, in at most the height of a terminal."""
    done = overview.total - len(overview.progress.pending)
    bar = ProgressBar(total=max(1, overview.total), completed=done, width=min(60, console.width))
    parts: list[RenderableType] = [Text(summary(overview)), bar, Text()]
    newest = overview.newest[: 6 if console.is_terminal else None]
    statuses = list(_statuses(overview))[:6]
    spare = 9 + len(newest) + len(statuses)
    grid = _grid(console, overview, console.height - spare if console.is_terminal else None)
    parts += [grid, Text(), _legend(console, overview)]
    if statuses:
        parts += [Text(), *(Text(status, style="dim", no_wrap=True, overflow="ellipsis") for status in statuses)]
    if newest:
        parts += [Text(), Text("newest verdicts", style="bold"), *map(_told, newest)]
    return Group(*parts)


def summary(overview: Overview) -> str:
    """`12 of 40 runs have ended (10 solved, 2 failed), 2 under way, about 1:20 left, 1 process at work`."""
    progress = overview.progress
    verdicts = ", ".join(f"{count:,} {shown(name)}" for name, count in progress.verdicts.most_common())
    ended = overview.total - len(progress.pending)
    parts = [f"{ended:,} of {counted(overview.total, 'run')} ended" + f" ({verdicts})" * bool(verdicts)]
    if progress.pending:
        seconds = progress.seconds_left
        parts += [f"{progress.under_way:,} under way"]
        parts += [f"about {clock(seconds)} left" if seconds and seconds < 1e7 else "time left not known yet"]
    parts.append(f"{counted(overview.workers, 'process').replace('processs', 'processes')} at work")
    return ", ".join(parts)


def _grid(console: Console, overview: Overview, height: int | None) -> RenderableType:
    """A line of dots for each model and task; those with work left come first if not all can be shown."""
    members = list(overview.members)
    if height is not None and len(members) > max(3, height):
        members.sort(key=lambda group: (not group.under_way, not group.waiting))
        members = members[: max(3, height - 1)]
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("task", "model"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column("runs", no_wrap=True)
    names = [max((len(text) for text in texts), default=0) for texts in zip(*(g[:2] for g in members), strict=True)]
    width = max(10, console.width - sum(min(28, name) for name in names) - 4)
    for group in members:
        table.add_row(Text(group.task), Text(group.model), _dots(console, group, width))
    rest = len(overview.members) - len(members)
    return Group(table, Text(f"and {counted(rest, 'more group')}", style="dim")) if rest else table


def _dots(console: Console, group: Members, width: int) -> Text:
    """A dot for each member; of many, their numbers."""
    names = [verdict for _, verdict in group.ended]
    counts = Counter(names) + Counter({"under way": group.under_way, "waiting": group.waiting})
    text = Text()
    if counts.total() > width:
        for name, count in counts.items():
            text.append(f"{_sign(console, name)} {count:,} {name}  ", DOTS.get(name, UNKNOWN).style)
        return text
    for name in [*names, *["under way"] * group.under_way, *["waiting"] * group.waiting]:
        text.append(_sign(console, name), DOTS.get(name, UNKNOWN).style)
    return text


def _sign(console: Console, name: str) -> str:
    dot = DOTS.get(name, UNKNOWN)
    return dot.letter if console.options.ascii_only else dot.sign


def _legend(console: Console, overview: Overview) -> Text:
    """The signs that the grid has."""
    present = {*overview.progress.verdicts}
    for group in overview.members:
        present |= {"under way"} if group.under_way else set()
        present |= {"waiting"} if group.waiting else set()
    text = Text()
    for name, dot in DOTS.items() if present else ():
        if name not in present:
            continue
        text.append(f"{_sign(console, name)} ", dot.style).append(f"{name}  ", "dim")
    return text


def _statuses(overview: Overview) -> Iterator[str]:
    """What the workers said last."""
    for process in overview.progress.processes:
        for status in process.statuses if process.is_alive else ():
            yield f"{shown(status_name(status))}: {shown(status_text(status), 120)}"


def _told(news: News) -> Text:
    text = Text(f"{news.task} {news.model} seed {shown(str(news.seed), 20)}: ")
    text.append(news.verdict, DOTS.get(news.verdict, UNKNOWN).style)
    return text.append(f" {news.detail}" * bool(news.detail))
