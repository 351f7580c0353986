"""Counter languages by the linear Transformer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.theory.claim import compared
from assay.theory.constructions.counters import AnBnCnCounter, AnBnCounter, Counter, Dyck1Counter, ShuffleCounter

from .cases import examine, mixer

Pieces = Callable[[int], list[tuple[str, int]]]
CLAIMS = {AnBnCounter(): 9, AnBnCnCounter(): 12, Dyck1Counter(): 8, ShuffleCounter(): 12, ShuffleCounter(k=4): 20}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.task(2).kind}-{CLAIMS[claim]}")
def test_right_at_a_length_of_six_hundred(claim: Counter):
    result = claim.check(600, inputs=32)
    assert result.holds
    assert result.margin == 1
    assert result.width == CLAIMS[claim]


def forgetful(model: Model) -> Model:
    """The second layer sees no mistake."""
    mixer(model, 1).out.weight.zero_()
    return model


def half(model: Model) -> Model:
    """The second symbol counts half."""
    value = mixer(model, 0).project.weight.chunk(3)[2]
    value[:, 1] *= 0.5
    return model


@pytest.mark.parametrize("claim", [AnBnCounter(), AnBnCnCounter(), Dyck1Counter(), ShuffleCounter()])
def test_wrong_without_memory_of_mistakes_and_where_symbols_do_not_count_alike(claim: Counter):
    for change in (forgetful, half):
        assert examine(claim, 60, 64, change).wrong > 0


def lead(claim: Counter, pieces: list[tuple[str, int]], last: str, answer: Tensor) -> float:
    """Of an answer to a last symbol behind so many of each: the state of these is the sum of theirs."""
    model, task = claim.build(1), claim.task(1)
    start, (W, errors) = model.initial_state(1)
    for symbol, times in pieces:
        W = W + times * model(task.encode(symbol))[1][1][0]
    return compared(model(task.encode(last), (start, (W, errors)))[0], answer).margin


@pytest.mark.parametrize(
    ("claim", "pieces", "last", "too_many"),
    [
        (AnBnCounter(), lambda n: [("a", n), ("b", n - 1)], "b", 2**23),
        (AnBnCnCounter(), lambda n: [("a", n), ("b", n - 1)], "b", 2**23),
        (AnBnCnCounter(), lambda n: [("a", n), ("b", n), ("c", n - 1)], "c", 2**23),
        (Dyck1Counter(), lambda n: [("(", n), ("(", 1), (")", n)], ")", 2**24),
        (ShuffleCounter(), lambda n: [("[", n), ("[", 1), ("]", n)], "]", 2**24),
    ],
)
def test_right_up_to_the_bound_and_wrong_beyond(claim: Counter, pieces: Pieces, last: str, too_many: int):
    """Beyond N a count is as large as what tells one letter from another; from 2^24 on, one more is no more."""
    task = claim.task(1)
    short = "".join(symbol * times for symbol, times in pieces(3)) + last
    answer = task.solve(task.encode(short))[:, -1:]
    assert lead(claim, pieces(claim.N // 4), last, answer) == 1
    assert lead(claim, pieces(too_many), last, answer) <= 0


def test_longer_than_the_bound_nothing_is_said():
    with pytest.raises(BadInput, match="exact up to 4194304"):
        AnBnCounter().check(2**23)
