"""The commands about records: pages, packs, and repeating a cell. torch is imported only where something runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import STORE, AsJson, Beside, OnDevice, print_json
from assay.errors import BadInput

if TYPE_CHECKING:
    from assay.analysis.repeat import Repetition
    from assay.lab.status import EvaluationStatus, Status
    from assay.record import Record

RecordsAt = Annotated[
    Path | None,
    typer.Option(
        "--store",
        help="A store or a packed file.",
        show_default="the records that come with Assay, or else assay-store",
    ),
]


def report(
    name: Annotated[
        str, typer.Argument(help="A study's name, the path of its .py file, a store or packed file, or theory.")
    ],
    store: RecordsAt = None,
    beside: Beside = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder for the page.", show_default="reports/NAME")
    ] = None,
) -> None:
    """Make a page from the records of a study or store, or of all claims (theory)."""
    from assay.analysis.subjects import read_subject
    from assay.report import write_page
    from assay.store import no_garbage_collection
    from assay.terminal import console

    with no_garbage_collection():
        subject = read_subject(name, store, STORE, beside or [])
        folder = out or Path("reports") / subject.title
        with console(stderr=True).status("drawing"):
            files = write_page(subject, folder)
    typer.echo(f"wrote {len(files)} files from {subject.source.name}; open {folder / 'index.html'}")


def repeat(
    name: Annotated[str, typer.Argument(help="A study's name, or the path of its .py file.")],
    variant: Annotated[str, typer.Argument(help="A variant of the study; often the name of a model.")],
    task: Annotated[str, typer.Argument(help="A task that the variant was run on.")],
    lr: Annotated[
        float | None, typer.Option("--lr", help="The learning rate.", show_default="the one that validation chose")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of recorded seeds to run again.")] = 1,
    store: RecordsAt = None,
    device: OnDevice = "cpu",
    as_json: AsJson = False,
) -> None:
    """Run recorded seeds of a study again and compare the results.

    The seeds are those of one variant, task and learning rate.
    """
    from assay.analysis.repeat import outcomes, recorded_cell
    from assay.lab.device import parse_device
    from assay.studies import study_named
    from assay.terminal import console, print_repetitions

    torch_device = parse_device(device)
    cell = recorded_cell(study_named(name), variant, task, lr, store, STORE)
    repetitions = [_run_again(record, variant, torch_device) for record in cell[:seeds]]
    recorded, same = outcomes(cell), all(repetition.same for repetition in repetitions)
    if as_json:
        runs = [repetition.plain() for repetition in repetitions]
        print_json({"seeds": dict(recorded), "same": same, "runs": runs})
    else:
        print_repetitions(console(), recorded, [(r.before, r.after, r.same) for r in repetitions])
    if len(recorded) == 1 and not same:
        raise typer.Exit(1)


def _run_again(record: Record, variant: str, device: Any) -> Repetition:
    """Run a recorded spec, with its progress in a status line."""
    from assay.analysis.repeat import Repetition
    from assay.lab.execute import execute
    from assay.spec import RunSpec
    from assay.terminal import console, status_text

    label = f"{variant} on {record.task}, seed {record.seed}"
    with console(stderr=True).status(label) as line:

        def show(status: Status | EvaluationStatus) -> None:
            line.update(f"{label}: {status_text(status)}")

        return Repetition(record, execute(RunSpec(**record.spec), device, show))


def probe(
    store: Annotated[Path, typer.Argument(help="The store whose runs are probed.")],
    device: OnDevice = "auto",
    again: Annotated[
        bool, typer.Option("--again", help="Also probe runs that have been probed with the current probes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Probe stored runs that have weights and lack the current probes."""
    from assay.analysis.cells import cells
    from assay.lab.device import parse_device
    from assay.lab.reprobing import probe_again, probed_runs
    from assay.store import Store
    from assay.terminal import console, counted, outcome, print_cells

    torch_device, opened = parse_device(device), Store.open(store)
    if not store.is_dir():
        raise BadInput(f"{store} is a packed file, to which nothing can be added; name a store")
    records = opened.records()
    pending, without = probed_runs(opened, records, again)
    out, done = console(), []
    with console(stderr=True).status("probing") as line:
        for number, record in enumerate(pending, 1):
            line.update(f"probing {number} of {len(pending)}: {record.task} {record.model} seed {record.seed}")
            done.append(probe_again(record, torch_device))
            opened.add(done[-1])
            if not as_json and not out.is_terminal:
                out.print(f"[{number}/{len(pending)}] {record.task} {record.model}: {outcome(done[-1])}", markup=False)
    if as_json:
        print_json({"probed": [record.plain() for record in done], "without_weights": len(without)})
        return
    if not pending and not without:
        out.print("nothing to probe; --again also probes runs that were probed with the current probes")
        return
    if done:
        print_cells(out, cells(done))
    out.print(f"{counted(len(done), 'run')} probed, {counted(len(without), 'run')} without weights")


def pack(
    store: Annotated[Path, typer.Argument(help="The store to pack.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file to write.", show_default="STORE.jsonl.xz")] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Also write the weights, to STORE.weights.safetensors.")
    ] = False,
    weights_behind: Annotated[
        str | None,
        typer.Option("--weights-behind", help="Write the weights only of the best runs behind this study's findings."),
    ] = None,
) -> None:
    """Pack a store into one small file that other commands can read."""
    from assay.store import Store, weights_beside
    from assay.terminal import counted

    packed = Store.open(store)
    whole = store.resolve()  # a name, also for the current folder
    path = out or whole.with_name(f"{whole.name}.jsonl.xz")
    records = packed.records() if weights or weights_behind else []
    only = _witnesses(weights_behind, records) if weights_behind else None
    count = packed.pack(path)
    typer.echo(f"{counted(count, 'record')} in {path} ({path.stat().st_size / 1024:.0f} KiB)")
    if weights or weights_behind:
        from assay.lab.weights import pack_weights

        beside = weights_beside(path)
        count = pack_weights(records, beside, only)
        typer.echo(f"weights of {counted(count, 'run')} in {beside} ({beside.stat().st_size / 1024:.0f} KiB)")


def _witnesses(study: str, records: list[Record]) -> dict[str, str]:
    """The best runs by which a study's findings are reachable, and their state, by digest."""
    from assay.analysis.rules import by_two_rules, judged, witnesses
    from assay.analysis.summary import summarize
    from assay.studies import study_named

    summary = summarize(study_named(study))
    if summary.replication is None:
        raise BadInput(f"--weights-behind {study}: this study does not judge its findings by the best run")
    replication = summary.replication
    cells = by_two_rules(summary.variants, replication.configurations, records, replication.decisive)
    return witnesses(judged(summary.findings, cells))
