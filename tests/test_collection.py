"""Records without a study: several models on several tasks, their page, and published runs beside them."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy
import pytest
import torch
from rich.console import Console

import assay
from assay import api
from assay.analysis.collection import Collection, collect, comparable, run_rows, task_names
from assay.analysis.subjects import read_subject
from assay.errors import BadInput
from assay.lab.plan_file import note_runs
from assay.lines import write_lines
from assay.record import LengthScore, Record
from assay.report import figures, write_page
from assay.report.collection_page import matrix, render, table_tex
from assay.spec import run_specs
from assay.store import Store, no_garbage_collection
from assay.studies import RESULTS
from assay.terminal import print_matrix
from tests.cards import modules
from tests.report.test_cells import record
from tests.test_cli import assay as command

TINY: dict[str, Any] = {
    "training": {"lengths": [2, 8], "steps": 10},
    "testing": {"rows": 16, "bins": [{"name": "Bin0", "low": 2, "high": 8}]},
}


def run_of(task: str, model: str, seed: int, share: float, **parts: Any) -> Record:
    """A made-up record of a real spec, with this share of right sequences in every bin."""
    (spec,) = run_specs([task], [model], **parts)
    spec, made_up = spec.with_seed(seed), record(seed, "solved" if share == 1 else "censored", share)
    score = made_up.scores[0].model_copy(update={"sequences": share})
    scores = tuple(score.model_copy(update={"bin": bin_.name}) for bin_ in spec.testing.bins)
    return made_up.model_copy(update={"digest": spec.digest, "spec": spec.plain(), "scores": scores})


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "mine"
    opened = Store.create(path)
    opened.add(*(run_of("parity", "lstm", seed, 1.0) for seed in range(2)))
    opened.add(*(run_of("parity", "lstm", seed, 0.5, training={"lr": 1e-2}) for seed in range(2)))
    opened.add(run_of("dyck-1", "gru", 0, 0.25), run_of("parity", "gru", 0, 0.5, training={"lengths": [2, 10]}))
    opened.add(run_of("dyck-1", "gru", 1, 0.0).model_copy(update={"verdict": "failed", "error": "no & luck"}))
    return path


def test_models_by_task_in_the_settings_that_validation_chose(store: Path):
    collection = collect(store, "assay report mine")
    header, rows = matrix(collection)
    assert header == ["model", "parity trained=2to50", "Dyck-1", "parity trained=2to10"]
    texts = [[cell if isinstance(cell, str) else cell.text for cell in row] for row in rows]
    assert texts == [["lstm", "2 of 2\n100", "-", "-"], ["gru", "-", "0 of 1\n25.0\n1 failed", "0 of 1\n50.0"]]
    assert len(collection.cells) == len(collection.chosen) + 1


def test_runs_without_a_result_are_told_from_wrong_ones(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Failed runs are counted beside the seeds, also where no seed has a result; and runs to come are announced."""
    opened, broken = Store.create(store), {"verdict": "failed", "error": "no luck"}
    opened.add(*(run_of("flip-flop", "srwm", seed, 0.0).model_copy(update=broken) for seed in range(2)))
    specs = run_specs(["flip-flop"], ["srwm"], seeds=5)
    note_runs(store, {spec.digest: spec for spec in specs})
    collection = collect(store, "assay report mine")
    _, rows = matrix(collection)
    assert rows[-1] == ["srwm", "-", "-", "-", "2 failed"]
    assert r"srwm & -- & -- & -- & -- {\footnotesize (2 failed)} \\" in table_tex(collection)
    assert r"gru & -- & 0/1 {\footnotesize 25.0} {\footnotesize (1 failed)} &" in table_tex(collection)
    assert "3 runs that commands on this store have named have no record yet" in "\n".join(render(collection).markdown)
    for width in (60, 200):
        console = Console(file=io.StringIO(), width=width)
        print_matrix(console, collection)
        assert "flip-flop srwm seed 1: no luck" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "change",
    [
        {"testing": {}},
        {"testing": {"bins": [{"name": "x"}]}},
        {"testing": 5},
        {"task": "parity"},
        {"model": []},
        {"seed": "../../x"},
        {"training": {"lr": "<b>", "lengths": [2, 50]}},
        {"training": {"lr": 1e-3, "lengths": ["a", 50]}},
        {"training": {"lr": 1e-3, "lengths": [50]}},
        {"training": {"lr": float("nan"), "lengths": [2, 50]}},
    ],
)
def test_a_record_that_cannot_be_shown_is_named(change: dict[str, Any], tmp_path: Path):
    one = run_of("parity", "lstm", 0, 1.0)
    Store.create(tmp_path / "s")
    (tmp_path / "s" / "segments").mkdir(exist_ok=True)
    changed = one.model_copy(update={"spec": one.spec | change})
    (tmp_path / "s" / "segments" / "1.jsonl").write_bytes(write_lines([changed]))  # as no command would
    for read in (lambda path: collect(path, ""), assay.load):
        with pytest.raises(
            BadInput, match=rf"s: the record '{one.digest}' cannot be shown \(.*\); restore the file or"
        ):
            read(tmp_path / "s")


