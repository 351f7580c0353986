"""The commands about a store that several processes work on: its progress, one more worker, and merging."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import AsJson, OnDevice, print_json

if TYPE_CHECKING:
    from assay.lab.progress import Progress

MOST_FAILURES = 5  # that are listed


def status(
    store: Annotated[Path, typer.Argument(help="The store.")],
    as_json: AsJson = False,
) -> None:
    """Show which runs of a store are done, under way, failed and left."""
    from assay.lab.progress import progress_of
    from assay.store import Store

    opened = Store.open(store)
    progress = progress_of(opened)
    if as_json:
        print_json(_plain(progress))
        return
    from assay.terminal import console, print_progress

    errors = [opened.load(entry) for entry in progress.failed[:MOST_FAILURES] if opened.path.is_dir()]
    print_progress(console(), progress, errors)


def _plain(progress: Progress) -> dict[str, Any]:
    from assay.lab.status import plain_status

    return {
        "done": progress.done,
        "under_way": progress.under_way,
        "failed": len(progress.failed),
        "left": progress.left,
        "seconds_left": progress.seconds_left,
        "verdicts": dict(progress.verdicts),
        "failures": [{"digest": e.digest, "task": e.task, "model": e.model, "seed": e.seed} for e in progress.failed],
        "processes": [
            vars(process)
            | {"under_way": [group._asdict() for group in process.under_way]}
            | {"statuses": [plain_status(status) for status in process.statuses]}
            for process in progress.processes
        ],
    }


def work(
    store: Annotated[Path, typer.Argument(help="The store, in a folder that all workers see.")],
    plan: Annotated[str, typer.Option("--plan", help="The name of a plan in the store.")],
    device: OnDevice = "auto",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Groups of runs at a time.", show_default="one per core, or 8 on a GPU"),
    ] = None,
) -> None:
    """Carry out runs of a plan that no other worker has leased, until none is left. Engines start this command."""
    from assay.lab.carry_out import carry_out, local_engine
    from assay.lab.device import parse_device
    from assay.lab.interrupts import ignore_further_signals
    from assay.lab.plan_file import read_plan, require_same_code
    from assay.store import Store

    torch_device, path = parse_device(device), Store.open(store).path  # not made where it is not mounted
    opened = Store.create(path)
    ignore_further_signals()
    saved = read_plan(store, plan)
    require_same_code(saved.origin)
    local_plan = saved.plan(opened.index(), torch_device, jobs)
    try:
        carry_out(local_plan, opened, local_engine(local_plan, opened, saved.checkpoint), wait=False)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def merge(
    store: Annotated[Path, typer.Argument(help="The store that receives the records.")],
    others: Annotated[list[Path], typer.Argument(help="Stores or packed files, which are not changed.")],
    as_json: AsJson = False,
) -> None:
    """Copy the records that the first store lacks into it.

    Weights and certificates are copied with their records.
    """
    from assay.lab.merging import merge as unite
    from assay.store import Store
    from assay.terminal import counted

    sources = [Store.open(other) for other in others]  # before the target is made
    outcome = unite(Store.create(store), sources)
    if as_json:
        print_json(vars(outcome))
        return
    typer.echo(f"{counted(len(outcome.copied), 'run')} copied into {store}; it had {len(outcome.present):,} already")
    if outcome.differing:
        names = ", ".join(digest[:8] for digest in outcome.differing[:3])
        more = ", ..." if len(outcome.differing) > 3 else ""
        typer.echo(
            f"{counted(len(outcome.differing), 'run')} with different results in both, of which that of {store} was "
            f"kept: {names}{more}"
        )
