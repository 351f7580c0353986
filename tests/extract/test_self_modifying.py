"""The self-modifying automaton of an SRWM: programs of explicit weights, which are known, and of a trained network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.errors import BadInput
from assay.extract.clustering import deterministic, linked, merged, programs_of
from assay.extract.machines import difference, table
from assay.extract.questions import Questions
from assay.extract.self_modifying import extract_programs, has_programs
from assay.extract.tree import Tree
from assay.models import named_model
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.automaton import Regex
from assay.tasks.task import IGNORE, Task
from assay.theory.constructions.automata import DfaSrwm
from assay.theory.constructions.parity import SrwmParity

PARITY = named_task("parity")
S3 = named_task("s3")


def built(name: str, task: Task, **options) -> Model:
    model = named_model(name, width=8, **options).build(*task.shape, Rng.seeded(0, "model"))
    assert isinstance(model, Model)
    return model


@pytest.mark.parametrize("name", ["parity", "s3"])
def test_explicit_weights_have_a_program_for_each_state(name):
    """The row of the pointer holds the state, and nothing else of W ever changes."""
    task = named_task(name)
    found = extract_programs(DfaSrwm(name).build(10), task, length=4)
    target = Questions(task).machine
    assert target is not None
    assert len(found.programs) == len(target.moves) == found.behaviours
    assert found.disagreement is None
    assert difference(found.machine, target) is None
    assert found.followed == 1
    assert found.threshold < 1e-3 < found.gap


def test_the_answers_of_a_program_are_those_of_its_state():
    found = extract_programs(SrwmParity().build(10), PARITY)
    even, odd = found.programs
    assert (even.word, even.answers, even.moves) == ((), (1, 0), (0, 1))
    assert (odd.word, odd.answers, odd.moves) == ((2,), (0, 1), (1, 0))
    assert found.every_to > found.clustered_to
    assert found.strings == 2 ** (found.every_to + 1) - 2
    assert found.statement == (
        f"2 programs; the automaton agrees with the network on every one of {found.strings:,} strings up to length "
        f"{found.every_to}"
    )
    assert even.changed["W_y"] == pytest.approx(0)
    assert odd.changed["W_y"] > 0
    assert [programs for *_, programs in found.growth][-1] == 2
    assert found.plain()["programs"][1]["moves"] == {"0": 1, "1": 0}


def test_a_network_that_changes_late_disagrees_with_its_programs():
    """After the clustered strings the answers turn: the automaton must not follow."""
    model, late = SrwmParity().build(10), 11
    forward = model.forward

    def turned(x: Tensor, state=None):
        logits, state = forward(x, state)
        return torch.cat([logits[:, : late - 1], logits[:, late - 1 :].flip(-1)], 1), state

    model.forward = turned  # type: ignore[method-assign]
    worse = extract_programs(model, PARITY)
    assert worse.clustered_to < late
    assert worse.disagreement == (1,) * late
    assert (
        worse.statement == f"2 programs; the automaton agrees with the network up to length {late - 1}, not on 0^{late}"
    )


def test_words_with_a_dead_prefix_are_left_out():
    """Of the four states of (abab)*, two that read different symbols become one program."""
    task = Regex(pattern="(abab)*")
    found = extract_programs(DfaSrwm(task).build(10), task)
    assert len(found.programs) == 3
    assert sum(move is None for program in found.programs for move in program.moves) == 2
    assert found.behaviours is None
    assert found.disagreement is None
    assert found.strings == found.every_to == 60


def test_a_counter_needs_more_programs_for_longer_strings():
    """Weights that were not trained, on Dyck-1 to the length that they solve by chance: at least 1."""
    task = named_task("dyck-1")
    model = built("srwm", task, heads=2, layers=1)
    with torch.no_grad():
        model.read_out.weight.zero_()
        model.read_out.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    found = extract_programs(model, task)
    assert found.right_to == found.every_to == 1
    assert "(their matrices make the programs)" in found.statement


# -- clusters ------------------------------------------------------------------------------------------------------


def tree(points: list[float], parents: list[int], symbols: list[int], answers: list[int]) -> Tree:
    """A tree of strings whose matrices are single numbers."""
    words: list[tuple[int, ...]] = [()]
    for parent, symbol in zip(parents, symbols, strict=True):
        words.append((*words[parent], symbol))
    at = torch.tensor(points)[:, None]
    distances = torch.cdist(at.double(), at.double())
    return Tree(words, torch.tensor([-1, *parents]), torch.tensor([IGNORE, *answers]), at, distances, 1)


def test_the_shortest_tree_links_neighbours():
    points = torch.tensor([[0.0], [5.0], [1.0], [9.0]]).double()
    links = linked(torch.cdist(points, points))
    assert [(distance, {a, b}) for distance, a, b in links] == [(4.0, {1, 2}), (4.0, {3, 1}), (1.0, {0, 2})]
    assert merged(4, [(0, 2), (3, 1)]).tolist() == [0, 1, 0, 1]


def test_programs_are_merged_until_one_symbol_leads_to_one_program():
    """Strings: empty, a, aa, aaa with the same answers. If the empty string and `a` are one program, so are all."""
    chain = tree([0.0, 0.1, 9.0, 5.0], [0, 1, 2], [1, 1, 1], [0, 0, 0])
    assert deterministic(torch.tensor([0, 0, 1, 2]), chain, 1).tolist() == [0, 0, 0, 0]  # type: ignore[union-attr]
    other = tree([0.0, 0.1, 9.0, 5.0], [0, 1, 2], [1, 1, 1], [0, 0, 1])
    assert deterministic(torch.tensor([0, 0, 1, 2]), other, 1) is None
    labels, threshold = programs_of(other, 1)
    assert labels.tolist() == [0, 1, 2, 3]
    assert threshold == 0


def test_the_threshold_is_the_largest_without_two_answers():
    """a^n with matrices that alternate between 0 and 10, each a little off: two programs."""
    points = [0.0, 10.0, 0.5, 10.5, 1.0, 11.0]
    alternating = tree(points, [0, 1, 2, 3, 4], [1] * 5, [0, 1, 0, 1, 0])
    labels, threshold = programs_of(alternating, 1)
    assert labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert threshold == 0.5


# -- bad input -----------------------------------------------------------------------------------------------------


def test_models_without_programs_are_refused():
    with pytest.raises(BadInput, match="needs an SRWM in every layer; layer 1 is a LstmLayer"):
        extract_programs(built("lstm", PARITY, layers=1), PARITY)
    with pytest.raises(BadInput, match="an SRWM in every layer; this is a module of your own"):
        extract_programs(torch.nn.Linear(1, 1), PARITY)
    assert not has_programs(built("transformer", PARITY, heads=2))
    assert has_programs(built("srwm", PARITY, heads=2))
    with pytest.raises(BadInput, match="--length 40 is too long: at most 400,000 strings can be read; try 17"):
        extract_programs(SrwmParity().build(10), PARITY, length=40)


def test_a_machine_is_a_table():
    machine = Questions(S3).machine
    assert machine is not None
    assert table(machine, S3)["moves"] == machine.moves.tolist()
    assert table(machine, S3)["answers"] == list(S3.answers)
