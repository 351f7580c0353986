"""The commands about theory: each is a few lines that call it. torch is imported only where something runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import AsJson, options, print_json, settings
from assay.description import BadInput
from assay.tasks import named_task
from assay.theory.registry import CLAIMS, claim_named

if TYPE_CHECKING:
    from assay.theory.claim import Claim


def prove(
    names: Annotated[list[str] | None, typer.Argument(metavar="CLAIM", help="Which; all if left out.")] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="The N of the theorem, if not the claim's own.")
    ] = None,
    largest: Annotated[bool, typer.Option("--largest", help="At the largest length that takes minutes.")] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the claim, as formula='(x1 & ~x2) | x3'.")
    ] = None,
    numbers: Annotated[
        str | None, typer.Option("--numbers", help="Compute in fixed:WHOLE.FRACTION, float16, bfloat16, ...")
    ] = None,
    part: Annotated[str, typer.Option("--part", help="Round weights, activations, state or all.")] = "all",
    attention: Annotated[
        str | None, typer.Option("--attention", help="Weigh by softmax, hard, average-hard, sigmoid or linear.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check claims: explicit weights against the oracle, bounds against their witnesses."""
    from rich.progress import track

    from assay.terminal import claim_header, claim_line, console

    if length is not None and largest:
        raise BadInput("give --length or --largest, not both")
    if set_ and not names:
        raise BadInput("--set is an option of a claim: name the claim")
    if part != "all" and numbers is None:
        raise BadInput("--part says what --numbers rounds: give --numbers too")
    claims: list[Claim] = [claim_named(name, **options(set_ or [])) for name in names or CLAIMS.entries]
    change: dict[str, Any] = {}
    if numbers is not None or attention is not None:
        from assay.theory.changes import change_of, changeable

        change, wanted = {"change": change_of(numbers, part, attention)}, claims
        claims = [*changeable(claims, attention)]
        for claim in wanted if names else ():
            if claim not in claims:
                raise BadInput(f"{claim.name} has no {'attention to exchange' if attention else 'numbers to round'}")
    out, aside, verdicts = console(), console(stderr=True), []
    if length is not None:
        claims = _with_length(claims, length, strict=bool(names), say=aside.print)
    if not as_json:
        out.print(claim_header())
    for claim in track(claims, "checking", console=aside, transient=True, disable=not aside.is_terminal):
        verdicts.append(claim.verify(claim.largest if largest else length, **change))
        if not as_json:
            out.print(claim_line(verdicts[-1]))
    if as_json:
        print_json({"verdicts": [verdict.plain() for verdict in verdicts]})
    if not all(verdict.holds for verdict in verdicts):
        raise typer.Exit(1)


def size(
    task: Annotated[str, typer.Argument(help="A task's name, or module:Class.")],
    length: Annotated[int, typer.Option("--length", min=1, help="The length of the inputs: N.")],
    precision: Annotated[int, typer.Option("--precision", min=1, help="Bits of every number.")] = 32,
    set_: Annotated[list[str] | None, typer.Option("--set", help="task.X=V, V as JSON or text.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how large a machine must be for a task: the bits it needs, who has them, and what is not known."""
    from assay.terminal import console, show_sizes
    from assay.theory.bounds.sizes import sizes

    rows = sizes(named_task(task, **settings(set_ or [])["task"]), length, precision)
    if as_json:
        print_json({"task": task, "length": length, "precision": precision, "sizes": [row.plain() for row in rows]})
    else:
        show_sizes(console(), task, length, precision, rows)


def _with_length(claims: list[Claim], length: int, strict: bool, say: Callable[[str], None]) -> list[Claim]:
    """Those that speak of this length; where they were not named, those that do not are left out, and that is said."""
    left, silent = [], []
    for claim in claims:
        try:
            claim.check_length(length)
            left.append(claim)
        except BadInput:
            if strict:
                raise
            silent.append(claim.name)
    if silent:
        say(f"left out, as they have no length {length}: {', '.join(silent)}")
    return left
