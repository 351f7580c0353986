"""Learning the automaton of a network: what is found, what is said about it, and where the search ends."""

from __future__ import annotations

import pytest
import torch
from aalpy.automata import MealyMachine, MealyState
from aalpy.learning_algs import run_Lstar
from hypothesis import example, given

from assay.errors import BadInput
from assay.extract.learning import learn_automaton
from assay.extract.machines import difference
from assay.extract.network import Network
from assay.extract.questions import Questions
from assay.extract.wp_method import WpOracle, moore
from assay.lab.evaluate import predict
from assay.tasks import named_task
from assay.tasks.automaton import Dfa, Machine, Regex
from assay.tasks.minimal import minimal
from assay.tasks.regular import Parity
from assay.tasks.task import IGNORE
from assay.theory.constructions.automata import DfaRnn
from tests.extract.test_machines import QUICK, machines

PARITY, ABAB = Parity(), Regex(pattern="(abab)*")


def forgetful_parity(zeros: int) -> Dfa:
    """Parity, but the word 1 0^zeros is answered as if the number of 1s were even."""
    odd = zeros + 2  # the state of an odd number of 1s on every other path
    even = odd + 1
    after_one = [(i + 1 if i < zeros else 0, even) for i in range(1, zeros + 1)]
    table = [(even, 1), *after_one, (odd, even), (odd, even), (even, odd)]
    table[zeros] = (zeros + 1, even)
    return Dfa(alphabet="01", table=tuple(table), accept=(0, zeros + 1, even))


def test_the_automaton_of_explicit_weights_is_the_task_own():
    """On words without a dead prefix, as training shows no others."""
    model = DfaRnn(ABAB).build(10)
    learned = learn_automaton(lambda words: predict(model, words), ABAB, extra_states=2)
    assert learned.equal
    assert (learned.states, learned.bound) == (5, 7)
    assert learned.statement.startswith("equal to regex if the network has at most 7 states (")
    assert "proved" not in str(learned.plain())


def test_a_broken_twin_has_a_larger_automaton_and_the_right_shortest_difference():
    twin = forgetful_parity(5)
    model = DfaRnn(twin).build(10)
    learned = learn_automaton(lambda words: predict(model, words), PARITY, extra_states=1)
    assert learned.statement == "differs from parity: the shortest wrong word is 1 0^5 (answer 1, right is 0)"
    assert not learned.equal
    assert difference(learned.machine, Questions(twin).machine) is None  # type: ignore[arg-type]
    assert len(learned.machine.moves) == len(minimal(twin.machine).moves) > 2


def test_a_mistake_beyond_the_bound_is_found_by_longer_words():
    """Random words and the Wp-method do not find 1 0^14; a lasso does, and the machine has a state for each 0."""
    twin = forgetful_parity(14)
    learned = learn_automaton(twin.machine.answer, PARITY)
    assert learned.difference is not None
    assert learned.statement == "differs from parity: the shortest known wrong word is 1 0^14 (answer 1, right is 0)"
    assert difference(learned.machine, twin.machine) is None
    beyond = learn_automaton(forgetful_parity(120).machine.answer, PARITY)
    assert len(beyond.machine.moves) == 2
    assert beyond.difference is not None
    assert len(beyond.difference.word) == 121
    assert not beyond.equal


FOUR_AS = Machine(torch.tensor([[1, 0], [2, 1], [3, 2], [4, 3], [4, 3]]), torch.tensor([0, 0, 0, 0, 1]))  # 4 states


@QUICK
@given(machines(most=4))
@example(FOUR_AS)
def test_a_network_with_at_most_m_states_is_learned_exactly(machine):
    """By the Wp-method alone: no word is asked before, and none is drawn."""
    network = Network(machine.answer, Questions(PARITY), deadline=torch.inf)
    oracle = WpOracle(network, extra_states=3, max_states=64, words=torch.empty(0, 1, dtype=torch.int64))
    learned = run_Lstar([1, 2], network, oracle, "mealy", cache_and_non_det_check=False, print_level=0)
    assert difference(moore(learned), machine) is None
    assert oracle.bound == len(learned.states) + 3


def as_mealy(machine: Machine):
    states = [MealyState(i) for i in range(len(machine.moves))]
    for state, row in zip(states, machine.moves.tolist(), strict=True):
        state.transitions = {symbol + 1: states[q] for symbol, q in enumerate(row)}
        state.output_fun = {symbol + 1: int(machine.outputs[q]) for symbol, q in enumerate(row)}
        state.prefix = ()
    return MealyMachine(states[0], states)


def test_a_mealy_machine_becomes_a_moore_machine():
    parity = minimal(moore(as_mealy(PARITY.machine)), start_answer=1)
    assert parity.moves.tolist() == [[0, 1], [1, 0]]
    assert parity.outputs.tolist() == [1, 0]


def test_a_counter_has_more_states_than_any_limit():
    dyck = named_task("dyck-1")
    learned = learn_automaton(dyck.answer, dyck, max_states=8)
    assert learned.limit == "more than 8 states"
    assert learned.bound is None
    assert learned.statement.startswith("open: more than 8 states; no wrong word (")
    assert learned.unexplained
    assert not learned.equal


def test_a_search_that_ends_early_still_finds_wrong_words():
    """Dyck-1 with depths of at most 30 is right on all words of training, which are not so deep, but not on longer."""
    dyck = named_task("dyck-1")

    def answers(words):
        depth = ((words == 1).long() - (words == 2).long()).cumsum(1)
        return dyck.answer(words).where(depth.cummax(1).values <= 30, 0)

    learned = learn_automaton(answers, dyck, max_states=8)
    assert learned.statement == "differs from dyck-1: the shortest known wrong word is (^31 (answer 0, right is 1)"
    assert learned.limit == "more than 8 states"


def test_the_time_can_run_out():
    def slow(words):
        return torch.zeros_like(words)

    with pytest.raises(BadInput, match="0 seconds are too few"):
        learn_automaton(slow, PARITY, seconds=0)


def test_equal_seeds_ask_equal_words():
    asked: list[list[list[int]]] = []
    for seed in (3, 3, 4):
        rows: list[list[int]] = []

        def answers(words, rows=rows):
            rows += words.tolist()
            return PARITY.machine.answer(words)

        learn_automaton(answers, PARITY, seed=seed, extra_states=0)
        asked.append(rows)
    assert asked[0] == asked[1] != asked[2]


def test_a_network_that_looks_at_its_batch_is_refused():
    def answers(words):
        right = PARITY.machine.answer(words)
        return right if len(words) == 1 else 1 - right

    with pytest.raises(BadInput, match="depends on the other words of the batch"):
        learn_automaton(answers, PARITY)


def test_a_task_without_symbols_is_refused():
    with pytest.raises(BadInput, match="nearest-neighbour has real-valued inputs; an automaton needs a task with symb"):
        learn_automaton(lambda words: words, named_task("nearest-neighbour"))


def test_answers_where_nothing_is_asked_do_not_count():
    """A network that is wrong after a mistake only, which training never shows, is equal to the task."""
    machine = ABAB.machine
    wrong_when_dead = Machine(machine.moves, machine.outputs.where(machine.outputs != 2, 0))
    learned = learn_automaton(wrong_when_dead.answer, ABAB)
    assert learned.equal
    assert IGNORE in learned.machine.outputs
