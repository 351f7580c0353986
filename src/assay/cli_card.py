"""The command `assay card`. torch is imported only where something runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli_options import STORE, AsJson, OnDevice, command_line, options, output_of_modules, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from assay.cards.making import Making
    from assay.record import Record


def card(
    model: Annotated[
        str,
        typer.Argument(
            help="A class as module:Class, built with a width (a mixer) or with vocab, features and answers (a whole "
            "model); a model's name; fla:LAYER of flash-linear-attention; hf:MODEL of transformers."
        ),
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="The reference architectures, for example lstm,delta-net.",
            show_default="all that come with Assay",
        ),
    ] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="laptop (minutes on two cores) or gpu (more tasks, larger models).")
    ] = "laptop",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The folder for the card.", show_default="cards/MODEL, with its options"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set an option of the model or of the skeleton: NAME=VALUE, for example positions=sinusoidal."
        ),
    ] = None,
    store: Annotated[Path, typer.Option("--store", help="The folder for the records.")] = STORE,
    device: OnDevice = "auto",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Number of runs at a time.", show_default="one per core on a CPU"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train an architecture on a battery of tasks and compare it with others.

    Writes a page: what each one solves up to which length, and what a token costs.
    """
    from assay.cards.files import plain
    from assay.cards.making import Making
    from assay.cards.verdicts import headline, sentences
    from assay.lab.engines.choice import RunOptions
    from assay.store import require_writable
    from assay.terminal import console

    out_console, status = console(), console(stderr=True)
    if out is not None:
        require_writable(out)
    names = None if against is None else [name.strip() for name in against.split(",") if name.strip()]
    with output_of_modules(as_json):
        with status.status("examining"):
            making = Making(model, names, scale, store, RunOptions(device, jobs), **options(set_ or []))
        if not as_json:
            _print_examination(out_console, making)
        records = _carry_out(making, as_json)
        with status.status("drawing"):
            finished_card = making.card(records)
            folder = out or Path("cards") / file_name(finished_card.subject.title, set_ or [])
            files = finished_card.save(folder)
    if as_json:
        print_json(plain(finished_card))
    else:
        for line in (headline(finished_card), *sentences(finished_card)):
            out_console.print(line, markup=False)
        out_console.print(f"wrote {len(files)} files; open {folder / 'index.html'}", markup=False)
    if finished_card.failures:
        raise typer.Exit(1)


def file_name(title: str, changes: Sequence[str]) -> str:
    """Cards of one model with other options have folders of their own."""
    return re.sub(r"[^\w.=-]+", "-", "-".join([title, *changes]))


def _print_examination(console: Console, making: Making) -> None:
    console.print(f"{making.subject.name}: {making.subject.description}", markup=False)
    for check in making.examination.checks:
        console.print(f"{check.name}: {check.outcome}; {check.detail}", markup=False)
    for task, reason in making.examination.left_out.items():
        console.print(f"{task} is left out: {reason}", markup=False)
    for task, remark in making.examination.shortened.items():
        console.print(f"{task}: {remark}", markup=False)


def _carry_out(making: Making, quiet: bool) -> list[Record]:
    """The runs of the subject with a progress bar; when interrupted, how to continue."""
    from assay.terminal import LiveProgress, console

    left, total = len(making.left), len(making.pending)
    if not quiet and left < total:
        typer.echo(f"{total - left} of {total} runs are already in {making.store}")
    try:
        with LiveProgress(console(), left, quiet=quiet) as progress:
            return making.carry_out(progress.receive)
    except KeyboardInterrupt:
        message = f"stopped: finished runs are in {making.store}, and unfinished runs are saved"
        typer.echo(f"\n{message}; continue with: {command_line()}", err=True)
        raise typer.Exit(130) from None
