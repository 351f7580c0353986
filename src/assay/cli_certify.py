"""The commands about certificates: make one, check one. torch is imported only where something runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import STORE, AsJson, OnDevice, print_json, settings
from assay.errors import BadInput, suggestion

if TYPE_CHECKING:
    from assay.certify.result import Result
    from assay.certify.runs import Candidate
    from assay.certify.search import OnStatus
    from assay.certify.table import TaskTable
    from assay.record import Certified, Record

METHODS = ("auto", "lasso", "exhaustive", "closure", "linear", "learn")
COLOURS = {"proved": "green", "refuted": "red", "conditional": "yellow", "open": "yellow"}


def certify(
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="RUN|STORE|MODULE",
            help="A run's digest (or how it begins) in --store; a store, for all its runs; or module:Class.",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option("--task", help="The task of a module. For a store: certify only the runs on this task."),
    ] = None,
    method: Annotated[str, typer.Option("--method", help=f"One of {', '.join(METHODS)}.")] = "auto",
    numbers: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Round the carried state to this format, as fixed:6.4; float32 does not round.",
            show_default="several in turn",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Time limit for each run.")] = 60.0,
    states: Annotated[
        int, typer.Option("--states", min=1, help="Maximum number of stored pairs of states, which limits the memory.")
    ] = 2_000_000,
    dead: Annotated[
        bool, typer.Option("--dead", help="Also require right answers after prefixes that no word of the task has.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="If the rounded machine is not proved, train it on for up to 1,000 steps with its state rounded; "
            "the result is a run of its own.",
        ),
    ] = False,
    weights: Annotated[
        Path | None, typer.Option("--weights", help="The safetensors file of a module's weights.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the module or its task: model.X=V or task.X=V.")
    ] = None,
    store: Annotated[Path, typer.Option("--store", help="The store of the run.")] = STORE,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for certificates.", show_default="STORE/certificates")
    ] = None,
    device: OnDevice = "cpu",
    as_json: AsJson = False,
) -> None:
    """Prove a trained network right on every input, or find a wrong one.

    Writes a certificate of the result.

    A proof is about the machine whose state is rounded to --format after every step, unless that is float32.
    """
    from assay.certify.methods import FORMATS
    from assay.certify.methods import certify as certified
    from assay.certify.repair import STEPS
    from assay.certify.repair import repair as repaired
    from assay.certify.runs import candidate_of
    from assay.certify.search import Limits
    from assay.certify.table import table_of
    from assay.lab.device import parse_device
    from assay.numbers import read_format
    from assay.record import Record

    if method not in METHODS:
        raise BadInput(f"--method {method} is not valid{suggestion(method, METHODS)}")
    if numbers:
        read_format(numbers)
    if numbers and method not in ("auto", "closure"):
        raise BadInput(f"--format is for the methods closure and auto; {method} does not round")
    folder, runs = _runs(candidate, task, weights, set_, store)
    torch_device, limits, report = parse_device(device), Limits(seconds, states), list[dict[str, Any]]()
    terminal = _Terminal(out or folder, as_json)

    def results_of(network: Candidate) -> Iterator[tuple[Candidate, TaskTable, list[Result]]]:
        """Of the network, and of its repaired twin if it is to have one."""
        table = table_of(network.task, dead)
        with terminal.status(network.name) as on_status:
            results = certified(network.model, table, method, numbers, limits, torch_device, on_status)
        yield network, table, results
        if repair and not any(result.outcome == "proved" and result.length is None for result in results):
            with terminal.status(network.name) as on_status:
                twin = repaired(network, table, numbers or FORMATS[0], STEPS, limits, on_status)
                results = certified(twin.model, table, "exhaustive", None, limits, torch_device, on_status)
            yield twin, table, results

    for run in runs:
        try:
            network = candidate_of(run) if isinstance(run, Record) else run
            try:
                report += [terminal.show(*result) for result in results_of(network)]
            except BadInput as error:
                raise BadInput(f"{network.name}: {error}") from None
        except BadInput as error:
            if len(runs) == 1:
                raise
            terminal.progress.print(f"left out: {error}", markup=False)
    if as_json:
        print_json({"certified": report})


class _Terminal:
    """Shows progress and results, writes certificates, and adds the results to the records."""

    def __init__(self, folder: Path, as_json: bool) -> None:
        from assay.terminal import console

        self.folder, self.as_json, self.out, self.progress = folder, as_json, console(), console(stderr=True)

    @contextmanager
    def status(self, name: str) -> Iterator[OnStatus]:
        with self.progress.status(name) as line:
            yield lambda status: line.update(
                f"{name}: {status.method}: {status.length:,} tokens, {status.pairs:,} pairs, "
                f"{status.waiting:,} waiting, {status.seconds:.0f} s"
            )

    def show(self, candidate: Candidate, table: TaskTable, results: list[Result]) -> dict[str, Any]:
        """Check and keep the results of one network, print them, and return them as plain data."""
        from assay.certify.runs import certified, keep

        with self.progress.status(f"{candidate.name}: checking"):
            entries = [certified(candidate, table, result, self.folder) for result in results]
        keep(candidate, entries)
        if not self.as_json:
            self.out.print(f"{candidate.name}{f': {table.note}' if table.note else ''}", markup=False)
            for entry, result in zip(entries, results, strict=True):
                self._print(entry, is_new=entry.detail == result.detail)
        return {
            "digest": candidate.record.digest if candidate.record else "",
            "model": candidate.architecture.name,
            "task": candidate.task.kind,
            "note": table.note,
            "results": [entry.plain() for entry in entries],
        }

    def _print(self, entry: Certified, is_new: bool) -> None:
        extent = f" to {entry.length}" if entry.outcome == "proved" and entry.length else ""
        title = f"[{COLOURS[entry.outcome]}]{entry.outcome.upper()}{extent}[/] by {entry.method}, {entry.numbers}"
        self.out.print(f"  {title}{'' if is_new else ' (an earlier result, which says more)'}", end="")
        self.out.print(f": {entry.word}" if entry.word else "", markup=False, soft_wrap=True)
        indent = " " * 4
        detail = fill(entry.detail, self.out.width, initial_indent=indent, subsequent_indent=indent)
        self.out.print(detail, markup=False)
        if entry.certificate:
            self.out.print(f"{indent}certificate: {self.folder / entry.certificate}", markup=False, soft_wrap=True)


def _runs(
    candidate: str, task: str | None, weights: Path | None, set_: list[str] | None, store: Path
) -> tuple[Path, list[Record] | list[Candidate]]:
    """The folder of the certificates, and the runs or the module."""
    from assay.certify.runs import module_candidate, runs_of
    from assay.store import Store

    if _is(Path(candidate)):
        path = Path(candidate)
        folder = path / "certificates" if path.is_dir() else path.with_name("certificates")
        return folder, runs_of(path, task)
    if ":" in candidate:
        if weights is None or task is None:
            raise BadInput(f"{candidate} is a module: give its weights with --weights FILE and its task with --task")
        return Path("certificates"), [module_candidate(candidate, task, weights, settings(set_ or []))]
    if weights is not None or set_:
        raise BadInput("--weights and --set are for a module:Class; a run has its own weights and options")
    record = Store.open(store).run(candidate)
    if task not in (None, record.task):
        raise BadInput(f"{candidate} is a run on {record.task}, not on {task}; leave --task out")
    return store / "certificates", [record]


def _is(path: Path) -> bool:
    """Whether there is something at a path; a name that is too long for a file is none."""
    try:
        return path.exists()
    except OSError:
        return False


def check(
    certificate: Annotated[Path, typer.Argument(help="A file that `assay certify` wrote, or a folder of such files.")],
    own_module: Annotated[
        bool, typer.Option("--own-module", help="Run the code of a module:Class that a certificate names.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check certificates with an independent program. Exit code 0: all hold; 1: one does not; 2: a file is damaged."""
    from assay.certify.runs import check_file

    folder = certificate / "certificates" if _is(certificate / "certificates") else certificate  # of a store
    paths = sorted(folder.glob("*.certificate")) if _is(folder) and folder.is_dir() else [certificate]
    if not paths:
        raise BadInput(f"{certificate} has no certificates; `assay certify` writes them")
    report = list[dict[str, Any]]()
    for path in paths:
        try:
            problem, statement = check_file(path, own_module)
        except BadInput as error:
            if len(paths) == 1:
                raise
            report.append({"file": path.name, "holds": None, "problem": str(error), "statement": ""})
            typer.echo(str(error), err=True)
            continue
        report.append({"file": path.name, "holds": not problem, "problem": problem, "statement": statement})
        if not as_json:
            typer.echo(f"{path.name}: {f'does not hold ({problem})' if problem else 'holds'}: {statement}")
    verdicts = [entry["holds"] for entry in report]
    if as_json:
        print_json({"certificates": report})
    elif len(paths) > 1:
        typer.echo(f"{verdicts.count(True)} of {len(paths)} certificates hold")
    if not all(verdicts):
        raise typer.Exit(1 if False in verdicts else 2)
