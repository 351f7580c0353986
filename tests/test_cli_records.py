"""Running a cell again: what is compared, what is said, and which mistakes are one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.analysis.subjects import read_study
from assay.cli import app
from assay.errors import BadInput
from assay.lab.device import parse_device
from assay.lab.execute import execute
from assay.lab.weights import load_model, serialize
from assay.record import OtherState, Record
from assay.store import Store
from assay.studies import study_named

STUDY = """
from assay.spec import run_spec

TRAINING = {"lengths": [2, 8], "steps": 20, "validate_every": 10}
RUNS = [
    run_spec(
        "parity", "elman", seed=seed, model_options={"width": 8}, training=TRAINING | {"lr": lr}, testing={"rows": 16}
    )
    for lr in (1e-3, 1e-2)
    for seed in range(2)
]
"""


REPLICATION = """
from assay.findings import Comparison, Expectation, Finding, Replication

COMPARISONS = [Comparison("All", "", ("elman",))]
FINDINGS = [
    Finding(
        name="parity", says="It learns.", quote="It does.", source="p. 1",
        expects=(Expectation(task="parity", variant="elman", outcome="learns"),),
    )
]
REPLICATION = Replication("Parity", "parity", {}, (), (), (), {})
"""


def test_packed_files_become_one_with_the_weights_behind_the_findings(made: tuple[Path, list[Record]], tmp_path: Path):
    study, score = tmp_path / "again.py", made[1][0].scores[0]
    study.write_text(STUDY + REPLICATION)
    packs = []
    for number, record in enumerate(made[1]):
        shares = (1.0, 1.0) if number == 2 else (1.0, 0.5)
        scores = tuple(score.model_copy(update={"bin": f"Bin{i}", "sequences": x}) for i, x in enumerate(shares))
        state = OtherState(name="watched", step=10, verdict="partly solved", scores=scores)
        store = Store.create(tmp_path / f"store{number}")
        weights = dict.fromkeys(("", "watched"), record.weights[""])
        store.add(record.model_copy(update={"states": (state,)}).with_weights(weights))
        packs.append(str(tmp_path / f"pack{number}.jsonl.xz"))
        assert CliRunner().invoke(app, ["pack", str(store.path), "--weights", "--out", packs[-1]]).exit_code == 0
    merged, whole = tmp_path / "merged", tmp_path / "whole.jsonl.xz"
    assert "4 runs copied" in CliRunner().invoke(app, ["merge", str(merged), *packs]).output
    result = CliRunner().invoke(app, ["pack", str(merged), "--out", str(whole), "--weights-behind", str(study)])
    assert "4 records" in result.output
    assert "weights of 1 run" in result.output
    records = {record.digest: record for record in Store.open(whole).records()}
    assert records.keys() == {record.digest for record in made[1]}
    best = made[1][2]
    assert serialize(load_model(records[best.digest], state="watched")) == made[1][2].weights[""]
    with pytest.raises(BadInput, match="no weights"):
        load_model(records[best.digest])
    other = CliRunner().invoke(app, ["pack", packs[0], "--out", str(whole), "--weights-behind", str(made[0])])
    assert "does not judge its findings by the best run" in str(other.exception)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    path = tmp_path_factory.mktemp("study") / "mine.py"
    path.write_text(STUDY)
    return path, [execute(run, parse_device("cpu")) for run in study_named(str(path)).runs]


def repeat(
    made: tuple[Path, list[Record]], folder: Path, *words: str, change: Callable[[Record], Record] | None = None
):
    path, records = made
    store = Store.create(folder / "store")
    store.add(*(change(record) if change else record for record in records))
    return CliRunner().invoke(
        app, ["repeat", str(path), *words, "--store", str(folder / "store")], env={"COLUMNS": "100"}
    )


def test_the_same_run_comes_out(made: tuple[Path, list[Record]], tmp_path: Path):
    result = repeat(made, tmp_path, "elman", "parity", "--lr", "1e-3", "--seeds", "2")
    assert result.exit_code == 0, result.output
    assert result.output.count("cpu") == 4
    assert "1 censored, 1 collapsed; they differ" in result.output
    assert max(map(len, result.output.splitlines())) <= 100


def test_as_json(made: tuple[Path, list[Record]], tmp_path: Path):
    result = repeat(made, tmp_path, "elman", "parity", "--json")
    data = json.loads(result.output)
    assert data["same"]
    (run,) = data["runs"]
    assert run["recorded"] == run["now"]
    assert set(run["now"]) == {"outcome", "verdict", "steps", "device"}


def test_another_outcome_where_all_seeds_agreed_is_a_failure(made: tuple[Path, list[Record]], tmp_path: Path):
    def forged(record: Record) -> Record:
        return record.model_copy(update={"verdict": "diverged", "scores": ()})

    assert repeat(made, tmp_path, "elman", "parity", change=forged).exit_code == 1


def test_another_outcome_where_seeds_disagreed_is_none(made: tuple[Path, list[Record]], tmp_path: Path):
    def forged(record: Record) -> Record:
        return record.model_copy(update={"verdict": "diverged", "scores": ()}) if record.seed == 0 else record

    result = repeat(made, tmp_path, "elman", "parity", change=forged)
    assert result.exit_code == 0
    assert "they differ" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["elmann", "parity"], "no variant 'elmann'; did you mean 'elman'?"),
        (["elman", "parrity"], "elman was not run on 'parrity'; did you mean 'parity'?"),
        (["elman", "parity", "--lr", "5"], "--lr 5 is not recorded; choose from: 0.001, 0.01"),
        (["elman", "parity", "--device", "tpu"], "unknown device 'tpu'"),
    ],
)
def test_mistakes(made: tuple[Path, list[Record]], tmp_path: Path, words: list[str], said: str):
    result = repeat(made, tmp_path, *words)
    assert said in str(result.exception)


def test_a_cell_that_is_under_way_says_nothing(made: tuple[Path, list[Record]], tmp_path: Path):
    path, records = made
    Store.create(tmp_path / "store").add(records[0], records[3])
    result = CliRunner().invoke(app, ["repeat", str(path), "elman", "parity", "--store", str(tmp_path / "store")])
    assert "1 of 2 seeds of this cell" in str(result.exception)


def test_nearly_all_and_all_are_the_same_outcome(made: tuple[Path, list[Record]], tmp_path: Path):
    """One that was recorded as learned and is not now, is another."""

    def forged(record: Record) -> Record:
        scores = tuple(score.model_copy(update={"sequences": 0.96 + 0.04 * record.seed}) for score in record.scores)
        return record.model_copy(update={"verdict": ["partly solved", "solved"][record.seed], "scores": scores})

    result = repeat(made, tmp_path, "elman", "parity", change=forged)
    assert "2 learned; they agree" in result.output
    assert result.exit_code == 1


def test_nothing_recorded_of_the_cell(tmp_path: Path):
    other = tmp_path / "other.py"
    other.write_text(STUDY.replace('"elman"', '"gru"') + "\nVARIANTS = {'gru': RUNS[:2], 'later': RUNS[2:]}\n")
    first = execute(study_named(str(other)).runs[0], parse_device("cpu"))
    Store.create(tmp_path / "store").add(first)
    result = CliRunner().invoke(app, ["repeat", str(other), "later", "parity", "--store", str(tmp_path / "store")])
    assert "has no record of later on parity" in str(result.exception)


def test_a_page_is_made_of_the_records_that_ship_unless_a_store_is_named(tmp_path: Path):
    """A store in the current folder may have a few of the same runs, from a first try."""
    study = study_named("quick")
    shipped = read_study(study, None, tmp_path / "none")
    mine = Store.create(tmp_path / "assay-store")
    mine.add(shipped.records[0])
    assert read_study(study, None, mine.path).source == shipped.source
    named = read_study(study, mine.path, mine.path)
    assert (named.source, len(named.records)) == (mine.path, 1)
