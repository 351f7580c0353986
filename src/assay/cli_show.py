"""The commands that explain: what there is, and what one of them is and takes. torch is imported only when needed."""

from __future__ import annotations

import inspect
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from assay.cli_options import AsJson, print_json
from assay.description import BadInput, Description, suggestion
from assay.models.options import OPTIONS as MODEL_OPTIONS
from assay.models.registry import MODELS
from assay.registry import Entry, import_path
from assay.studies import STUDIES, study_named
from assay.tasks import TASKS, task_class
from assay.theory.registry import CLAIMS
from assay.theory.registry import OPTIONS as CLAIM_OPTIONS

if TYPE_CHECKING:
    from rich.console import Console

    from assay.tasks.task import Bin, Task


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
PARTS = ("training", "testing")


def list_(
    noun: Annotated[Noun | None, typer.Argument(help="List only this kind.", show_default="all")] = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, models, studies and claims."""
    nouns = [noun] if noun else list(Noun)
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


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="The name of a task, model, claim or study; module:Class for your own; or training or testing."
        ),
    ],
) -> None:
    """Explain a task, a model, a claim or a study, with its options and their defaults."""
    from assay.terminal import console

    known = {**TASKS.entries, **MODELS.entries, **CLAIMS.entries, **STUDIES, **dict.fromkeys(PARTS)}
    if name not in known and ":" not in name:
        raise BadInput(f"unknown task, model, claim or study '{name}'{suggestion(name, known)}")
    out = console()
    if name in STUDIES:
        _show_study(out, name)
    elif name in PARTS:
        _show_part(out, name)
    else:
        _show_object(out, name)


def _show_object(out: Console, name: str) -> None:
    """A task, a claim or a model, by its name or as module:Class."""
    from assay.tasks.task import Shape, Task
    from assay.theory.claim import Claim

    registry = next((r for r in (TASKS, CLAIMS, MODELS) if name in r.entries), None)
    item: Any = registry.load(name) if registry else import_path(name)
    if isinstance(item, type) and issubclass(item, Task):
        _show_task(out, name)
    elif isinstance(item, type) and issubclass(item, Claim):
        _print_text(out, name, f"{inspect.cleandoc(item.__doc__ or '')}\n\nSource: {item.source}")
        _print_options(out, "options, with --set NAME=VALUE", _parameters(item, CLAIM_OPTIONS if registry else {}))
    elif callable(item):
        _print_text(out, name, item.__doc__)
        options = _parameters(item, MODEL_OPTIONS if registry else {})
        if registry:
            options["state"] = Option(None, MODEL_OPTIONS["state"])
            options["initial_scale"] = Option(1.0, MODEL_OPTIONS["initial_scale"])
        else:
            options = {name: option for name, option in options.items() if name not in Shape._fields}  # the task's
        _print_options(out, "options, with --set model.NAME=VALUE", options)
    else:
        raise BadInput(f"'{name}' is not a task, a claim or a model: it should be a class or a function")


def _show_task(out: Console, name: str) -> None:
    from rich.table import Table

    task = task_class(name)
    _print_text(out, name, task.__doc__)
    example = task(**task.example)
    if example.example:
        used = ", ".join(f"{option}={value}" for option, value in task.example.items())
        out.print(f"\nlengths and steps (with {used}):", markup=False)
    else:
        out.print("\nlengths and steps:")
    table = Table.grid(padding=(0, 1), pad_edge=True)
    for label, text in _lengths(example).items():
        table.add_row(f" {label}", text)
    out.print(table)
    _print_options(out, "options, with --set task.NAME=VALUE", _fields(task))
    out.print("\n`assay show training` and `assay show testing` list the other options.")


def _lengths(task: Task) -> dict[str, str]:
    """The lengths and steps that a run of this task has by default."""
    from assay.spec import run_spec

    spec = run_spec(task, "lstm")

    def ranges(bins: tuple[Bin, ...]) -> str:
        return ", ".join(f"{b.name} {b.low} to {b.high}" if b.low < b.high else f"{b.name} {b.low}" for b in bins)

    return {
        "training lengths": "{} to {}".format(*spec.training.lengths),
        "validation bins": ranges(spec.training.validation),
        "test bins": ranges(spec.testing.bins),
        "maximum steps": f"{spec.training.steps:,}",
    }


def _show_part(out: Console, name: str) -> None:
    from assay.spec import Testing, Training

    part: type[Description] = Training if name == "training" else Testing
    _print_text(out, name, part.__doc__)
    fields = _fields(part)
    for field in ("lengths", "validation", "bins"):
        if field in fields:
            fields[field] = fields[field]._replace(default="the task's own")
    _print_options(out, f"options, with --set {name}.NAME=VALUE", fields)


def _show_study(out: Console, name: str) -> None:
    from assay.analysis.summary import piece_sizes
    from assay.terminal import counted

    study = study_named(name)
    out.print(f"[bold]{name}[/], {counted(len(study.runs), 'run')}")
    out.print(study.about, markup=False)
    if study.pieces:
        out.print("\npieces, each with --piece NAME:")
    for piece, runs in piece_sizes(study).items():
        out.print(f"  {piece}: {counted(runs, 'run')}", markup=False)


class Option(NamedTuple):
    """An option's default value, and what it does in one line."""

    default: Any
    meaning: str


def _fields(description: type[Description]) -> dict[str, Option]:
    return {
        name: Option("required" if field.is_required() else field.default, field.description or "")
        for name, field in description.model_fields.items()
    }


def _parameters(function: Any, meanings: dict[str, str]) -> dict[str, Option]:
    return {
        p.name: Option("required" if p.default is p.empty else p.default, meanings.get(p.name, ""))
        for p in inspect.signature(function).parameters.values()
        if p.kind != p.VAR_KEYWORD
    }


def _print_text(out: Console, name: str, text: str | None) -> None:
    out.print(f"[bold]{name}[/]")
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    flowing = [p if p.startswith(">>>") else " ".join(p.split()) for p in paragraphs]  # examples keep their lines
    out.print("\n\n".join(flowing), markup=False)


def _print_options(out: Console, title: str, options: dict[str, Option]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not options:
        return
    out.print(f"\n{title}:", markup=False)
    table = Table.grid(padding=(0, 2))
    for name, (default, meaning) in options.items():
        table.add_row(Text(f"  {name} = {default!r}" if default == "" else f"  {name} = {default}"), Text(meaning))
    out.print(table)
