"""Two rules for the same runs: the published one and ours."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from assay.analysis.rules import (
    SHARES,
    Extrapolation,
    Seeds,
    by_two_rules,
    chosen_by_validation,
    extrapolation,
    judged,
    learned,
    reached,
)
from assay.findings import Expectation, Finding
from assay.record import Certified, OtherState, Point, ProbeScore, Probing, Record, Score
from assay.spec import run_spec


def score(number: int, sequences: float) -> Score:
    return Score(bin=f"Bin{number}", rows=100, shared=0, sequences=sequences, answers=1, favourite=0.5, lengths=())


def record(
    seed: int,
    *last: float,
    watched: tuple[float, ...] = (),
    best: tuple[float, ...] = (),
    valid: float = 1.0,
    lr: float = 1e-3,
    wrong: str = "",
) -> Record:
    """A run with these shares of right sequences in its bins, by the state that is tested."""
    spec = run_spec("parity", "gru", seed=seed, training={"lr": lr})
    states = [
        OtherState(
            name=name,
            step=50,
            verdict="solved" if min(shares) == 1 else "censored",
            scores=tuple(score(i, share) for i, share in enumerate(shares)),
            first_perfect=50 if name == "watched" and shares[:2] == (1.0, 1.0) else None,
            probing=Probing(probes=1, scores=(), seconds=0.1) if min(shares) == 1 else None,
        )
        for name, shares in (("watched", watched), ("best", best))
        if shares
    ]
    probe = ProbeScore(name="runs", rows=9, wrong=int(bool(wrong)), length=len(wrong) or None, word=wrong)
    solved = bool(last) and min(last) == 1
    return Record(
        digest=spec.digest,
        spec=spec.plain(),
        scores=tuple(score(i, share) for i, share in enumerate(last)),
        curve=(Point(step=100, loss=0.1, sequences={"Val0": valid}, answers={"Val0": valid}),),
        verdict="diverged" if not last else "refuted" if solved and wrong else "solved" if solved else "partly solved",
        stopped="diverged" if not last else "steps",
        states=tuple(states),
        probing=Probing(probes=1, scores=(probe,), seconds=0.1) if wrong or solved else None,
    )


def test_a_model_reaches_what_its_best_watched_state_does():
    assert reached([record(0, 1.0, 1.0)]) is None, "what was not watched says nothing"
    runs = [
        record(0, 1.0, 0.2, watched=(1.0, 0.6, 0.0)),
        record(1, 0.1, 0.1, watched=(0.9, 0.65, 0.3)),
        record(2, 1.0, 1.0),
    ]
    best = reached(runs)
    assert best
    assert (best.record.seed, best.accuracy(), best.perfect, best.runs) == (0, 0.6, 0, 2), (
        "the mean of both bins decides"
    )
    diverged = record(3, watched=(1.0, 1.0))
    best = reached([*runs, diverged])
    assert best
    assert (best.record, best.accuracy(), best.perfect) == (diverged, 1.0, 1), "a run that diverged later counts"


@pytest.mark.parametrize(
    ("count", "verdict"),
    [(10, "learns"), (9, "learns"), (8, "undecided"), (2, "undecided"), (1, "fails"), (0, "fails")],
)
def test_the_interval_decides_whether_a_model_learns(count: int, verdict: str):
    assert Seeds(count, 10).verdict == verdict


def test_three_seeds_decide_nothing():
    assert {Seeds(count, 3).verdict for count in range(4)} == {"undecided"}


def test_seeds_are_counted_at_every_share_and_in_both_states():
    runs = [record(0, 1.0, 0.95, best=(1.0, 1.0)), record(1, 0.99, 0.91, best=(1.0, 0.2)), record(2)]
    assert [learned(runs, share).learned for share in SHARES] == [2, 1, 0, 0]
    assert [learned(runs, share, state="best").learned for share in SHARES] == [1, 1, 1, 1]
    assert [learned(runs, share, up_to=1).learned for share in SHARES] == [2, 2, 2, 1]
    assert learned(runs, 0.9).seeds == 3, "a run that diverged is a seed"


def test_extrapolation_is_of_the_seeds_that_are_right_in_the_first_two_bins():
    runs = [
        record(0, 1.0, 1.0, 1.0),
        record(1, 1.0, 1.0, 1.0, wrong="abababab"),
        record(2, 1.0, 1.0, 0.9, wrong="aab"),
        record(3, 1.0, 0.9, 1.0, wrong="a"),
    ]
    result = extrapolation(runs)
    assert (result.learned, result.longer, result.probed, result.shortest_wrong) == (3, 2, 1, "aab")
    unprobed = extrapolation([runs[0].model_copy(update={"probing": None})])
    assert (unprobed.longer, unprobed.probed, unprobed.unknown) == (1, 0, True)
    assert not result.unknown


def test_certificates_count_for_the_state_that_they_are_about():
    proof = Certified(method="closure", outcome="proved", states=4)
    refutation = Certified(method="search", outcome="refuted", length=3, word="abb")
    right = record(0, 1.0, 1.0, 1.0, best=(1.0, 1.0, 1.0))
    unprobed = right.model_copy(update={"probing": None, "certified": (proof,)})
    assert extrapolation([unprobed]) == Extrapolation(1, 1, 1, 1, "", unknown=False)
    refuted = right.model_copy(update={"certified": (refutation,)})
    assert extrapolation([refuted]) == Extrapolation(1, 1, 0, 0, "abb", unknown=False)
    of_rounded = refutation.model_copy(update={"numbers": "fixed:1.2"})
    assert extrapolation([right.model_copy(update={"certified": (of_rounded,)})]).probed == 1
    for less in ({"length": 10}, {"numbers": "fixed:1.2"}):
        certified = (proof.model_copy(update=less),)
        assert extrapolation([right.model_copy(update={"certified": certified})]).proved == 0
    assert extrapolation([refuted], "best").probed == 1, "it has other weights"
    same = [refuted.states[0].model_copy(update={"weights_sha256": "f"})]
    both = refuted.model_copy(update={"weights_sha256": "f", "states": tuple(same)})
    assert extrapolation([both], "best").probed == 0


def validated(lr: float, *checks: tuple[float, ...]) -> list[Record]:
    """A setting: for each seed, its validation at one check after the other."""
    return [
        record(seed, 1.0, 1.0, lr=lr, best=(1.0, 1.0)).model_copy(
            update={"curve": tuple(Point(step=i, loss=0, sequences={"Val0": v}, answers={}) for i, v in enumerate(row))}
        )
        for seed, row in enumerate(checks)
    ]


def test_mean_validation_at_the_best_check_chooses_the_rate():
    fast, slow = validated(1e-2, (1.0, 0.2), (0.0, 0.0)), validated(1e-3, (0.6, 0.0), (0.6, 0.0))
    assert [r.rate for r in chosen_by_validation([fast, slow])] == [1e-3, 1e-3], "one solved seed does not outweigh two"
    assert [r.seed for r in chosen_by_validation([list(reversed(slow)), fast])] == [0, 1]
    sooner = validated(3e-3, (0.6, 0.6), (0.6, 0.0))
    assert chosen_by_validation([slow, sooner])[0].rate == 3e-3, "what learns sooner and loses less"
    assert chosen_by_validation([validated(3e-3, (0.6, 0.0), (0.6, 0.0)), slow])[0].rate == 1e-3
    assert chosen_by_validation([]) == ()
    last = [
        [r.model_copy(update={"states": ()}) for r in runs]
        for runs in (validated(1e-2, (1, 0.1)), validated(1e-3, (0, 0.2)))
    ]
    assert chosen_by_validation(last)[0].rate == 1e-3, "if the best states were not tested, those at the end decide"


def test_a_finding_is_judged_by_both_rules():
    digests = {
        "gru": {"parity": [f"{seed}" for seed in range(8)]},
        "gru, wide": {"parity": ["w"]},
        "elman": {"parity": ["e"]},
    }
    runs = [
        record(seed, 1.0, 0.5, best=(1.0, 1.0), watched=(1.0, 0.9)).model_copy(update={"digest": f"{seed}"})
        for seed in range(8)
    ]
    wide = record(0, 0.0, 0.0, watched=(1.0, 1.0)).model_copy(update={"digest": "w", "parameters": 5})
    wider = {"gru": ("gru", "gru, wide")}
    learns = Expectation(variant="gru", task="parity", outcome="learns")
    fails = Expectation(variant="elman", task="parity", outcome="fails")
    finding = Finding(name="f", says="They do.", source="p. 1", expects=(learns, fails))

    def result(configurations: Mapping[str, tuple[str, ...]], *records: Record) -> tuple[list[bool | None], ...]:
        (one,) = judged([finding], by_two_rules(digests, configurations, records))
        return one.reachable, one.reliable, one.extrapolates

    assert result({}, *runs) == ([False, None], [True, None], [True]), "eight of eight in their best state"
    assert result(wider, *runs, wide) == ([True, None], [True, None], [True]), (
        "a configuration reaches what the first did not"
    )
    assert result({}, *runs[:7]) == ([None, None], [None, None], [None]), "what no run reached is known after all runs"
    perfect = record(0, 1.0, 1.0, watched=(1.0, 1.0)).model_copy(update={"digest": "0"})
    assert result({}, perfect) == ([True, None], [None, None], [None]), "what a run reached is known at once"
    bad = record(0, 0.5, 0.0, watched=(0.9, 0.1)).model_copy(update={"digest": "e"})
    assert result({}, bad) == ([None, True], [None, None], [None]), "one seed decides nothing"
    cell = by_two_rules(digests, wider, [*runs, wide])["gru", "parity"]
    assert cell.reached
    assert (cell.reached.record.digest, cell.reached.runs) == ("w", 9)
    assert cell.best_run
    assert (cell.best_run.accuracy(), cell.best_run.runs) == (0.9, 8), "of this variant alone"
    assert by_two_rules(digests, wider, runs[:7])["gru", "parity"].best_run is None
    decisive = {("gru", "parity"): ("gru", "gru, wide")}
    cell = by_two_rules(digests, wider, runs, decisive)["gru", "parity"]
    assert (cell.reached, cell.accuracy(1)) == (None, 1.0), "out of reach is only what decisive runs do not reach"
    assert by_two_rules(digests, wider, [*runs, wide], decisive)["gru", "parity"].reached
    assert (cell.accuracy(1), cell.accuracy(1, "last")) == (1.0, 0.5)
    untested = [record(seed, 1.0, 0.5).model_copy(update={"digest": f"{seed}"}) for seed in range(8)]
    cell = by_two_rules(digests, {}, untested)["gru", "parity"]
    assert (cell.state, cell.accuracy(1), cell.reached) == ("last", 0.5, None), "no further state was tested"
