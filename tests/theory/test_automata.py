"""Any automaton from its table, by a relu network and by one self-referential weight matrix."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.automaton import Regex
from assay.tasks.bounded_dyck import BoundedDyck
from assay.tasks.groups import S3
from assay.tasks.regular import Abab, ModularArithmetic
from assay.theory.constructions.automata import Automaton, DfaRnn, DfaSrwm, FromTable, random_dfa

from .cases import examine, mixer

TASKS = (None, Abab(), Regex(pattern="(a|bc)*a?"), BoundedDyck(k=2, depth=2), S3())


@pytest.mark.parametrize("machine", [DfaRnn, DfaSrwm])
@pytest.mark.parametrize("task", TASKS)
def test_right_for_every_kind_of_automaton(machine: type[FromTable], task: Automaton | None):
    claim = machine(task)
    result = claim.check(40, inputs=64)
    assert result.holds
    assert result.margin == pytest.approx(1)
    states, symbols = claim.automaton.machine.moves.shape
    assert result.width == states * symbols + (symbols + 1 if machine is DfaSrwm else 0)


def test_right_where_some_states_give_no_answer():
    assert DfaRnn(ModularArithmetic(n=3)).check(41, inputs=64).holds


def test_a_task_may_be_given_by_name_or_as_data():
    assert DfaRnn("parity").automaton.kind == "parity"
    assert DfaSrwm({"kind": "regex", "pattern": "(ab)*"}).automaton.symbols == ("a", "b")
    with pytest.raises(BadInput, match="dyck-1 has no table"):
        DfaRnn("dyck-1")


def test_random_automata_reach_all_their_states():
    machine = random_dfa(24, Rng.seeded(7)).machine
    assert len(machine.states(torch.ones(1, 24, dtype=torch.int64)).unique()) == 24


def another_start(model: Model) -> Model:
    """The bias that stands for the state before the first symbol, gone to the next state."""
    bias = mixer(model, 0).project.bias
    bias.copy_(bias.roll(2))
    return model


def test_wrong_from_another_start():
    assert examine(DfaRnn(), 20, 64, another_start).wrong > 0


def one_row_exchanged(model: Model) -> Model:
    """The row of the first pair, and with it the state that follows, becomes another's."""
    part = mixer(model, 0)
    for W in (part.W_y, part.W_q):
        W[0, 0, 0] = W[0, 0, 1]
    return model


class Leaky(DfaSrwm):
    saturation = 5.0


def test_wrong_where_the_copies_are_not_exact():
    assert examine(Leaky(), 40, 64).wrong > 0
    assert examine(DfaSrwm(), 40, 64, one_row_exchanged).wrong > 0
