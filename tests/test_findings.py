"""Findings: judged by records, chosen by validation alone."""

from __future__ import annotations

import pytest

from assay.analysis.findings import judge
from assay.analysis.settings import chosen, learned_at, learned_up_to, perfect_up_to, settings
from assay.errors import BadInput
from assay.findings import Expectation, Finding, Outcome
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
    return Record(
        digest=spec.digest,
        spec=spec.plain(),
        scores=scores,
        curve=(point,),
        verdict="solved" if right == 3 else "partly solved",
        stopped="solved" if valid == 1 else "steps",
        steps=steps,
    )


def finding(**outcomes: Outcome) -> Finding:
    expects = tuple(
        Expectation(task="parity", variant=variant, outcome=outcome) for variant, outcome in outcomes.items()
    )
    return Finding(name="f", says="They do.", source="somewhere", expects=expects)


@pytest.mark.parametrize(
    ("right", "outcome", "status"),
    [
        ([2, 2, 3, 0], "learns", "holds"),
        ([2, 1, 3, 0], "learns", "holds"),
        ([2, 1, 1, 0], "learns", "in part"),
        ([1, 1, 1, 0], "learns", "does not hold"),
        ([1, 1, 1, 0], "fails", "holds"),
        ([2, 1, 1, 0], "fails", "in part"),
        ([2, 2, 1, 0], "fails", "does not hold"),
    ],
)
def test_the_status_follows_from_the_seeds_that_are_perfect_up_to_bin1(right: list[int], outcome: Outcome, status: str):
    (judged,) = judge([finding(gru=outcome)], {"gru": [record(seed, r) for seed, r in enumerate(right)]})
    assert judged.status() == status
    assert judged.evidence[0].count() == sum(r >= 2 for r in right)


def test_a_finding_about_several_variants_takes_all_of_them():
    records = {"gru": [record(0, 3)], "narrow": [record(0, 0)], "unborn": []}
    assert judge([finding(gru="learns", narrow="fails")], records)[0].status() == "holds"
    assert judge([finding(gru="learns", narrow="learns")], records)[0].status() == "in part"
    assert judge([finding(gru="fails", narrow="learns")], records)[0].status() == "does not hold"
    assert judge([finding(gru="learns", unborn="learns")], records)[0].status() == "under way"
    assert judge([finding(unborn="learns")], records)[0].status() == "not tested"
    with pytest.raises(BadInput, match="'grue', which is not a variant; did you mean 'gru'"):
        judge([finding(grue="learns")], records)


@pytest.mark.parametrize(("outcome", "end"), [("diverges", "diverged"), ("collapses", "collapsed")])
def test_divergence_and_collapse_are_counted_over_all_settings(outcome: Outcome, end: str):
    good = [record(seed, 3, lr=0.001) for seed in range(9)]
    bad = record(0, 0, valid=0.0, lr=0.1).model_copy(update={"verdict": end})
    (judged,) = judge([finding(gru=outcome)], {"gru": [*good, bad]})
    assert (judged.status(), judged.evidence[0].count(), len(judged.evidence[0].runs)) == ("holds", 1, 10)
    (judged,) = judge([finding(gru=outcome)], {"gru": [*good, record(9, 3, lr=0.001), bad]})
    assert judged.status() == "does not hold", "one of eleven is less than a tenth"
    assert judge([finding(gru=outcome)], {"gru": []})[0].status() == "not tested"


def test_without_a_task_runs_on_all_tasks_are_counted():
    pooled = Expectation(variant="gru", outcome="diverges")
    other = record(0, 0).model_copy(update={"spec": run_spec("dyck-1", "gru").plain(), "verdict": "diverged"})
    runs = {"gru": [record(0, 3), other], "narrow": [other]}
    (judged,) = judge([Finding(name="f", says="", source="", expects=(pooled,))], runs)
    assert (judged.evidence[0].count(), len(judged.evidence[0].runs)) == (1, 2)
    with pytest.raises(BadInput, match="needs a task"):
        Expectation(variant="gru", outcome="learns")


def test_validation_chooses_and_test_bins_do_not():
    liked = [record(seed, 0, lr=0.01) for seed in range(2)]
    better = [record(seed, 3, valid=0.9, lr=0.001) for seed in range(2)]
    assert chosen([*better, *liked]) == tuple(liked), "perfect on validation, wrong on every test bin"
    sooner = [record(seed, 0, lr=0.003, steps=200) for seed in range(2)]
    assert chosen([*liked, *sooner]) == tuple(sooner)
    assert chosen([*liked, *(record(seed, 3, lr=0.001) for seed in range(2))])[0].spec["training"]["lr"] == 0.001
    half = [record(0, 3, lr=0.1), record(1, 3, valid=0.5, lr=0.1)]
    assert chosen([*liked, *half]) == tuple(liked)
    assert chosen([]) == ()


def test_how_soon_is_that_of_the_seeds_that_solved():
    quick = [record(0, 0, lr=0.01, steps=200), record(1, 0, valid=0.5, lr=0.01, steps=5000)]
    slow = [record(0, 0, lr=0.001, steps=300), record(1, 0, valid=0.5, lr=0.001, steps=400)]
    assert chosen([*slow, *quick]) == tuple(quick), "a seed that failed fast is no reason"
    unsolved = [record(0, 0, valid=0.5, lr=lr, steps=steps) for lr, steps in ((0.01, 100), (0.001, 900))]
    assert chosen(unsolved) == (unsolved[1],), "with none that solved, the lower rate"


