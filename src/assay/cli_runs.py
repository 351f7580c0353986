"""The commands that train: one model, a comparison of several, or a study; torch is imported only when needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli_options import STORE, AsJson, Beside, OnDevice, command_line, output_of_modules, print_json, settings
from assay.errors import BadInput
from assay.studies import study_named

if TYPE_CHECKING:
    from assay.lab.engines.choice import RunOptions
    from assay.record import Record
    from assay.spec import RunSpec

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=10_000, help="Number of seeds N; the seeds are 0 to N - 1.")]
Rates = Annotated[str | None, typer.Option("--lr", help="Learning rates, for example 1e-3,3e-3.", show_default="0.001")]
Steps = Annotated[
    int | None, typer.Option("--steps", min=1, help="Maximum number of training steps.", show_default="20000")
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set an option: task.X=V, model.X=V, training.X=V or testing.X=V, where V is JSON or text. "
        "May be given more than once.",
    ),
]
StoreAt = Annotated[Path, typer.Option("--store", help="The folder for the records.")]
AT_A_TIME = "Number of groups of runs at a time: in processes on a CPU, on streams of one process on a GPU."
LOCAL_JOBS = "one per core on a CPU; on a GPU up to 8, if they fit"
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        help=f"{AT_A_TIME} With --engine ray or slurm: the number of workers.",
        show_default=f"{LOCAL_JOBS}; ray: all of the cluster; slurm: 4",
    ),
]
LocalJobs = Annotated[int | None, typer.Option("--jobs", min=1, help=AT_A_TIME, show_default=LOCAL_JOBS)]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        min=1,
        help="Number of runs that are trained together as one program.",
        show_default="as many as fit on a GPU, 1 on a CPU",
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Repeat runs that the store already has; the new records replace the old ones.")
]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show where in the code the error of a run was raised.")]
Weights = Annotated[
    str,
    typer.Option(
        "--weights", help="Keep the weights of all runs, of solved ones (right on every random test input), or none."
    ),
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
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        help="Also log each run, when it ends, to TensorBoard (tensorboard:FOLDER) or Weights & Biases "
        "(wandb:PROJECT). May be given several times.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --engine slurm: print what would be submitted.")]


def run(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    model: Annotated[
        str,
        typer.Option("--model", help="A model's name, module:factory, mixer:module:Class, fla:LAYER or hf:MODEL."),
    ],
    seeds: Seeds = 1,
    lr: Rates = None,
    steps: Steps = None,
    set_: Set = None,
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
    log: Log = None,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Train a model on a task, and test it, also on longer inputs than in training."""
    _prepare(device)
    from assay.lab.engines.choice import RunOptions

    with output_of_modules(as_json):
        specs = _specs([task], [model], seeds, lr, steps, set_)
    options = RunOptions(device, jobs, slots, checkpoint, weights, again, engine, address, tuple(sbatch or ()))
    _run_and_print(specs, store, options, log or [], dry_run, as_json, traceback)


