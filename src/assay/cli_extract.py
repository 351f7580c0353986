"""The commands about trained weights: what automaton they compute, where they look, what their states carry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli_options import STORE, AsJson, command_line, print_json
from assay.errors import BadInput


def extract(
    run: Annotated[str, typer.Argument(help="A run's digest, or how it begins.")],
    store: Annotated[Path, typer.Option("--store", help="The store or packed file of the run.")] = STORE,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=1,
            help="For an SRWM: compare its self-modifying automaton with the network on all strings up to this length.",
            show_default="20,000 strings",
        ),
    ] = None,
    extra_states: Annotated[
        int | None,
        typer.Option(
            "--extra",
            min=0,
            help="The m of the Wp-method is the number of learned states plus this.",
            show_default="20,000 tests",
        ),
    ] = None,
    max_states: Annotated[int, typer.Option("--states", min=1, help="Stop if there are more states than this.")] = 40,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Time limit for learning.")] = 60.0,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="The seed of the random words that test the automaton.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The folder for the page and its files.", show_default="reports/automaton-TASK-MODEL-SEED"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Extract the automaton that a trained network computes.

    For an SRWM, also its self-modifying automaton.

    Writes a page with pictures (SVG and PNG), tables, and the automaton as a task. With --json it prints the tables,
    and writes files only with --out.
    """
    from assay.extract.learning import LONGER, learn_automaton
    from assay.extract.page import Extraction, write
    from assay.extract.questions import check_symbols
    from assay.extract.self_modifying import extract_programs, has_programs, srwm_in
    from assay.lab.evaluate import predict
    from assay.lab.execute import one_thread
    from assay.lab.weights import load_model
    from assay.spec import RunSpec
    from assay.store import Store
    from assay.terminal import console, counted

    record = Store.open(store).run(run)
    spec = RunSpec(**record.spec)
    check_symbols(spec.task)
    model = load_model(record)
    if length is not None:
        srwm_in(model)
    terminal = console(stderr=True)
    with one_thread(), terminal.status("asking the network") as line:

        def show(words: int, states: int) -> None:
            line.update(f"asking the network: {counted(words, 'word')}, {counted(states, 'state')}")

        learned = learn_automaton(
            lambda words: predict(model, words),
            spec.task,
            extra_states=extra_states,
            trained=spec.training.lengths,
            longest=min(LONGER * spec.training.lengths[1], max(bin_.high for bin_ in spec.testing.bins)),
            seed=seed,
            seconds=seconds,
            max_states=max_states,
            on_progress=show,
        )
        programs = (
            extract_programs(model, spec.task, length=length, on_progress=line.update) if has_programs(model) else None
        )
    extraction = Extraction(record, learned, programs, command_line())
    folder = out or Path("reports") / extraction.folder
    files = [] if as_json and out is None else write(extraction, folder)
    if as_json:
        print_json(extraction.plain() | {"files": [str(file) for file in files]})
        return
    typer.echo(f"{extraction.title}: {counted(len(learned.machine.moves), 'state')}")
    typer.echo(learned.statement)
    if programs is not None:
        typer.echo(f"self-modifying automaton: {programs.statement}")
    if extraction.run_task:
        typer.echo(f"the automaton as a task: {extraction.run_task}")
    typer.echo(f"wrote {len(files)} files; open {folder / 'index.html'}")


def inspect(
    name: Annotated[str, typer.Argument(help="A study with SEPARATIONS, or the path of its .py file.")],
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="A store or a packed file with weights.",
            show_default="the records that come with Assay, or else assay-store",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write.", show_default="a file beside the records")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Inspect where attention looks, and what recurrent states carry.

    Reads the kept weights of index-lookup runs.

    The page of the study shows the file that this writes beside the records. Takes seconds for each run.
    """
    import json

    from assay.analysis.inspections import inspection_file
    from assay.analysis.subjects import read_study
    from assay.analysis.summary import lengths_of
    from assay.extract.inspection import inspect as inspection_of
    from assay.lab.execute import one_thread
    from assay.store import write_synced
    from assay.studies import study_named
    from assay.terminal import console

    study = study_named(name)
    if study.separations is None:
        raise BadInput(f"{name} is not about lengths and sizes: its file has no SEPARATIONS")
    subject = read_study(study, store, STORE)
    lengths = lengths_of(subject.summary, subject.records)
    with one_thread(), console(stderr=True).status("inspecting") as line:
        data = inspection_of(study.separations, lengths, f"assay inspect {name}", line.update)
    if as_json:
        print_json(data)
        return
    path = out or inspection_file(subject.source)
    write_synced(path, json.dumps(data, separators=(",", ":")).encode(), parents=True)
    typer.echo(f"inspected {len(data['attention'])} runs with attention and {len(data['states'])} with a fixed state")
    typer.echo(f"wrote {path}")
