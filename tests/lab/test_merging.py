"""Uniting stores: nothing is lost, nothing is doubled, and nobody's result is replaced by another."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from assay.cli import app
from assay.errors import BadInput
from assay.lab.execute import execute
from assay.lab.merging import merge
from assay.lab.weights import load_model, pack_weights
from assay.record import Certified, Record
from assay.spec import run_spec
from assay.store import Store, weights_beside


def run(seed: int) -> Record:
    """A trained run with its weights."""
    training = {"steps": 10, "lengths": [2, 6], "validate_every": 10}
    options = {"width": 4, "layers": 1}
    return execute(
        run_spec("parity", "gru", seed=seed, model_options=options, training=training, testing={"rows": 8}),
        torch.device("cpu"),
    )


@pytest.fixture(scope="module")
def runs() -> list[Record]:
    return [run(seed) for seed in range(3)]


def failed(record: Record) -> Record:
    return Record(digest=record.digest, spec=record.spec, verdict="failed", stopped="error", error="lost")


def copy(record: Record, weights: bool = True) -> Record:
    """A record that can be added to a store."""
    return record.with_weights(dict(record.weights) if weights else {})


def test_what_is_lacking_is_copied_with_its_weights(tmp_path: Path, runs: list[Record]):
    mine, theirs = Store.create(tmp_path / "mine"), Store.create(tmp_path / "theirs")
    mine.add(copy(runs[0]), failed(runs[1]))
    theirs.add(*(copy(record) for record in runs))
    assert astuple(merge(mine, [theirs])) == ([r.digest for r in runs[1:]], [runs[0].digest], [])
    assert [record.finished for record in Store.open(mine.path).records()] == [True] * 3
    for record in Store.open(mine.path).records():
        for name, x in load_model(record).state_dict().items():
            assert torch.equal(x, load_model(record, theirs.path).state_dict()[name])
    before = len(list(mine.history()))
    assert merge(mine, [theirs]).copied == []
    assert len(list(mine.history())) == before
    assert merge(theirs, [mine]).copied == []


def test_a_packed_store_is_merged_with_its_weights(tmp_path: Path, runs: list[Record]):
    theirs, packed = Store.create(tmp_path / "theirs"), tmp_path / "theirs.jsonl.xz"
    theirs.add(*(copy(record) for record in runs))
    theirs.pack(packed)
    pack_weights(theirs.records(), weights_beside(packed))
    mine = Store.create(tmp_path / "mine")
    assert len(merge(mine, [Store.open(packed)]).copied) == 3
    assert [load_model(record) for record in mine.records()]
    assert mine.records() == theirs.records()


def test_of_equal_results_the_more_complete_is_kept(tmp_path: Path, runs: list[Record]):
    mine, theirs = Store.create(tmp_path / "mine"), Store.create(tmp_path / "theirs")
    mine.add(copy(runs[0], weights=False))
    theirs.add(copy(runs[0]))
    entry = Certified(method="closure", outcome="proved", certificate="a.certificate")
    theirs.add(theirs.records()[0].model_copy(update={"certified": (entry,)}))
    (theirs.path / "certificates").mkdir()
    (theirs.path / "certificates" / "a.certificate").write_text("proof")
    assert merge(mine, [theirs]).copied == [runs[0].digest]
    (record,) = Store.open(mine.path).records()
    assert record.certified == (entry,)
    assert load_model(record)
    assert (mine.path / "certificates" / "a.certificate").read_text() == "proof"


def test_of_different_results_ours_is_kept_and_named(tmp_path: Path, runs: list[Record]):
    mine, theirs = Store.create(tmp_path / "mine"), Store.create(tmp_path / "theirs")
    mine.add(copy(runs[0]))
    theirs.add(copy(runs[0]).model_copy(update={"steps": 11}), copy(runs[1]).model_copy(update={"device": "a GPU"}))
    mine.add(copy(runs[1]))
    result = CliRunner().invoke(app, ["merge", str(mine.path), str(theirs.path)])
    assert result.exit_code == 0
    assert "0 runs copied" in result.output
    assert "it had 1 already" in result.output, "a device is not a result"
    assert f"different results in both, of which that of {mine.path} was kept: {runs[0].digest[:8]}" in result.output
    again = CliRunner().invoke(app, ["merge", str(mine.path), str(theirs.path), "--json"])
    assert json.loads(again.output) == {"copied": [], "present": [runs[1].digest], "differing": [runs[0].digest]}
    assert {record.steps for record in mine.records()} == {10}


def test_bad_input(tmp_path: Path):
    mine = Store.create(tmp_path / "mine")
    with pytest.raises(BadInput, match="is the store to merge into"):
        merge(mine, [Store.open(tmp_path / "mine")])
    result = CliRunner().invoke(app, ["merge", str(tmp_path / "new"), str(tmp_path / "missing")])
    assert "there is no store at" in str(result.exception)
    assert not (tmp_path / "new").exists()
