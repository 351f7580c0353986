"""The minimal form of a machine, the shortest difference of two, and the questions that a network is held to."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.extract.machines import difference, outside_state
from assay.extract.questions import Questions
from assay.tasks import example_task, named_task
from assay.tasks.automaton import Dfa, Machine
from assay.tasks.minimal import minimal
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE

QUICK = settings(max_examples=25, deadline=None)


@st.composite
def machines(draw, most=5, symbols=2, answers=2):
    count = draw(st.integers(1, most))
    state = st.integers(0, count - 1)
    moves = draw(st.lists(st.lists(state, min_size=symbols, max_size=symbols), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(0, answers - 1), min_size=count, max_size=count))
    return Machine(torch.tensor(moves), torch.tensor(outputs), draw(state))


def words(length, symbols=2):
    return [word for n in range(1, length + 1) for word in product(range(1, symbols + 1), repeat=n)]


def last_answers(machine, length):
    listed = words(length)
    answers = machine.answer(rows_of(listed)).tolist()
    return {word: row[len(word) - 1] for word, row in zip(listed, answers, strict=True)}


@QUICK
@given(machines())
def test_the_minimal_form_has_the_same_answers_and_no_two_equal_states(machine):
    small = minimal(machine)
    inputs = rows_of(words(6))
    assert torch.equal(small.answer(inputs).where(inputs > 0, 0), machine.answer(inputs).where(inputs > 0, 0))
    assert len(minimal(small).moves) == len(small.moves) <= len(machine.moves)
    assert all(
        small.outputs[p] != small.outputs[q]
        or difference(Machine(small.moves, small.outputs, p), Machine(small.moves, small.outputs, q))
        for q in range(len(small.moves))
        for p in range(q)
    )


@QUICK
@given(machines(), st.permutations(range(10)))
def test_two_machines_of_one_language_have_one_minimal_form(machine, order):
    """Every state twice, the copies lead to each other, and all are renumbered."""
    count = len(machine.moves)
    new = torch.tensor([i for i in order if i < 2 * count])
    moves, outputs = torch.empty(2 * count, 2, dtype=torch.int64), torch.empty(2 * count, dtype=torch.int64)
    moves[new] = new[torch.cat([machine.moves + count, machine.moves])]
    outputs[new] = machine.outputs.repeat(2)
    twice = Machine(moves, outputs, int(new[machine.start]))
    one, other = minimal(machine), minimal(twice)
    assert torch.equal(one.moves, other.moves)
    assert torch.equal(one.outputs, other.outputs)


@QUICK
@given(machines(most=3), machines(most=3))
def test_the_difference_is_the_first_of_the_shortest_words(one, other):
    """Two machines of 3 states that agree on all words of up to 6 symbols agree on all words."""
    answers, others = last_answers(one, 6), last_answers(other, 6)
    assert difference(one, other) == next((word for word in answers if answers[word] != others[word]), None)


def test_the_answer_to_the_empty_word_does_not_count():
    """The start becomes a state that it differs from in its own answer alone, if possible one with the given answer."""
    ends_in_b = Machine(torch.tensor([[1, 2], [1, 2], [1, 2]]), torch.tensor([IGNORE, 0, 1]))
    assert minimal(ends_in_b).outputs.tolist() == [0, 1]
    assert minimal(ends_in_b, start_answer=1).outputs.tolist() == [1, 0]
    returns = Machine(torch.tensor([[1, 0], [1, 0]]), torch.tensor([1, 0]))  # its answer is asked after b
    assert minimal(returns).outputs.tolist() == [1, 0]


def test_words_with_a_dead_prefix_are_outside_where_training_shows_none():
    """Reset Dyck-1 forgives a mistake, but no input of training has one."""
    inside = Questions(named_task("reset-dyck-1"))
    assert inside.targets(inside.task.encode("())1(")).tolist() == [[1, 0, IGNORE, IGNORE, IGNORE]]
    assert "without a dead prefix" in inside.domain
    assert Questions(named_task("bounded-dyck")).dead is None
    everywhere = Questions(named_task("parity"))
    assert everywhere.domain == "all words"
    machine = Questions(named_task("abab")).machine
    assert machine is not None
    assert outside_state(machine) == 2
    assert machine.moves.tolist() == [[1, 2], [2, 3], [2, 2], [4, 2], [2, 0]]
    assert machine.outputs.tolist() == [1, 0, IGNORE, 0, 0]
    assert Questions(named_task("dyck-1")).machine is None


def test_a_task_that_asks_at_the_end_is_asked_at_its_own_lengths():
    questions = Questions(example_task("bounded-dyck"))
    assert questions.targets(questions.task.encode("([])")).tolist() == [[IGNORE, 0, IGNORE, 1]]


def test_a_table_that_is_not_minimal_is_made_so():
    task = Dfa(alphabet="ab", table=((1, 1), (2, 2), (1, 1)), accept=(1,))
    machine = Questions(task).machine
    assert machine is not None
    assert machine.moves.tolist() == [[1, 1], [0, 0]]
