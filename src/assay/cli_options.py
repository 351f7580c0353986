"""Options that several commands share, and the syntax of --set."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.errors import BadInput, suggestion

STORE = Path("assay-store")
OnDevice = Annotated[str, typer.Option("--device", help="auto (a GPU if there is one), cpu or cuda.")]
Beside = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Also show the published records of this study that have the same tasks, lengths and test bins. "
        "May be given several times.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def settings(pairs: list[str]) -> dict[str, dict[str, Any]]:
    """The fields of task, model, training and testing, from texts such as `model.width=32`."""
    parts: dict[str, dict[str, Any]] = {"task": {}, "model": {}, "training": {}, "testing": {}}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        part, dot, field = name.partition(".")
        if not equals or not dot or not field:
            raise BadInput(f"--set {pair} is not valid: write PART.FIELD=VALUE, as model.width=32")
        if part not in parts:
            raise BadInput(f"--set {pair}: there is no part '{part}'{suggestion(part, parts)}")
        parts[part][field] = value(text)
    return parts


def options(pairs: list[str]) -> dict[str, Any]:
    """Options by name, from texts such as `formula=x1`."""
    for pair in pairs:
        if "=" not in pair:
            raise BadInput(f"--set {pair} is not valid: write NAME=VALUE, as formula='(x1 & ~x2) | x3'")
    return {name: value(text) for name, _, text in (pair.partition("=") for pair in pairs)}


def value(text: str) -> Any:
    """A value, read as JSON if possible, else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def command_line() -> str:
    """The command line that is running, to be repeated."""
    return shlex.join(["assay", *sys.argv[1:]])


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1))
