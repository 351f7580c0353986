"""The commands about records: pages, packs, and running a cell again. torch is imported only where something runs."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli_options import STORE, AsJson, OnDevice, print_json
from assay.cli_theory import report_theory
from assay.description import BadInput, suggestion
from assay.studies import RESULTS, Study, study_named

if TYPE_CHECKING:
    from assay.record import Record
    from assay.report.about import About, Setup
    from assay.spec import RunSpec

FACTS = ("verdict", "steps", "device")
RecordsAt = Annotated[
    Path | None,
    typer.Option("--store", help="A store or packed file [default: assay-store, or the shipped records]."),
]


def report(
    name: Annotated[str, typer.Argument(help="A study's name, the path of its .py file, or theory.")],
    store: RecordsAt = None,
    out: Annotated[Path | None, typer.Option("--out", help="The folder for the page [default: reports/STUDY].")] = None,
) -> None:
    """Make a page with tables and charts from the records of a study, or of theory."""
    if name == "theory":
        report_theory(store or RESULTS / "theory.json", out or Path("reports/theory"))
        return
    from assay.report.study import write
    from assay.terminal import console

    asked = study_named(name)
    source, records = recorded(name, asked, store)
    missing = len({spec.digest for spec in asked.runs}) - len(records)
    folder = out or Path("reports") / Path(name).stem
    with console(stderr=True).status("drawing"):
        files = write(about_study(name, asked), records, missing, folder)
    typer.echo(f"wrote {len(files)} files from {source.name}; open {folder / 'index.html'}")


def recorded(name: str, asked: Study, store: Path | None) -> tuple[Path, list[Record]]:
    """The records of a study and where they are: what was asked for, the usual store, or what ships."""
    from assay.record import Store

    runs = list(dict.fromkeys(spec.digest for spec in asked.runs))
    source, shipped = store or STORE, RESULTS / f"{name}.jsonl.xz"
    records = Store.open(source).select(runs) if store or source.exists() else []
    if not records and store is None and shipped.exists():
        source, records = shipped, Store.open(shipped).select(runs)
    if not records:
        into = "" if source.is_file() else f" --store {source}"  # a packed file is not written to
        raise BadInput(f"{source} has no record of this study; make them with: assay study {name}{into}")
    return source, records


def repeat(
    name: Annotated[str, typer.Argument(help="A study's name, or the path of its .py file.")],
    variant: Annotated[str, typer.Argument(help="A variant of the study: a model, or what it calls one.")],
    task: Annotated[str, typer.Argument(help="The task that it was asked.")],
    lr: Annotated[float | None, typer.Option("--lr", help="The learning rate [default: validation's choice].")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many of the recorded seeds.")] = 1,
    store: RecordsAt = None,
    device: OnDevice = "cpu",
    as_json: AsJson = False,
) -> None:
    """Run a cell of a study again, from its specs, and set what comes out beside what is recorded."""
    from assay.findings import chosen
    from assay.lab.device import parse_device
    from assay.lab.execute import execute
    from assay.spec import RunSpec
    from assay.terminal import console, repeated

    place, asked = parse_device(device), study_named(name)
    if variant not in asked.variants:
        raise BadInput(f"the study has no variant '{variant}'{suggestion(variant, asked.variants)}")
    mine = {spec.digest: spec for spec in asked.variants[variant]}
    tasks = {spec.task.kind for spec in mine.values()}
    if task not in tasks:
        raise BadInput(f"{variant} was not asked '{task}'{suggestion(task, tasks)}")
    source, records = recorded(name, asked, store)
    cell = [record for record in records if record.digest in mine and record.task == task and record.finished]
    rates = sorted({record.rate for record in cell})
    if lr is not None and lr not in rates:
        known = ", ".join(f"{rate:g}" for rate in rates)
        raise BadInput(f"--lr {lr:g} is not recorded; choose from: {known or 'none'}")
    those = chosen(record for record in cell if lr in (None, record.rate))
    if not those:
        raise BadInput(f"{source} has no record of {variant} on {task}")
    asked_for = sum(spec.model_copy(update={"seed": those[0].seed}).digest == those[0].digest for spec in mine.values())
    if len(those) < asked_for:
        raise BadInput(f"{source} has {len(those)} of {asked_for} seeds of this cell: those that end soon come first")
    pairs = []
    for before in those[:seeds]:
        said = f"{variant} on {task}, seed {before.seed}"
        with console(stderr=True).status(said) as status:
            watch = partial(_tell, status, said)
            pairs.append((before, execute(RunSpec(**before.spec), place, watch)))
    outcomes = Counter(map(_outcome, those))
    compared = [(before, after, _outcome(before) == _outcome(after)) for before, after in pairs]
    same = all(equal for _, _, equal in compared)
    if as_json:
        print_json({"seeds": dict(outcomes), "same": same, "runs": [_both(*pair) for pair in pairs]})
    else:
        repeated(console(), outcomes, compared)
    if len(outcomes) == 1 and not same:
        raise typer.Exit(1)


def _outcome(record: Record) -> str:
    """What a cell's seeds can agree in: whether it was learned as far as papers look, or else how it ended."""
    from assay.findings import learned_up_to

    return "learned" if record.scores and learned_up_to(record, record.bins[:2][-1]) else record.verdict


