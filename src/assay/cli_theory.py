"""The commands about theory. torch is imported only by commands that compute."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import AsJson, options, print_json, settings
from assay.errors import BadInput
from assay.tasks import named_task
from assay.theory.registry import CLAIMS, named_claim

if TYPE_CHECKING:
    from assay.theory.claim import Claim

COMMAND = "assay measure-theory"
RECORD = Path("theory.json")


def prove(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="CLAIM", help="Claims to check, by name or module:Class; default: all."),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="The N of the theorem; default: a length that each claim sets.")
    ] = None,
    largest: Annotated[
        bool, typer.Option("--largest", help="Check each claim at its largest length; some take minutes.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set an option of the claim, for example formula='(x1 & ~x2) | x3'."),
    ] = None,
    numbers: Annotated[
        str | None,
        typer.Option(
            "--numbers",
            help="Compute in a number format: fixed:WHOLE.FRACTION, float:EXPONENT.MANTISSA, float32, float16, "
            "bfloat16, e5m2 or e4m3; default: the construction's own dtype.",
        ),
    ] = None,
    part: Annotated[
        str,
        typer.Option("--part", help="What --numbers rounds: weights, activations, state or all."),
    ] = "all",
    attention: Annotated[
        str | None,
        typer.Option("--attention", help="Replace softmax: hard, average-hard, sigmoid or linear; default: softmax."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check claims: explicit weights, and the inputs that prove lower bounds.

    Compares the outputs of explicit weights with the right answers.

    The exit code is 1 if a claim fails.
    """
    from rich.progress import track

    from assay.terminal import claim_header, claim_line, console

    if length is not None and largest:
        raise BadInput("give --length or --largest, not both")
    if set_ and not names:
        raise BadInput("--set is an option of a claim: name the claim")
    if part != "all" and numbers is None:
        raise BadInput("--part says what --numbers rounds: give --numbers too")
    claims: list[Claim] = [named_claim(name, **options(set_ or [])) for name in names or CLAIMS.entries]
    change: dict[str, Any] = {}
    if numbers is not None or attention is not None:
        from assay.theory.changes import change_of

        change = {"change": change_of(numbers, part, attention)}
        claims = _changeable(claims, attention, strict=bool(names))
    out, progress, results = console(), console(stderr=True), []
    if length is not None:
        claims = _with_length(claims, length, strict=bool(names), say=progress.print)
    for claim in track(claims, "checking", console=progress, transient=True, disable=not progress.is_terminal):
        results.append(claim.check(claim.largest if largest else length, **change))
        if not as_json:
            out.print(*([claim_header()] if len(results) == 1 else []), claim_line(results[-1]), sep="\n")
    if as_json:
        print_json({"verdicts": [result.plain() for result in results]})
    if not all(result.holds for result in results):
        raise typer.Exit(1)


def _changeable(claims: list[Claim], attention: str | None, strict: bool) -> list[Claim]:
    """The claims that can be changed. The others are left out, or an error if `strict`."""
    from assay.theory.changes import changeable

    kept: list[Claim] = [*changeable(claims, attention)]
    for claim in claims if strict else ():
        if claim not in kept:
            raise BadInput(f"{claim.name} has no {'attention to exchange' if attention else 'numbers to round'}")
    return kept


def _with_length(claims: list[Claim], length: int, strict: bool, say: Callable[[str], None]) -> list[Claim]:
    """The claims that have this length. The others are left out with a message, or an error if `strict`."""
    kept, left_out = [], []
    for claim in claims:
        try:
            claim.check_length(length)
            kept.append(claim)
        except BadInput:
            if strict:
                raise
            left_out.append(claim.name)
    if left_out:
        say(f"left out, as they have no length {length}: {', '.join(left_out)}")
    return kept


def size(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    length: Annotated[
        int,
        typer.Option("--length", min=1, help="N, the length of the inputs (for recall, the number of pairs)."),
    ],
    precision: Annotated[int, typer.Option("--precision", min=1, help="Bits per number.")] = 32,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set an option of the task: task.NAME=VALUE, where VALUE is JSON or text."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how large each model must be for a task.

    Shows the bits that it needs, its least width, and known explicit weights.
    """
    from assay.terminal import console, show_sizes
    from assay.theory.bounds.sizes import sizes

    rows = sizes(named_task(task, **settings(set_ or [])["task"]), length, precision)
    if as_json:
        print_json({"task": task, "length": length, "precision": precision, "sizes": [row.plain() for row in rows]})
    else:
        show_sizes(console(), task, length, precision, rows)


def measure_theory(
    out: Annotated[Path, typer.Option("--out", help="The file for the record.")] = RECORD,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PART",
            help="Measure one part of an existing record again: claims, precision, attention, bits or depth. May be "
            "given more than once.",
        ),
    ] = None,
    claims: Annotated[
        list[str] | None,
        typer.Option(
            "--claim", metavar="CLAIM", help="Check one claim of an existing record again. May be given more than once."
        ),
    ] = None,
) -> None:
    """Make the record for `assay report theory`.

    Takes about 25 minutes on two cores.

    The command checks all claims at their largest lengths, then measures the other parts. It saves each finished part.
    """
    from rich.progress import Progress

    from assay.analysis.subjects import read_theory_record
    from assay.lab.device import CORES, parse_device
    from assay.lab.provenance import provenance
    from assay.store import write_synced
    from assay.terminal import console
    from assay.theory import measurements

    parts, names = only or [], claims or []
    measurements.check_names(parts, names)
    _check_writable(out)
    again = list(dict.fromkeys([*parts, *(["claims"] if names else [])]))
    record = read_theory_record(out) if again else {"made": {}}
    record |= provenance(parse_device("cpu")) | {"command": COMMAND}
    with Progress(console=console(stderr=True)) as bar:
        measurements.measure(
            record,
            again or measurements.PARTS,
            names,
            CORES,
            track=lambda rows, name, total: bar.track(rows, total=total, description=name),
            save=lambda data: write_synced(out, json.dumps(data, indent=1).encode(), parents=True),
        )
    failed = [row["claim"] for row in record["claims"] if not row["holds"]]
    typer.echo(f"{len(record['claims'])} claims, {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}")
    typer.echo(f"wrote {out}; `assay report theory --store {out}` makes the page")


def _check_writable(path: Path) -> None:
    """Raise BadInput now, not after the measurement."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"cannot write {path}: {'it is a folder' if path.is_dir() else 'permission denied'}")