def test_an_expectation_is_about_its_task_alone():
    other = Expectation(task="dyck-1", variant="gru", outcome="learns")
    (judged,) = judge([Finding(name="f", says="", source="", expects=(other,))], {"gru": [record(0, 3)]})
    assert judged.evidence[0].runs == ()


def test_settings_differ_in_more_than_the_seed():
    mine = [record(1, 3), record(0, 3), record(0, 3, lr=0.01)]
    assert settings(mine) == [mine[:2], mine[2:]]


def test_nearly_all_is_learned_and_not_perfect():
    def scored(share: float) -> Record:
        whole = record(0, 3)
        scores = tuple(score.model_copy(update={"sequences": share}) for score in whole.scores)
        return whole.model_copy(update={"scores": scores})

    assert [learned_up_to(scored(share), "Bin2") for share in (0.94, 0.95, 1.0)] == [False, True, True]
    assert [perfect_up_to(scored(share), "Bin2") for share in (0.94, 0.95, 1.0)] == [False, False, True]
    (judged,) = judge([finding(gru="learns")], {"gru": [scored(0.95)]})
    assert (judged.status(), judged.status(1.0)) == ("holds", "does not hold")
    assert (judged.evidence[0].count(), judged.evidence[0].count(1.0)) == (1, 0)


def test_learned_at_is_the_first_check_with_nearly_all_of_every_bin():
    shares = [(0.99, 0.2), (0.94, 1.0), (0.95, 0.96), (0.1, 0.1), (1.0, 1.0)]
    curve = checks(*shares)
    assert learned_at(record(0, 0).model_copy(update={"curve": curve})) == 200
    assert learned_at(record(0, 0).model_copy(update={"curve": curve}), 1.0) == 400
    assert learned_at(record(0, 3).model_copy(update={"curve": curve[:2]})) is None


def checks(*shares: tuple[float, float]) -> tuple[Point, ...]:
    return tuple(
        Point(step=100 * i, loss=1.0, sequences={"Val0": a, "Val1": b}, answers={}) for i, (a, b) in enumerate(shares)
    )


def test_what_was_learned_at_some_check_and_lost_again():
    """In both bins at once, by a seed of the setting that is chosen."""
    lost, never, apart = ((0.9, 0.2), (1.0, 0.95), (0.3, 0.3)), ((0.9, 0.9), (0.3, 0.3)), ((1.0, 0.9), (0.9, 1.0))
    runs = [record(seed, 0).model_copy(update={"curve": checks(*c)}) for seed, c in enumerate((lost, never, apart))]
    other = record(0, 0, valid=0.0, lr=0.1).model_copy(update={"curve": checks((1.0, 1.0), (0.0, 0.0))})
    (judged,) = judge([finding(gru="learns")], {"gru": [*runs, other]})
    assert len(judged.evidence[0].runs) == 3
    assert judged.evidence[0].count() == 0
    assert (judged.evidence[0].at_some_check, judged.evidence[0].as_tested) == (1, 0)
    again = [run.model_copy(update={"tested_at": 100}) for run in runs]
    assert judge([finding(gru="learns")], {"gru": again})[0].evidence[0].as_tested == 1


def test_a_setting_is_chosen_by_the_states_that_were_tested():
    """Of two that do not solve, the one whose best check was better, although it ended worse."""
    best = [record(seed, 0, lr=0.1) for seed in range(2)]
    best = [r.model_copy(update={"stopped": "steps", "curve": checks((1.0, 0.8), (0.1, 0.1))}) for r in best]
    ends = [record(seed, 0, lr=0.01) for seed in range(2)]
    ends = [r.model_copy(update={"stopped": "steps", "curve": checks((0.9, 0.7), (0.9, 0.7))}) for r in ends]
    assert chosen([*best, *ends]) == tuple(ends)
    kept = [r.model_copy(update={"tested_at": 0}) for r in best]
    assert chosen([*kept, *ends]) == tuple(kept)


def test_perfect_up_to_a_bin_means_all_before_it_too():
    assert [perfect_up_to(record(0, 2), f"Bin{i}") for i in range(3)] == [True, True, False]
    holed = record(0, 3).model_copy(update={"scores": record(0, 3).scores[1:]})
    assert not perfect_up_to(holed, "Bin1"), "a bin that was not tested is not right"
    with pytest.raises(BadInput, match="parity was not tested in 'Bin7'"):
        perfect_up_to(record(0, 3), "Bin7")


def test_the_first_paper_s_study_is_whole_and_what_it_says_is_about_its_runs():
    study = study_named("irie2023")
    digests = {id(run): run.digest for run in study.runs}
    assert len(set(digests.values())) == len(study.runs) == 4730
    for parts in (study.pieces, study.variants):
        assert sorted(id(run) for runs in parts.values() for run in runs) == sorted(digests)
    assert all(max(bin_.high for bin_ in run.testing.bins) >= 1000 for run in study.runs)
    assert {name for comparison in study.comparisons for name in comparison.variants} == set(study.variants)
    asked = {variant: {run.task.kind for run in runs} for variant, runs in study.variants.items()}
    for comparison in study.comparisons:
        assert all(set(comparison.tasks) <= asked[variant] for variant in comparison.variants)
    pairs = {(run.task.kind, variant) for variant, runs in study.variants.items() for run in runs}
    assert {(e.task, e.variant) for f in study.findings for e in f.expects if e.task} <= pairs
    nothing = dict.fromkeys(study.variants, ())
    assert all(judged.status() == "not tested" for judged in judge(study.findings, nothing))