def _tell(status: Any, said: str, now: Any) -> None:
    status.update(f"{said}: step {now.step:,} of at most {now.steps:,}, loss {now.loss:.3g}, validation {now.best:.1%}")


def _both(before: Record, after: Record) -> dict[str, Any]:
    told = ({"outcome": _outcome(run), **{name: getattr(run, name) for name in FACTS}} for run in (before, after))
    return {"seed": before.seed, **dict(zip(("recorded", "now"), told, strict=True))}


def about_study(name: str, asked: Study) -> About:
    """What the page of a study says beside its records."""
    from assay.report.about import About

    variants: dict[str, dict[str, list[str]]] = {}
    for variant, runs in asked.variants.items():
        of = variants.setdefault(variant, {})
        for run in runs:
            of.setdefault(run.task.kind, []).append(run.digest)
    pieces = {piece: [run.digest for run in runs] for piece, runs in asked.pieces.items()}
    facts = (asked.findings, asked.comparisons, variants, pieces, _setups(asked))
    return About(Path(name).stem, asked.about, name, *facts)


def _setups(asked: Study) -> dict[str, Setup]:
    """How the tasks of the first comparison are asked; its variants may differ in steps and batch."""
    from assay.report.about import Setup
    from assay.tasks import TASKS

    runs: dict[str, list[RunSpec]] = {}
    for variant in asked.comparisons[0].variants if asked.comparisons else ():
        for run in asked.variants.get(variant, ()):
            runs.setdefault(run.task.kind, []).append(run)
    setups = {}
    for task, some in runs.items():
        training, steps, batches = some[0].training, {r.training.steps for r in some}, {r.training.batch for r in some}
        setups[task] = Setup(
            TASKS.entries[task].summary if task in TASKS.entries else "",
            training.lengths,
            sorted(((window.low, window.high) for window in some[0].testing.bins), key=lambda ends: ends[1]),
            max(window.high for window in training.validation),
            (min(steps), max(steps)),
            (min(batches), max(batches)),
        )
    return setups


def pack(
    store: Annotated[Path, typer.Argument(help="The store to pack.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file to write [default: STORE.jsonl.xz].")] = None,
) -> None:
    """Turn a store into one compact file that can be shared and reported on."""
    from assay.record import Store

    packed = Store.open(store)
    whole = store.resolve()  # a name, also for the current folder
    path = out or whole.with_name(f"{whole.name}.jsonl.xz")
    count = packed.pack(path)
    typer.echo(f"{count} records in {path} ({path.stat().st_size / 1024:.0f} KiB)")