def compare(
    tasks: Annotated[str, typer.Argument(help="Names of tasks, separated by commas, or module:Class.")],
    models: Annotated[
        str, typer.Option("--models", help="Names of models, separated by commas, or module:factory for your own.")
    ],
    seeds: Seeds = 3,
    lr: Rates = None,
    steps: Steps = None,
    set_: Set = None,
    beside: Beside = None,
    store: StoreAt = STORE,
    out: Annotated[Path, typer.Option("--out", help="The folder for the page.")] = Path("reports/comparison"),
    device: OnDevice = "auto",
    jobs: LocalJobs = None,
    again: Again = False,
    log: Log = None,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Train several models on several tasks and compare them.

    Prints a table, and writes a page with CSV and LaTeX.
    """
    _prepare(device)
    from assay.analysis.collection import Collection, comparable
    from assay.lab.engines.choice import RunOptions
    from assay.report import write_page
    from assay.store import require_writable
    from assay.terminal import console, print_matrix

    require_writable(out)
    with output_of_modules(as_json):
        specs = _specs(_names("tasks", tasks), _names("--models", models), seeds, lr, steps, set_)
    published = {name: comparable(name, [spec.plain() for spec in specs]) for name in beside or []}
    records = _carry_out(specs, store, RunOptions(device, jobs, again=again), log or [], as_json)
    collection = Collection(out.name, command_line(), records, published)
    files = write_page(collection, out)
    if as_json:
        _print_records(records, as_json, traceback)
    else:
        print_matrix(console(), collection, traceback)
        typer.echo(f"wrote {len(files)} files; open {out / 'index.html'}")
    _end(records)


def _names(where: str, text: str) -> list[str]:
    names = text.split(",")
    if not all(names) or len({*names}) < len(names):
        raise BadInput(f"{where} {text!r} is not valid: different names, separated by single commas")
    return names


def _specs(
    tasks: list[str], models: list[str], seeds: int, lr: str | None, steps: int | None, set_: list[str] | None
) -> list[RunSpec]:
    """The runs that the options of a command describe."""
    from assay.spec import run_specs

    options = settings(set_ or [])
    for field, given in (("lr", lr), ("steps", steps)):
        if given is not None and field in options["training"]:
            raise BadInput(f"give --{field} or --set training.{field}, not both")
    if steps is not None:
        options["training"]["steps"] = steps
    return run_specs(
        tasks,
        models,
        seeds=seeds,
        rates=[] if lr is None else _rates(lr),
        task_options=options["task"],
        model_options=options["model"],
        training=options["training"],
        testing=options["testing"],
    )


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
    log: Log = None,
    traceback: Traceback = False,
    as_json: AsJson = False,
) -> None:
    """Carry out all runs of a study, except those that are already in the store."""
    _prepare(device)
    from assay.lab.engines.choice import RunOptions

    options = RunOptions(device, jobs, slots, checkpoint, weights, again, engine, address, tuple(sbatch or ()))
    with output_of_modules(as_json):
        runs = study_named(name).runs_of(pieces or [])
    _run_and_print(runs, store, options, log or [], dry_run, as_json, traceback)


def _run_and_print(
    specs: list[RunSpec],
    store: Path,
    options: RunOptions,
    logs: list[str],
    dry_run: bool,
    as_json: bool,
    traceback: bool,
) -> None:
    from assay.lab.engines.choice import preview

    if dry_run:
        typer.echo(preview(specs, store, options))
        return
    records = _carry_out(specs, store, options, logs, as_json)
    _print_records(records, as_json, traceback)
    _end(records)


def _prepare(device: str) -> None:
    """Let the processes that compile GPU kernels start while this one imports PyTorch."""
    from assay.lab.compilers import compilers

    if device != "cpu":
        compilers.prepare()


def _carry_out(
    specs: list[RunSpec], store_path: Path, options: RunOptions, logs: list[str], quiet: bool
) -> list[Record]:
    """The records of all runs, with the progress of those that the store did not have."""
    from assay.lab.carry_out import carry_out
    from assay.lab.engines.choice import store_plan_and_engine
    from assay.lab.run_logs import check_targets, logged
    from assay.terminal import LiveProgress, console

    out = console()
    check_targets(logs)
    with store_plan_and_engine(specs, store_path, options) as (store, plan, engine):
        total, pending = len(plan.specs), len(plan.pending)
        if not quiet and pending < total:
            out.print(f"{total - pending} of {total} runs are already in {store_path}")
        try:
            with (
                output_of_modules(quiet),
                LiveProgress(out, pending, quiet=quiet) as progress,
                logged(logs, progress.receive) as receive,
            ):
                records = carry_out(plan, store, engine, receive)
        except KeyboardInterrupt:
            finished = len(plan.finished & plan.specs.keys())
            message = f"stopped: {finished} of {total} runs are kept in {store_path}, and unfinished runs are saved"
            typer.echo(f"\n{message}; continue with: {command_line()}", err=True)
            raise typer.Exit(130) from None
    if not quiet and pending:
        out.print(progress.summary())
    return records


def _print_records(records: list[Record], as_json: bool, traceback: bool) -> None:
    from assay.analysis.cells import cells
    from assay.terminal import console, print_cells

    if as_json:
        print_json({"cells": [c.plain() for c in cells(records)], "records": [r.plain() for r in records]})
    else:
        print_cells(console(), cells(records), traceback)


def _end(records: list[Record]) -> None:
    """Exit code 1 if a run failed."""
    if any(not record.finished for record in records):
        raise typer.Exit(1)


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--lr {text} is not valid: write numbers separated by single commas, as 1e-3,3e-3") from None
