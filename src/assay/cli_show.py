"""The commands that explain: what there is, and what one of them is and takes. torch is imported only when needed."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli_describe import PARTS, Described, describe
from assay.cli_options import AsJson, print_json
from assay.errors import BadInput
from assay.models.registry import MODELS
from assay.registry import Entry
from assay.studies import STUDIES
from assay.tasks import TASKS
from assay.theory.registry import CLAIMS

if TYPE_CHECKING:
    from rich.console import Console


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
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the task, as task.n=5.", show_default="none")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a task, a model, a claim or a study, with options and defaults.

    Of a regular task it also shows the algebra.
    """
    from assay.terminal import console

    known = {**TASKS.entries, **MODELS.entries, **CLAIMS.entries, **STUDIES, **dict.fromkeys(PARTS)}
    if name not in known and ":" not in name:
        near = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "`assay list` has all names"
        raise BadInput(f"unknown task, model, claim or study '{name}'; {hint}")
    described = describe(name, set_ or [])
    if as_json:
        print_json(described.plain())
    else:
        _print(console(), described)


def _print(out: Console, described: Described) -> None:
    from rich.table import Table
    from rich.text import Text

    out.print(f"[bold]{described.name}[/]{described.remark}")
    paragraphs = described.text.split("\n\n")
    flowing = [p if p.startswith(">>>") else " ".join(p.split()) for p in paragraphs]  # examples keep their lines
    out.print("\n\n".join(flowing), markup=False)
    for title, lines in described.sections.items():
        out.print(f"\n{title}:", markup=False)
        table = Table.grid(padding=(0, 1), pad_edge=True)
        for line in lines:
            if isinstance(line, str):
                out.print(f"  {line}", markup=False)
            else:
                table.add_row(Text(f" {line[0]}"), Text(line[1]))
        if table.row_count:
            out.print(table)
    if described.options:
        out.print(f"\n{described.options_title}:", markup=False)
        table = Table.grid(padding=(0, 2))
        for name, (default, meaning) in described.options.items():
            table.add_row(Text(f"  {name} = {default!r}" if default == "" else f"  {name} = {default}"), Text(meaning))
        out.print(table)
    if described.closing:
        out.print(f"\n{described.closing}")
