"""Descriptions of runs: what they cover, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from assay.description import digest
from assay.errors import BadInput
from assay.spec import RunSpec, run_spec
from assay.tasks.regular import Parity


def test_the_digest_is_stable():
    """Frozen: a change here means that every stored record becomes stale. Raise a version instead."""
    assert run_spec("parity", "lstm").digest == "5537f745fb0c5e3a"


def test_the_digest_covers_every_part():
    base = run_spec("parity", "lstm")
    others = [
        run_spec("parity", "lstm", seed=1),
        run_spec("dyck-1", "lstm"),
        run_spec("parity", "gru"),
        run_spec("parity", "lstm", model_options={"width": 64}),
        run_spec("parity", "lstm", training={"lr": 2e-3}),
        run_spec("parity", "lstm", testing={"rows": 10}),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 7


def test_the_digest_covers_the_version_of_task_and_model(monkeypatch: pytest.MonkeyPatch):
    before = run_spec("parity", "lstm").digest
    monkeypatch.setattr(Parity, "version", 2)
    mended = run_spec("parity", "lstm").digest
    assert mended != before
    from assay.models.rnn import Lstm

    monkeypatch.setattr(Lstm, "version", 2)
    assert run_spec("parity", "lstm").digest != mended


def test_one_and_one_point_zero_are_one():
    assert (
        run_spec("parity", "lstm", training={"lr": 1}).digest == run_spec("parity", "lstm", training={"lr": 1.0}).digest
    )


def test_a_spec_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        run_spec("parity", "lstm").seed = 3  # type: ignore[misc]


def test_stale_data_is_not_read_as_new():
    data = run_spec("parity", "lstm").plain()
    data["task"]["version"] = 7
    with pytest.raises(BadInput, match="version 7"):
        RunSpec(**data)


def test_bins_follow_the_training_lengths():
    spec = run_spec("parity", "lstm", training={"lengths": [2, 20]})
    assert [(b.name, b.low, b.high) for b in spec.testing.bins] == [
        ("Bin0", 2, 20),
        ("Bin1", 21, 40),
        ("Bin2", 41, 80),
        ("Bin3", 81, 1024),
    ]
    assert [(b.name, b.low, b.high) for b in spec.training.validation] == [("Val0", 2, 20), ("Val1", 21, 30)]


def test_no_validation_length_is_in_the_longest_bins():
    for task in ("parity", "an-bn", "even-a", "multi-query-recall", "bounded-dyck"):
        spec = run_spec(task, "lstm")
        assert max(b.high for b in spec.training.validation) < spec.testing.bins[2].low


def test_index_lookup_is_tested_at_its_full_length():
    spec = run_spec("index-lookup", "transformer", task_options={"positions": 30})
    assert [(b.low, b.high) for b in spec.testing.bins] == [(11, 31), (31, 31)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "partiy"}, "did you mean 'parity'"),
        ({"model": "lstmm"}, "did you mean 'lstm'"),
        ({"training": {"stps": 3}}, "did you mean 'steps'"),
        ({"training": {"steps": "many"}}, "valid integer"),
        ({"training": {"steps": 0}}, "greater than or equal to 1"),
        ({"training": {"lr": -1.0}}, "greater than 0"),
        ({"training": {"lengths": [-3, 5]}}, "at least 1"),
        ({"training": {"lengths": [5, 3]}}, "shortest first"),
        ({"training": {"lengths": 5}}, "two whole numbers"),
        ({"testing": {"rows": 0}}, "greater than or equal to 1"),
        ({"testing": {"bins": [{"name": "Bin0", "low": 9, "high": 3}]}}, "wrong order"),
        ({"testing": {"bins": []}}, "at least 1 item"),
        ({"training": {"validation": []}}, "at least 1 item"),
        ({"testing": {"bins": [{"name": "B", "low": 2, "high": 3}] * 2}}, "two bins have the same name"),
        ({"training": {"lengths": [2, 10**9]}}, "at most 100,000"),
        ({"training": {"lr": float("inf")}}, "finite"),
        ({"task": "regex", "task_options": {"pattern": "a"}}, "regex has no input of length 2 to 50"),
        ({"model": "linear-transformer", "model_options": {"features": "elu", "convention": "papre"}}, "'paper'"),
        ({"task": "os:path"}, "is not a task"),
        ({"task": "builtins:dict"}, "is not a task"),
        ({"task": "assay.tasks.task:Task"}, "is not a task"),
        ({"model": "math:pi"}, "is not a model"),
        ({"model": "hybrid", "model_options": {"mixers": [{"kind": "os:path"}]}}, "is not a mixer"),
        ({"model_options": {"widht": 3}}, "did you mean 'width'"),
        ({"model": "transformer", "model_options": {"width": 30}}, "28 or 32 would be"),
        ({"model": "transformer", "model_options": {"positions": "learned", "longest": 64}}, "1024 tokens are beyond"),
        ({"task": "even-a", "training": {"lengths": [3, 3]}}, "no input of length 3"),
        ({"task_options": {"n": 3}}, "has no field 'n'"),
        ({"task": "nowhere.at.all:Task"}, "cannot import"),
        ({"model": "assay.rng:Nothing"}, "has no 'Nothing'"),
        ({"seed": -1}, "greater than or equal to 0"),
        ({"seed": 2**63}, "less than"),
    ],
)
def test_bad_input_is_told_in_one_line(changes: dict[str, Any], said: str):
    asked = {"task": "parity", "model": "lstm", **changes}
    with pytest.raises(BadInput) as caught:
        run_spec(**asked)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_digest_is_that_of_the_plain_data_for_every_seed():
    spec = run_spec("parity", "lstm")
    for seeded in (spec, spec.with_seed(3), spec.with_seed(3).with_seed(2**63 - 1), run_spec("parity", "lstm", seed=3)):
        assert seeded.digest == digest(seeded.plain())
    changed = spec.with_seed(3).model_copy(update={"training": spec.training.model_copy(update={"lr": 0.5})})
    assert changed.digest == digest(changed.plain()) != spec.with_seed(3).digest
