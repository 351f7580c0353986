"""The command that writes a task's data for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from assay.cli_options import settings
from assay.errors import BadInput


class Split(StrEnum):
    train = "train"
    validation = "validation"
    test = "test"


class Format(StrEnum):
    jsonl = "jsonl"
    text = "text"


def data(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for the files.")],
    splits: Annotated[
        list[Split] | None,
        typer.Option("--split", help="Write only this split. May be given several times.", show_default="all"),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            min=1,
            help="Number of inputs of the training set, and of each validation and test bin.",
            show_default="1000 for training, and as many for validation and testing as in a run",
        ),
    ] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="jsonl: a Hugging Face dataset; text: pairs of files .src and .tgt.")
    ] = Format.jsonl,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set an option: task.X=V, training.X=V or testing.X=V. May be given more than once."
        ),
    ] = None,
) -> None:
    """Write inputs of a task with their answers.

    Writes the test and validation sets of its runs, and a training set.
    """
    from assay.lab.export import write_data
    from assay.spec import run_spec
    from assay.terminal import console

    options = settings(set_ or [])
    if options["model"]:
        raise BadInput("--set model.X: data has no model; set options of the task, of training or of testing")
    training, testing = options["training"], options["testing"]
    spec = run_spec(task, "lstm", task_options=options["task"], training=training, testing=testing)
    with console(stderr=True).status("drawing"):
        files = write_data(spec, [split.value for split in splits or Split], rows, out, as_text=format_ == "text")
    typer.echo(f"wrote {len(files)} files to {out}")
