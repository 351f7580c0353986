"""Proofs of machines that are right, and exact shortest words for their broken twins."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from assay.certify import search as search_module
from assay.certify.machine import StateMachine, wrong
from assay.certify.methods import by_closure, by_exhaustion, by_lassos, by_linear, certify
from assay.certify.repair import _loss
from assay.certify.search import Limits, PairSet, search
from assay.certify.table import LEFT_OUT, table_of
from assay.errors import BadInput
from assay.models import named_model
from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.task import IGNORE
from assay.tasks.words import readable
from assay.theory.registry import named_claim

from .modules import BatchSign, Counting, Sign

PARITY = table_of(named_task("parity"))
SHORT = Limits(seconds=5, states=20_000)
ZEROS = (1, 1, 1, 1)  # 0^4


def sign(**options: float) -> Sign:
    return Sign(3, 0, 2, **options)


@pytest.mark.parametrize(
    ("claim", "pairs"), [("parity-delta-net", 2), ("parity-lstm", 2), ("parity-srwm", 4), ("parity-elman", 3)]
)
def test_known_constructions_are_proved_without_rounding(claim: str, pairs: int):
    model = named_claim(claim).build(16)  # type: ignore[attr-defined]
    (result,) = certify(model, PARITY, "exhaustive", limits=SHORT)
    assert (result.outcome, result.length, result.states) == ("proved", None, pairs)


def test_the_broken_twin_is_refuted_with_the_shortest_word():
    for method, numbers in (("exhaustive", None), ("lasso", None), ("closure", "fixed:2.6")):
        (result,) = certify(sign(decay=0.5), PARITY, method, numbers, SHORT)
        assert (result.outcome, result.word, result.length) == ("refuted", ZEROS, 4)


def test_rounding_can_repair_a_leak_and_can_make_one():
    slow = sign(decay=0.875, threshold=0.3)  # 0.875^10 < 0.3
    assert by_exhaustion(slow, PARITY, SHORT).word == (1,) * 10
    assert by_closure(slow, PARITY, "fixed:2.2", SHORT).outcome == "proved"  # 0.875 is rounded to 1, a tie to even
    result = by_closure(sign(decay=0.5, threshold=0.0), PARITY, "fixed:2.2", SHORT)
    assert result.word == ZEROS  # 1/8 is rounded to 0 after the third token
    assert "without rounding, the model is right on this word" in result.detail


@pytest.mark.parametrize("name", ["lstm", "slstm", "dss", "pd-ssm"])
def test_repair_disturbs_every_number_of_a_state(name: str):
    """Those of a state-space model are complex."""
    model = named_model(name, width=4, layers=1, state={"numbers": "fixed:3.5"}).build(3, 0, 2, Rng.seeded(0))
    inputs, losses = torch.tensor([[1, 2, 1], [2, 2, 1]]), []
    for noise in (0.25, 0.5):
        losses.append(_loss(model, inputs, torch.ones_like(inputs), noise))
    assert torch.stack(losses).isfinite().all()
    assert losses[0] != losses[1]
    losses[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_auto_reports_every_rung_until_a_proof():
    results = certify(sign(decay=0.875, threshold=0.3), PARITY, limits=SHORT)
    assert [(r.method, r.outcome) for r in results][:2] == [("lasso", "refuted"), ("exhaustive", "refuted")]
    assert results[-1].outcome == "proved"
    assert results[-1].rounded


def test_a_limit_leaves_the_length_that_is_complete():
    model: Any = named_model("lstm", width=4).build(3, 0, 2, Rng.seeded(0))
    table = table_of(named_task("dfa", alphabet="ab", table=((0, 0),), accept=(0,)))  # every answer is 1
    with torch.no_grad():
        model.read_out.bias.copy_(torch.tensor([-9.0, 9.0]))
    result = by_exhaustion(model, table, Limits(60, 1000))
    assert (result.outcome, result.length) == ("proved", 9)  # 2^10 - 1 pairs are not more than the limit, 2^11 - 1 are
    assert by_closure(model, table, "fixed:4.20", Limits(60, 1000)).outcome == "open"


def test_lassos_are_settled_for_every_number_of_repetitions():
    result = by_lassos(sign(), PARITY, SHORT)
    assert (result.outcome, result.word) == ("open", ())  # other words may be wrong
    assert "16 of 16 lassos are right" in result.detail


def test_a_step_that_depends_on_its_batch_is_refused():
    with pytest.raises(BadInput, match="the step of the model depends on its batch"):
        certify(BatchSign(3, 0, 2), PARITY, "closure")


def test_a_state_that_grows_has_only_some_methods():
    model = named_model("transformer", width=8, heads=1, layers=1).build(3, 0, 2, Rng.seeded(0))
    with pytest.raises(BadInput, match="grows with the input: method closure does not apply; exhaustive and learn do"):
        certify(model, PARITY, "closure")
    (result,) = certify(model, PARITY, "exhaustive", limits=SHORT)
    for length in range(1, len(result.word) + 1):  # against the plain model on all words
        words = torch.tensor(list(itertools.product((1, 2), repeat=length)))
        right = model(words)[0][:, -1].argmax(-1) == 1 - (words == 2).sum(1) % 2
        assert bool(right.all()) == (length < len(result.word))
    assert not bool(right[words.tolist().index(list(result.word))])
    with pytest.raises(BadInput, match="not a row of"):
        certify(Counting(3, 0, 2), PARITY, "closure")


def test_a_format_that_is_too_coarse_is_bad_input():
    with pytest.raises(BadInput, match=r"fixed:0\.0 is too coarse: rounded, the model is wrong on '0' already"):
        certify(sign(), PARITY, "closure", "fixed:0.0")  # 1 saturates at 0
    two_bs = table_of(named_task("dfa", alphabet="ab", table=((0, 1), (1, 2), (2, 2)), accept=(2,)))
    with pytest.raises(BadInput, match=r"fixed:0\.0 is too coarse: every state is rounded to the same"):
        certify(sign(threshold=0.5), two_bs, "closure", "fixed:0.0")
    with pytest.raises(BadInput, match="not float16"):
        certify(sign(), PARITY, "closure", "float16")


def test_nan_infinity_and_ties_are_wrong_answers():
    logits = torch.tensor([[0.0, 1.0], [1.0, 1.0], [torch.nan, 1.0], [-torch.inf, 1.0], [1.0, 0.0], [1.0, 0.0]])
    answers = torch.tensor([1, 1, 1, 1, 1, IGNORE])
    assert wrong(logits, answers).tolist() == [False, True, True, True, True, False]


def test_nan_in_a_rounded_state_stays_nan():
    machine = StateMachine(sign(), "fixed:2.2")
    codes = machine.codes(torch.tensor([[torch.nan], [9.0], [-9.0], [0.3]], dtype=torch.float64))
    assert codes.flatten().tolist() == [-(2**15), 15, -16, 1]
    logits, after = machine.step(codes, torch.ones(4, dtype=torch.int64))
    assert logits.isnan().any(1).tolist() == [True, False, False, False]
    assert after.flatten().tolist() == [-(2**15), 15, -16, 1]


def test_the_first_wrong_length_of_a_linear_recurrence_is_computed():
    model = sign(decay=0.99, threshold=0.1)
    result = by_linear(model, PARITY, SHORT)
    expected = math.ceil(math.log(0.1) / math.log(0.99))  # n* = log(eps) / log |lambda|
    assert (result.outcome, result.word) == ("refuted", (1,) * expected)
    assert (
        f"computed to be wrong first at length {expected}, where the largest eigenvalue below 1 is 0.99"
        in result.detail
    )
    assert by_linear(sign(), PARITY, SHORT).outcome == "open"
    slow = by_linear(
        sign(decay=1 - 2**-20, threshold=0.1), PARITY, Limits(0.1)
    )  # log(0.1) / log(1 - 2^-20) is 2,414,436
    assert "length 2,414,4" in slow.detail
    assert slow.detail.endswith("not confirmed by running it")
    with pytest.raises(BadInput, match="is not an affine function of the state before"):
        certify(named_model("gru", width=2).build(3, 0, 2, Rng.seeded(0)), PARITY, "linear")


def test_learning_is_conditional_and_finds_wrong_words():
    (result,) = certify(sign(), PARITY, "learn", limits=SHORT)
    assert (result.outcome, result.states, result.word) == ("conditional", 2, ())
    assert result.detail.startswith("equal to parity if the network has at most ")
    (result,) = certify(sign(decay=0.5), PARITY, "learn", limits=SHORT)
    assert (result.outcome, result.word) == ("refuted", ZEROS)


def test_lassos_never_leave_the_domain():
    words = [readable(lasso.word(8), "ab") for lasso in table_of(named_task("abab")).lassos()]
    assert words == ["(a b)^4"]
    late = named_task("regex", pattern="a?" * 20)  # a lasso leaves it at the 21st token
    assert table_of(late).lassos() == []
    assert len(table_of(late, dead=True).lassos()) == 1


# -- the task's table --------------------------------------------------------------------------------------------------


def test_dead_prefixes_are_left_out_unless_asked_for():
    task = named_task("abab")
    assert table_of(task).moves.tolist() == [[1, LEFT_OUT], [LEFT_OUT, 2], [3, LEFT_OUT], [LEFT_OUT, 0]]
    assert table_of(task, dead=True).answers.tolist() == [1, 0, 2, 0, 0]


@pytest.mark.parametrize("name", ["bounded-dyck", "modular-arithmetic", "s3", "flip-flop", "abab", "even-a"])
def test_the_table_is_the_oracle(name: str):
    task = named_task(name)
    table = table_of(task, dead=True)
    for length in range(1, 5):
        words = torch.tensor(list(itertools.product(range(1, len(task.symbols) + 1), repeat=length)))[:500]
        for word, answer in zip(words.tolist(), task.solve(words)[:, -1].tolist(), strict=True):
            asked = task.answer_positions == "everywhere" or task.fits(length)
            assert int(table.answers[table.walk(tuple(word))]) == (answer if asked else IGNORE)


def test_a_task_without_an_automaton_is_bad_input():
    with pytest.raises(BadInput, match="dyck-1 has no finite automaton"):
        table_of(named_task("dyck-1"))


# -- sets of pairs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collides", [False, True])
def test_a_set_of_pairs_is_exact(collides: bool, monkeypatch: pytest.MonkeyPatch):
    if collides:  # the first hash confuses all rows with the same sum
        hashes = PairSet._hashes
        monkeypatch.setattr(PairSet, "_hashes", lambda s, rows: hashes(s, rows) if s._seed else rows.long().sum(1))
    pairs, known = PairSet(3, torch.int16, torch.device("cpu")), set[tuple[int, ...]]()
    for level in range(12):
        rows = Rng.seeded(level, "rows").rows(300).integers(3, 8 + level).to(torch.int16)
        expected = [i for i, row in enumerate(map(tuple, rows.tolist())) if not (row in known or known.add(row))]
        assert pairs.add(rows).tolist() == expected
    assert set(map(tuple, pairs.rows.tolist())) == known


def test_words_are_found_across_chunks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_module, "CHUNK", 3)
    for model, word in ((sign(decay=0.5), ZEROS), (sign(decay=0.5, threshold=0.3), (1, 1))):
        assert search(StateMachine(model, "float32"), PARITY, SHORT).word == word
