"""The command line: each command is a few lines that call the lab. torch is imported only where something runs."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from assay.cli_options import STORE, AsJson, OnDevice, print_json, settings
from assay.cli_records import pack, repeat, report
from assay.cli_theory import measure_theory, prove, size
from assay.description import BadInput, suggestion
from assay.models.registry import MODELS
from assay.registry import Entry
from assay.studies import STUDIES, study_named
from assay.tasks import TASKS, task_class
from assay.theory.registry import CLAIMS

if TYPE_CHECKING:
    from assay.spec import RunSpec

app = typer.Typer(
    name="assay",
    help="Assay measures what a sequence architecture can compute.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(prove)
app.command()(size)
app.command("measure-theory")(measure_theory)
app.command()(report)
app.command()(repeat)
app.command()(pack)

StoreAt = Annotated[Path, typer.Option("--store", help="The folder that keeps the records.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", min=1, help="Processes side by side; if left out, one per core on a CPU, 1 on a GPU."),
]
Slots = Annotated[
    int | None,
    typer.Option("--slots", min=1, help="Runs in one program; if left out, what fits on a GPU, 1 on a CPU."),
]
Every = Annotated[float, typer.Option("--checkpoint", min=0, help="Seconds between two checkpoints.")]


class Noun(StrEnum):
    tasks = "tasks"
    models = "models"
    studies = "studies"
    claims = "claims"


LISTED: dict[Noun, dict[str, Entry]] = {
    Noun.tasks: TASKS.entries,
    Noun.models: MODELS.entries,
    Noun.studies: STUDIES,
    Noun.claims: CLAIMS.entries,
}


@app.command("list")
def list_(
    what: Annotated[Noun | None, typer.Argument(help="Which of them; all if left out.")] = None, as_json: AsJson = False
) -> None:
    """List tasks, models, studies and claims."""
    nouns = [what] if what else list(Noun)
    if as_json:
        print_json(
            {
                noun.value: [
                    {"name": name, "summary": e.summary, "source": e.source} for name, e in LISTED[noun].items()
                ]
                for noun in nouns
            }
        )
        return
    from rich.console import Console
    from rich.table import Table

    for noun in nouns:
        table = Table(title=noun.value, box=None, title_justify="left", title_style="bold", show_header=False)
        for name, entry in LISTED[noun].items():
            table.add_row(name, entry.summary, f"[dim]{entry.source}")
        Console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task, model, claim or study, or one's own task as module:Class.")],
) -> None:
    """Explain a task, a model or a claim: what it is, an example, and its options; or a study and its pieces."""
    import inspect

    from rich.console import Console

    known = {**TASKS.entries, **MODELS.entries, **CLAIMS.entries, **STUDIES}
    if name not in known and ":" not in name:
        raise BadInput(f"unknown task, model, claim or study '{name}'{suggestion(name, known)}")
    out = Console(highlight=False)
    if name in STUDIES:
        _explain_study(out, name)
        return
    if name in MODELS.entries or name in CLAIMS.entries:
        made = (MODELS if name in MODELS.entries else CLAIMS).load(name)
        options = {p.name: p.default for p in inspect.signature(made).parameters.values()}
        text = made.__doc__ if name in MODELS.entries else f"{inspect.cleandoc(made.__doc__)}\n\nSource: {made.source}"
        _explain(out, name, "model." if name in MODELS.entries else "", text, options)
        return
    task = task_class(name)
    options = {field: "needed" if i.is_required() else i.default for field, i in task.model_fields.items()}
    _explain(out, name, "task.", task.__doc__, options)


def _explain_study(console: Any, name: str) -> None:
    asked = study_named(name)
    console.print(f"[bold]{name}[/], {len(asked.runs):,} runs")
    console.print(asked.about, markup=False)
    if asked.pieces:
        console.print("\npieces, each with --piece NAME:")
    for piece, runs in asked.pieces.items():
        console.print(f"  {piece}: {len(runs):,} runs", markup=False)


def _explain(console: Any, name: str, part: str, text: str | None, options: dict[str, Any]) -> None:
    import inspect

    console.print(f"[bold]{name}[/]")
    console.print(inspect.cleandoc(text or ""), markup=False)
    if options:
        console.print(f"\noptions, with --set {part}NAME=VALUE:")
        for option, default in options.items():
            console.print(f"  {option} = {default}", markup=False)


@app.command()
def run(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    model: Annotated[str, typer.Option("--model", help="A model's name, or module:factory.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=10_000, help="Seeds 0 to N - 1.")] = 1,
    lr: Annotated[str | None, typer.Option("--lr", help="Learning rates, as 1e-3,3e-3.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Training steps at most.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="task.X=V, model.X=V, training.X=V or testing.X=V, V as JSON or text."),
    ] = None,
    store: StoreAt = STORE,
    device: OnDevice = "auto",
    jobs: Jobs = None,
    slots: Slots = None,
    checkpoint: Every = 30.0,
    as_json: AsJson = False,
) -> None:
    """Train a model on a task, seed by seed, and test it, also at lengths beyond those of training."""
    from assay.spec import run_spec

    options = settings(set_ or [])
    for field, given in (("lr", lr), ("steps", steps)):
        if given is not None and field in options["training"]:
            raise BadInput(f"give --{field} or --set training.{field}, not both")
    if steps is not None:
        options["training"]["steps"] = steps
    rates = [{}] if lr is None else [{"lr": _rate(part)} for part in lr.split(",")]
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
    again = shlex.join(["assay", *sys.argv[1:]])
    _carry_out(specs, store, Means(device, jobs, slots, checkpoint), as_json, again)


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="A study's name, or the path of a .py file that ends in RUNS.")],
    piece: Annotated[str | None, typer.Option("--piece", help="A part of a long study, as it names them.")] = None,
    store: StoreAt = STORE,
    device: OnDevice = "auto",
    jobs: Jobs = None,
    slots: Slots = None,
    checkpoint: Every = 30.0,
    as_json: AsJson = False,
) -> None:
    """Carry out a study; what its store already has is not repeated."""
    again = shlex.join(["assay", *sys.argv[1:]])
    _carry_out(study_named(name).piece(piece), store, Means(device, jobs, slots, checkpoint), as_json, again)


class Means(NamedTuple):
    """What runs are carried out with."""

    device: str
    jobs: int | None
    slots: int | None
    checkpoint: float


def _carry_out(specs: list[RunSpec], store_at: Path, means: Means, as_json: bool, again: str) -> None:
    from assay.lab.execute import device_named
    from assay.lab.sweep import pending, sweep
    from assay.record import Store
    from assay.report.tables import cells
    from assay.terminal import Live, console, show

    device_named(means.device)
    specs = list({spec.digest: spec for spec in specs}.values())
    store, out = Store.create(store_at), console()
    todo = pending(specs, store)
    if not as_json and len(todo) < len(specs):
        out.print(f"{len(specs) - len(todo)} of {len(specs)} runs are already in {store_at}")
    try:
        with Live(out, todo, quiet=as_json) as live:
            sweep(specs, store, means.device, means.jobs, live.tell, means.slots, means.checkpoint)
    except KeyboardInterrupt:
        kept = len(specs) - len(pending(specs, store))
        said = f"stopped: {kept} of {len(specs)} runs are kept in {store_at}, and those under way are saved"
        typer.echo(f"\n{said}; go on with: {again}", err=True)
        raise typer.Exit(130) from None
    records = store.select(spec.digest for spec in specs)
    if as_json:
        print_json({"cells": [c.plain() for c in cells(records)], "records": [r.plain() for r in records]})
    else:
        show(out, cells(records))
        if todo:
            out.print(live.summary())
    if any(not record.finished for record in records):
        raise typer.Exit(1)


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"--lr {text} is not valid: numbers separated by commas, as 1e-3,3e-3") from None


def main() -> None:
    """Run the command line: bad input ends in one line and exit code 2, never in a traceback."""
    sys.path.append("")  # so that module:Class finds a file in the current folder
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except BadInput as error:
        said = " ".join(str(error).split())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has left
        sys.exit(141)
    except Exception as error:
        # The option parser's own complaints; typer brings it along under a name of its own.
        if not hasattr(error, "format_message"):
            raise
        said = " ".join(error.format_message().split())
    typer.secho(f"assay: {said}", fg="red", err=True)
    sys.exit(2)