def test_scores_of_nonsense_are_refused(tmp_path: Path):
    one = run_of("parity", "lstm", 0, 1.0)
    wrong: list[dict[str, Any]] = [{"started": "soon"}, {"seconds": {"train": math.inf}}]
    for number, changes in enumerate(wrong):
        Store.create(tmp_path / f"r{number}").add(one.model_copy(update=changes))
        with pytest.raises(BadInput, match="cannot be shown"):
            collect(tmp_path / f"r{number}", "")
    wrong = [{"sequences": float("nan")}, {"answers": 7.0}, {"bin": "other"}]
    for number, changes in enumerate(wrong):
        score = one.scores[0].model_copy(update=changes)
        Store.create(tmp_path / f"{number}").add(one.model_copy(update={"scores": (score, *one.scores[1:])}))
        with pytest.raises(BadInput, match="cannot be shown"):
            collect(tmp_path / f"{number}", "")


def test_a_name_that_vega_does_not_draw_is_bad_input(tmp_path: Path):
    one = run_of("parity", "lstm", 0, 1.0)
    spec = one.spec | {"model": one.spec["model"] | {"name": "constructor"}}
    lengths = (LengthScore(length=2, rows=1, sequences=1.0, answers=1.0),)
    scores = tuple(score.model_copy(update={"lengths": lengths}) for score in one.scores)
    Store.create(tmp_path / "s").add(one.model_copy(update={"spec": spec, "scores": scores}))
    with pytest.raises(BadInput, match="a chart of these records cannot be drawn"):
        write_page(collect(tmp_path / "s", ""), tmp_path / "page")


def test_a_task_has_as_many_details_as_its_names_need():
    specs = [
        spec.plain()
        for options in (dict[str, Any](), {"testing": {"bins": [{"name": "Bin0", "low": 2, "high": 50}]}})
        for spec in run_specs(["parity"], ["lstm"], **options)
    ]
    specs += [run_specs(["index-lookup"], ["lstm"], task_options={"positions": n})[0].plain() for n in (20, 50)]
    names = [*task_names(record(0).model_copy(update={"spec": spec}) for spec in specs).values()]
    assert names[0] == "parity tested=2to50,51to100,101to200,201to1024"
    assert names[1:] == ["parity tested=2to50", "index lookup positions=20", "index lookup positions=50"]


def test_the_page_has_csv_and_latex_beside_it(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "draw", lambda chart: ("<svg/>", b""))
    subject = read_subject(str(store), None, Path("elsewhere"))
    files = {file.name: file for file in write_page(subject, tmp_path / "page")}
    assert {*files} == {
        "index.html",
        "index.md",
        "by-length.svg",
        "by-length.png",
        "cells.csv",
        "runs.csv",
        "table.tex",
    }
    web = files["index.html"].read_text()
    assert "no &amp; luck" in web, "a run that failed is named"
    assert "Made by `assay report" in web
    rows = [*csv.DictReader(io.StringIO(files["cells.csv"].read_text()))]
    assert [(row["model"], row["setting"], row["chosen by validation"], row["solved"]) for row in rows] == [
        ("lstm", "lr=0.001", "yes", "2"),
        ("lstm", "lr=0.01", "no", "0"),
        ("gru", "", "yes", "0"),
        ("gru", "", "yes", "0"),
    ]
    assert len([*csv.DictReader(io.StringIO(files["runs.csv"].read_text()))]) == 7
    latex = files["table.tex"].read_text()
    assert r"lstm & 2/2 {\footnotesize 100} & -- & -- \\" in latex
    assert latex.count(r"\toprule") == latex.count(r"\midrule") == latex.count(r"\bottomrule") == 1
    assert latex == table_tex(subject) if isinstance(subject, Collection) else False


