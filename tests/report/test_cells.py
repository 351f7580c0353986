"""Cells: grouping, intervals, means, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from assay.analysis.cells import bins, cells, differing_fields, wilson
from assay.analysis.refutations import refutations
from assay.record import Certified, LengthScore, ProbeScore, Probing, Record, Score, Verdict
from assay.report.text import percent
from assay.spec import run_spec

CLEAN = (ProbeScore(name="lassos", rows=16, wrong=0),)


def record(
    seed: int, verdict: Verdict = "solved", share: float = 1.0, probes: tuple[ProbeScore, ...] = CLEAN, **spec: Any
) -> Record:
    described = run_spec("parity", "gru", seed=seed, **spec)
    row = LengthScore(length=9, rows=4, sequences=share, answers=share)
    score = Score(bin="Bin0", rows=4, shared=0, sequences=share, answers=share, favourite=0.5, lengths=(row,))
    return Record(
        digest=described.digest,
        spec=described.plain(),
        verdict=verdict,
        stopped="diverged" if verdict == "diverged" else "error" if verdict == "failed" else "solved",
        steps=900,
        solved_at=100 * (seed + 1) if verdict == "solved" else None,
        scores=() if verdict in ("diverged", "failed") else (score,),
        probing=Probing(probes=1, seconds=0.1, scores=probes) if probes else None,
        seconds={"train": 2.0},
        first_failing_length=None if share == 1 else 9,
    )


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(0, 3, 0.0, 0.5615), (3, 3, 0.4385, 1.0), (5, 10, 0.2366, 0.7634), (1, 10, 0.0179, 0.4042)],
)
def test_wilson_against_published_values(k: int, n: int, low: float, high: float):
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) == (0, 1)


def test_seeds_are_gathered_and_settings_told_apart():
    found = cells([record(1), record(0), record(0, training={"lr": 0.01}), record(0, model_options={"width": 8})])
    assert [len(cell.records) for cell in found] == [2, 1, 1]
    assert [r.seed for r in found[0].records] == [0, 1]
    assert [cell.setting for cell in found] == ["width=128 lr=0.001", "width=128 lr=0.01", "width=8 lr=0.001"]
    assert cells([record(0), record(1)])[0].setting == ""


def test_settings_in_words_and_not_in_lists():
    data = [
        {"mixers": [{"kind": "gru", "heads": 2}], "bins": [[5, 9]], "width": 8},
        {"mixers": [{"kind": "gru", "heads": 2}, {"kind": "lstm"}], "bins": [[5, 17]], "width": 8},
    ]
    assert differing_fields(data) == ["layers=1 mixer=gru heads=2", "layers=2 mixer=gru,lstm heads=2,-"]
    assert differing_fields([{"bins": [[5, 9]]}, {"bins": [[5, 17]]}]) == ["bins=[[5, 9]]", "bins=[[5, 17]]"]


def test_what_a_cell_says():
    cell = cells([record(0), record(1, "partly solved", 0.5), record(2, "diverged"), record(3)])[0]
    assert len(cell.solved) == 2
    assert cell.verdicts == "2 solved, 1 partly, 1 diverged"
    assert cell.accuracy("Bin0") == pytest.approx((1 + 0.5 + 0 + 1) / 4), "a divergence counts as 0"
    assert cell.accuracy("Bin7") is None
    assert cell.steps_to_solve == 250
    assert cell.seconds_to_solve == 2
    assert cell.first_failing_length == 9
    assert cell.plain()["verdicts"] == {"solved": 2, "partly solved": 1, "diverged": 1}


def wrong_probe(length: int, word: str) -> tuple[ProbeScore, ...]:
    return (*CLEAN, ProbeScore(name="runs", rows=8, wrong=1, length=length, word=word))


def test_the_rungs_of_a_verdict():
    """Old records were not probed; a proof counts above the probes; a refuted run is on no rung."""
    old, probed, refuted = record(0, probes=()), record(1), record(2, "refuted", probes=wrong_probe(26, "1 0^25"))
    exhaustive = [Certified(method="exhaustive", outcome="proved", length=n) for n in (9, 12)]
    exact = record(3).model_copy(update={"certified": tuple(exhaustive)})
    proved = record(4).model_copy(update={"certified": (*exhaustive, Certified(method="closure", outcome="proved"))})
    rungs = ["random", "probed", "", "exhaustive to 12", "proved"]
    assert [each.rung for each in (old, probed, refuted, exact, proved)] == rungs
    cell = cells([old, probed, refuted, exact, proved])[0]
    assert (len(cell.solved), len(cell.right_on_random)) == (4, 5)
    assert cell.plain()["rungs"] == {rung: 1 for rung in rungs if rung}
    assert cell.verdicts == "1 solved (not probed), 1 solved, 1 refuted, 1 exhaustive to 12, 1 proved"


def test_the_shortest_wrong_input_is_shown():
    wrong = [(26, "1 0^25"), (13, "1^13")]
    refuted = [record(seed, "refuted", probes=wrong_probe(*found)) for seed, found in enumerate(wrong)]
    words = [each.model_copy(update={"first_failing_length": wrong[each.seed][0]}) for each in refuted]
    cell = cells(words)[0]
    assert (cell.wrong_word, cell.first_wrong(12), cell.first_wrong(3)) == ("1^13", "1^13", "13")
    shorter = record(2, "censored", 0.5)  # wrong on a random input of length 9, whose word is not known
    assert cells([*words, shorter])[0].first_wrong(12) == "9"
    found = refutations(cell)
    assert (found.runs, found.right_on_random, found.refuted, found.within_training) == (2, 2, 2, 2)
    assert (found.median_length, found.commonest_word) == (19.5, "1 0^n")


def test_a_run_that_certify_refutes_is_not_solved():
    found = Certified(method="lasso", outcome="refuted", length=5861, word="1 0^5860")
    cell = cells([record(0).model_copy(update={"certified": (found,)})])[0]
    assert (len(cell.solved), len(cell.right_on_random), cell.verdicts) == (0, 1, "refuted")
    assert (cell.first_failing_length, cell.first_wrong(12)) == (5861, "1 0^5860")
    rounded = found.model_copy(update={"numbers": "fixed:2.2"})
    assert cells([record(0).model_copy(update={"certified": (rounded,)})])[0].verdicts == "solved"


def test_an_error_is_left_out_of_the_mean_but_not_of_the_count():
    cell = cells([record(0), record(1, "failed")])[0]
    assert cell.accuracy("Bin0") == 1
    assert len(cell.records) == 2
    assert cell.interval == wilson(1, 2)


def test_bins_are_in_order():
    assert bins(cells([record(0)])) == ["Bin0", "Bin1", "Bin2", "Bin3"]


def test_the_order_of_bins_is_that_of_their_lengths():
    """Each task has its own: the second bin of one may be longer than the third of another."""
    ends = {"Bin0": 10, "Bin1": 20, "Bin2": 30, "Bin10": 110}
    some = [{"name": name, "low": 2, "high": high} for name, high in reversed(ends.items())]
    few = [{"name": "Bin0", "low": 2, "high": 500}, {"name": "Bin1", "low": 2, "high": 600}]
    of = cells([record(0, testing={"bins": few}), record(0, testing={"bins": some})])
    assert bins(of) == list(ends)


def test_a_hundred_means_all():
    assert percent(1.0) == "100"
    assert percent(0.99999) == "99.9"
