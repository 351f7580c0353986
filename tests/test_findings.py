"""Findings: judged by records, chosen by validation alone."""

from __future__ import annotations

import pytest

from assay.findings import Expectation, Finding, chosen, judge, right_up_to
from assay.record import Point, Record, Score
from assay.spec import run_spec
from assay.studies import study_named

BINS = [{"name": f"Bin{i}", "low": 10 * i + 2, "high": 10 * i + 10} for i in range(3)]


def record(
    seed: int, right: int, model: str = "gru", valid: float = 1.0, steps: int = 300, **training: object
) -> Record:
    """A run on parity whose first `right` of three test bins are perfect."""
    spec = run_spec("parity", model, seed=seed, training={"lengths": [2, 10], **training}, testing={"bins": BINS})
    scores = tuple(
        Score(bin=f"Bin{i}", rows=4, shared=0, sequences=float(i < right), answers=1, favourite=0.5, lengths=())
        for i in range(3)
    )
    point = Point(step=steps, loss=0.1, sequences={"Val0": valid}, answers={"Val0": valid})
    stopped = "solved" if valid == 1 else "steps"
    said = {"verdict": "solved" if right == 3 else "partly solved", "stopped": stopped, "steps": steps}
    return Record(digest=spec.digest, spec=spec.plain(), scores=scores, curve=(point,), **said)


def finding(**outcomes: str) -> Finding:
    expects = tuple(
        Expectation(task="parity", model=model.replace("_", "-"), outcome=outcome)
        for model, outcome in outcomes.items()
    )
    return Finding(name="f", says="They do.", source="somewhere", expects=expects)


@pytest.mark.parametrize(
    ("right", "outcome", "verdict"),
    [
        ([2, 2, 3, 0], "solves", "holds"),
        ([2, 1, 3, 0], "solves", "holds"),
        ([2, 1, 1, 0], "solves", "in part"),
        ([1, 1, 1, 0], "solves", "does not hold"),
        ([1, 1, 1, 0], "fails", "holds"),
        ([2, 1, 1, 0], "fails", "in part"),
        ([2, 2, 1, 0], "fails", "does not hold"),
    ],
)
def test_a_verdict_follows_from_the_seeds_that_are_right_up_to_bin1(right: list[int], outcome: str, verdict: str):
    (judged,) = judge([finding(gru=outcome)], [record(seed, r) for seed, r in enumerate(right)])
    assert judged.verdict == verdict
    assert judged.evidence[0].right == sum(r >= 2 for r in right)


def test_a_finding_about_several_models_takes_all_of_them():
    records = [record(0, 3), record(0, 0, "lstm")]
    assert judge([finding(gru="solves", lstm="fails")], records)[0].verdict == "holds"
    assert judge([finding(gru="solves", lstm="solves")], records)[0].verdict == "in part"
    assert judge([finding(gru="fails", lstm="solves")], records)[0].verdict == "does not hold"
    assert judge([finding(gru="solves", elman="solves")], records)[0].verdict == "not tested"


def test_validation_chooses_and_test_bins_do_not():
    liked = [record(seed, 0, lr=0.01) for seed in range(2)]
    better = [record(seed, 3, valid=0.9, lr=0.001) for seed in range(2)]
    assert chosen([*better, *liked], "parity", "gru") == tuple(liked), "perfect on validation, wrong on every test bin"
    sooner = [record(seed, 0, lr=0.003, steps=200) for seed in range(2)]
    assert chosen([*liked, *sooner], "parity", "gru") == tuple(sooner)
    half = [record(0, 3, lr=0.1), record(1, 3, valid=0.5, lr=0.1)]
    assert chosen([*liked, *half], "parity", "gru") == tuple(liked)
    assert chosen(liked, "dyck-1", "gru") == ()


def test_right_up_to_a_bin_means_all_before_it_too():
    assert [right_up_to(record(0, 2), f"Bin{i}") for i in range(3)] == [True, True, False]
    holed = record(0, 3).model_copy(update={"scores": record(0, 3).scores[1:]})
    assert not right_up_to(holed, "Bin1"), "a bin that was not tested is not right"


def test_the_first_paper_s_study_is_whole_and_its_findings_are_about_its_runs():
    study = study_named("irie2023")
    digests = [run.digest for run in study.runs]
    assert len(set(digests)) == len(digests) == 7 * 8 * 4 * 10
    assert sorted(digests) == sorted(run.digest for piece in study.pieces.values() for run in piece)
    assert all(max(window.high for window in run.testing.bins) >= 1000 for run in study.runs)
    pairs = {(run.task.kind, run.model.name) for run in study.runs}
    assert {(e.task, e.model) for f in study.findings for e in f.expects} <= pairs
    assert all(judged.verdict == "not tested" for judged in judge(study.findings, []))