def test_published_runs_that_ask_the_same_stand_beside_within_a_second(store: Path):
    specs = [one.spec for one in Store.open(store).records()]
    comparable("irie2023", specs[:1])  # imports
    begin = time.process_time()
    with no_garbage_collection():
        published = comparable("irie2023", specs)
    assert time.process_time() - begin < 4, "one second on an idle core"
    by_digest = {one.digest: one for one in Store.open(RESULTS / "irie2023.jsonl.xz").records()}
    assert {*published} >= {"transformer", "srwm", "lstm"}
    for runs in published.values():
        assert {run.task for run in runs} == {"parity", "dyck-1"}
        lengths = {(run.task, *by_digest[run.digest].spec["training"]["lengths"]) for run in runs}
        assert lengths == {(spec["task"]["kind"], *spec["training"]["lengths"]) for spec in (specs[0], specs[4])}
    collection = collect(store, "assay report mine", ["irie2023"])
    assert collection.variants[:3] == ["lstm", "gru", "transformer (irie2023)"]
    assert collection.tasks == ["parity trained=2to50", "Dyck-1", "parity trained=2to10"]


@pytest.mark.parametrize(
    ("name", "beside", "message"),
    [
        ("mine", ["irie2024"], "no published records are named 'irie2024'; did you mean 'irie2023'"),
        ("mine", ["proofs"], "no run of proofs has a task, training lengths and test bins of these records"),
        ("quick", ["irie2023"], "--with is for a page of a store, not of quick"),
        ("empty", [], "empty has no records; `assay run`, `assay compare` and `assay study` make them"),
        ("nothing", [], "there is no study, store or packed file 'nothing'; choose from"),
    ],
)
def test_mistakes(name: str, beside: list[str], message: str, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(store.parent)
    Store.create("empty")
    with pytest.raises(BadInput, match=message.replace("(", r"\(")):
        read_subject(name, None, Path("none"), beside)
    with pytest.raises(BadInput, match="is itself a store; leave out --store"):
        read_subject("mine", Path("empty"), Path("none"))


# -- the command and the functions -------------------------------------------------------------------------------------

OPTIONS = ["--seeds", "1", "--lr", "1e-3,1e-2", "--steps", "10", "--set", "training.lengths=[2,8]", "--jobs", "1"]
OPTIONS += [
    "--set",
    'testing.bins=[{"name":"Bin0","low":2,"high":8}]',
    "--set",
    "testing.rows=16",
    "--set",
    "model.width=8",
    "--device",
    "cpu",
]


def test_compare_trains_and_shows_models_by_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "draw", lambda chart: ("<svg/>", b""))
    words = ["compare", "parity,flip-flop", "--models", "gru,elman", *OPTIONS]
    done = command(*words, cwd=tmp_path)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    start = lines.index(next(line for line in lines if line.split() == ["model", "parity", "flip-flop"]))
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["gru", "elman"]
    assert "validation chose one" in done.output
    assert (tmp_path / "reports/comparison/table.tex").exists()
    again = command(*words, "--json", cwd=tmp_path)
    assert len(json.loads(again.output)["records"]) == 8, "all are in the store"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parity,", "--models", "gru"], "tasks 'parity,' is not valid: different names, separated by single commas"),
        (["parity", "--models", "gru,gru"], "--models 'gru,gru' is not valid: different names"),
        (["parity", "--models", "gruu"], "unknown model 'gruu'; did you mean 'gru'"),
        (
            ["parity", "--models", "gru", "--with", "quik"],
            "no published records are named 'quik'; did you mean 'quick'",
        ),
    ],
)
def test_mistakes_of_compare_are_found_before_training(words: list[str], message: str, tmp_path: Path):
    done = command("compare", *words, cwd=tmp_path)
    assert message in str(done.exception)
    assert not any(tmp_path.iterdir())


