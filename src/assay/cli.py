"""The command line: each command is a few lines that call other modules; torch is imported only when needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assay.cli_card import card
from assay.cli_certify import certify, check
from assay.cli_extract import extract
from assay.cli_options import STORE, AsJson, OnDevice, command_line, print_json, settings
from assay.cli_records import pack, probe, repeat, report
from assay.cli_show import list_, show
from assay.cli_stores import merge, status, work
from assay.cli_theory import measure_theory, prove, size
from assay.description import BadInput
from assay.studies import study_named

if TYPE_CHECKING:
    from assay.lab.engines.choice import RunOptions
    from assay.spec import RunSpec

app = typer.Typer(
    name="assay",
    help="Assay measures what a sequence architecture can compute.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("list")(list_)
app.command("measure-theory")(measure_theory)
for command in (card, show, prove, size, report, repeat, probe, certify, check, extract, pack, merge, status, work):
    app.command()(command)

StoreAt = Annotated[Path, typer.Option("--store", help="The folder for the records.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help="Number of groups of runs at a time: in processes on a CPU, on streams of one process on a GPU. "
        "With --engine ray or slurm: the number of workers.",
        show_default="one per core on a CPU; on a GPU up to 8, if they fit; ray: all of the cluster; slurm: 4",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        min=1,
        help="Number of runs that are trained together as one program.",
        show_default="as many as fit on a GPU, 1 on a CPU",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Run also what the store has; the new records replace the old.")]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where in the code the error of a run was raised.")]
Weights = Annotated[
    str,
    typer.Option("--weights", help="Whose weights to keep: all, solved (right on every random test input) or none."),
]
Checkpoint = Annotated[float, typer.Option("--checkpoint", min=0, help="Seconds between checkpoints.")]
EngineIs = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where runs are carried out: local (all GPUs or cores of this machine), ray (a cluster) or slurm (jobs).",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster to join, as HOST:PORT or auto.",
        show_default="RAY_ADDRESS, or else a cluster that is started on this machine",
    ),
]
Sbatch = Annotated[
    list[str] | None,
    typer.Option("--sbatch", help="An option of sbatch, as partition=gpu or time=4:00:00. May be given several times."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --engine slurm: print what would be submitted.")]


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    model: Annotated[str, typer.Option("--model", help="A model's name, or module:factory.")],
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, max=10_000, help="Number of seeds N; the seeds are 0 to N - 1.")
    ] = 1,
    lr: Annotated[
        str | None, typer.Option("--lr", help="Learning rates, for example 1e-3,3e-3.", show_default="0.001")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Maximum number of training steps.", show_default="20000")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set an option: task.X=V, model.X=V, training.X=V or testing.X=V, where V is JSON or text. "
            "May be given more than once.",
        ),
    ] = None,
    store: StoreAt = STORE,
    device: OnDevice = "auto",
    engine: EngineIs = "local",
    address: Address = None,
    sbatch: Sbatch = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    slots: Slots = None,
    checkpoint: Checkpoint = 30.0,
    weights: Weights = "solved",
    again: Again = False,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a task with one or more seeds, and test it, also on longer inputs."""
    _prepare(device)
    from assay.lab.engines.choice import RunOptions
    from assay.spec import run_spec

    options = settings(set_ or [])
    for field, given in (("lr", lr), ("steps", steps)):
        if given is not None and field in options["training"]:
            raise BadInput(f"give --{field} or --set training.{field}, not both")
    if steps is not None:
        options["training"]["steps"] = steps
    rates = [{}] if lr is None else [{"lr": rate} for rate in _rates(lr)]
    specs = [
        run_spec(
            task,
            model,
            seed=seed,
            task_options=options["task"],
            model_options=options["model"],
            training=options["training"] | rate,
            testing=options["testing"],
        )
        for rate in rates
        for seed in range(seeds)
    ]
    run_options = RunOptions(device, jobs, slots, checkpoint, weights, again, engine, address, tuple(sbatch or ()))
    _carry_out(specs, store, run_options, Output(as_json, traceback, dry_run), command_line())


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="A study's name, or the path of a .py file that defines RUNS or PIECES.")],
    pieces: Annotated[
        list[str] | None,
        typer.Option(
            "--piece",
            help="Run only this piece of the study; may be given several times. `assay show NAME` lists the pieces.",
            show_default="all",
        ),
    ] = None,
    store: StoreAt = STORE,
    device: OnDevice = "auto",
    engine: EngineIs = "local",
    address: Address = None,
    sbatch: Sbatch = None,
    dry_run: DryRun = False,
    jobs: Jobs = None,
    slots: Slots = None,
    checkpoint: Checkpoint = 30.0,
    weights: Weights = "solved",
    again: Again = False,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Carry out all runs of a study, except those that are already in the store."""
    _prepare(device)
    from assay.lab.engines.choice import RunOptions

    options = RunOptions(device, jobs, slots, checkpoint, weights, again, engine, address, tuple(sbatch or ()))
    runs = study_named(name).runs_of(pieces or [])
    _carry_out(runs, store, options, Output(as_json, traceback, dry_run), command_line())


class Output(NamedTuple):
    """What a command prints."""

    as_json: bool
    traceback: bool
    dry_run: bool


def _prepare(device: str) -> None:
    """Let the processes that compile GPU kernels start while this one imports PyTorch."""
    from assay.lab.compilers import compilers

    if device != "cpu":
        compilers.prepare()


def _carry_out(specs: list[RunSpec], store_path: Path, options: RunOptions, output: Output, command: str) -> None:
    from assay.analysis.cells import cells
    from assay.lab.carry_out import carry_out
    from assay.lab.engines.choice import preview, store_plan_and_engine
    from assay.terminal import LiveProgress, console, print_cells

    if output.dry_run:
        typer.echo(preview(specs, store_path, options))
        return
    out = console()
    with store_plan_and_engine(specs, store_path, options) as (store, plan, engine):
        total, pending = len(plan.specs), len(plan.pending)
        if not output.as_json and pending < total:
            out.print(f"{total - pending} of {total} runs are already in {store_path}")
        try:
            with LiveProgress(out, pending, quiet=output.as_json) as progress:
                records = carry_out(plan, store, engine, progress.receive)
        except KeyboardInterrupt:
            finished = len(plan.finished & plan.specs.keys())
            message = f"stopped: {finished} of {total} runs are kept in {store_path}, and unfinished runs are saved"
            typer.echo(f"\n{message}; continue with: {command}", err=True)
            raise typer.Exit(130) from None
    if output.as_json:
        print_json({"cells": [c.plain() for c in cells(records)], "records": [r.plain() for r in records]})
    else:
        print_cells(out, cells(records), output.traceback)
        if pending:
            out.print(progress.summary())
    if any(not record.finished for record in records):
        raise typer.Exit(1)


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--lr {text} is not valid: write numbers separated by single commas, as 1e-3,3e-3") from None


def main() -> None:
    """Run the command line: bad input ends with one line and exit code 2, never with a traceback."""
    sys.path.append("")  # so that module:Class finds a file in the current folder
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except BadInput as error:
        message = " ".join(str(error).split())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone
        sys.exit(141)
    except Exception as error:
        # Errors of the option parser, whose class typer does not export.
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())
    typer.secho(f"assay: {message}", fg="red", err=True)
    sys.exit(2)