def test_the_functions_of_python():
    results = assay.compare("parity", ["gru", "elman"], seeds=1, lr=1e-2, device="cpu", jobs=1, **TINY)
    assert repr(results).splitlines()[0].split() == ["model", "parity"]
    assert len(results.records) == 2
    assert "<th>model</th><th>parity</th>" in results._repr_html_()
    assert results.frame()["model"].to_list() == ["gru", "elman"]
    assert "<th>verdict</th><td>" in results.records[0]._repr_html_()
    one = results.records[0]
    assert repr(one) == str(one) == f"<parity gru seed 0: {one.verdict} ({one.digest})>"
    wrong: list[dict[str, Any]] = [{"seeds": 0}, {"models": []}, {"tasks": []}, {"seeds": 1.5}]
    for changes in wrong:
        with pytest.raises(BadInput, match=r"at least (1|one)"):
            assay.compare(**{"tasks": "parity", "models": "gru", **changes})
    with pytest.raises(BadInput, match="lstm is already described; give width where it is made"):
        assay.compare("parity", assay.named_model("lstm"), model_options={"width": 8})
    with pytest.raises(BadInput, match="parity is already described; give runs where it is made"):
        assay.run(assay.task("parity"), "lstm", task_options={"runs": 0.5})
    for model in (modules.Running, f"{modules.__name__}:Running"):
        with pytest.raises(BadInput, match=f"is built with a width, .* name it 'mixer:{modules.__name__}:Running'"):
            assay.run("parity", model)
    with pytest.raises(BadInput, match="precision = 0 is not valid"):
        assay.size("parity", 10, precision=0)
    assert assay.size("index-lookup", 400)[0].bits == 2400
    assert assay.prove("lookup-quadratic", 20).holds
    with pytest.raises(BadInput, match="has no option 'size'"):
        assay.prove("k-dnf", size=3)


def test_a_study_or_store_as_a_data_frame(store: Path, monkeypatch: pytest.MonkeyPatch):
    quick = assay.load("quick")
    assert (quick["task"] == "parity").sum() == 18
    assert {"task.positions", "model.width", "sequences.Bin1", "state_bits", "wrong_word"} <= {*quick.columns}
    mine = assay.load(store)
    assert mine["sequences.Bin0"].to_list() == [one.scores[0].sequences for one in Store.open(store).records()]

    class Frame:
        def __init__(self, rows: list[dict[str, Any]]) -> None:
            self.rows = rows

    installed = {"pandas"}
    monkeypatch.setattr(api, "find_spec", lambda name: SimpleNamespace() if name in installed else None)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=Frame))
    assert assay.load(store).rows == run_rows(Store.open(store).records())
    installed.clear()
    with pytest.raises(BadInput, match="needs polars or pandas, and neither is installed"):
        assay.load(store)


def test_samples_differ_from_row_to_row_and_print_with_their_answers():
    task = assay.task("parity")
    sample = task.sample(3, 12)
    assert len({*sample.words}) == 3
    assert [task.explain(word) for word in sample.words] == sample.answers
    assert repr(sample).splitlines() == [t for pair in zip(sample.words, sample.answers, strict=True) for t in pair]
    assert torch.equal(task.sample(2, 12).inputs, sample.inputs[:2])
    assert not torch.equal(task.sample(3, 12, seed=1).inputs, sample.inputs)
    lengths = (task.sample(50, (3, 5)).inputs > 0).sum(1)
    assert {*lengths.tolist()} == {3, 4, 5}
    assert repr(assay.task("nearest-neighbour").sample(2)).startswith("2 inputs of nearest-neighbour")
    with pytest.raises(BadInput, match="without rows would draw equal inputs"):
        task.inputs(torch.tensor([3, 3]), assay.Rng.seeded(0))
    with pytest.raises(BadInput, match="equality-random has no input of length 4"):
        assay.task("equality-random").sample(1, 4)
    assert task.sample(2, cast(Any, numpy.int64(5))).inputs.shape == (2, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": 0}, "rows = 0 is not valid: a number of inputs, at least 1"),
        ({"rows": -3}, "rows = -3 is not valid"),
        ({"rows": 2.5}, "rows = 2.5 is not valid"),
        ({"rows": True}, "rows = True is not valid"),
        ({"rows": 2, "length": 0}, "length = 0 is not valid: a length or two, shortest first, from 1 to 100,000"),
        ({"rows": 2, "length": 10**9}, "length = 1000000000 is not valid"),
        ({"rows": 2, "length": (5,)}, r"length = \(5,\) is not valid"),
        ({"rows": 2, "length": ()}, r"length = \(\) is not valid"),
        ({"rows": 2, "length": "12"}, "length = '12' is not valid"),
        ({"rows": 2, "length": (5, 2)}, r"length = \(5, 2\) is not valid: a length or two, shortest first"),
        ({"rows": 2, "length": 3, "seed": None}, "seed = None is not valid: a whole number"),
        ({"rows": 2, "length": 3, "seed": 2**64}, "seed = 18446744073709551616 is not valid"),
    ],
)
def test_a_sample_of_nonsense_is_refused_in_a_sentence(arguments: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        assay.task("parity").sample(**arguments)


def test_the_public_names_are_listed_for_those_who_press_tab():
    assert {*assay.__all__} <= {*dir(assay)}
