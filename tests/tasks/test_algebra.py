"""The algebra of regular tasks: known monoids, and every property against its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product
from math import e, exp, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInput
from assay.studies.tracking2026 import CLASSES
from assay.tasks import named_task
from assay.tasks.algebra import Algebra, algebra_of
from assay.tasks.groups import even
from assay.tasks.minimal import minimal
from assay.tasks.permutation_groups import GroupFacts, derived, facts, generated
from assay.tasks.predictions import predictions

from .cases import few_examples

DIAGONAL, REAL, COMPLEX, STEP, SIGNED, PRODUCT, RWKV, PD, RNN, SOFTMAX, HARD, LOG = range(12)


def algebra(name: str, **options: Any) -> Algebra:
    found = algebra_of(named_task(name, **options))
    assert found is not None
    return found


def answers(name: str, **options: Any) -> list[str]:
    return [prediction.answer for prediction in predictions(algebra(name, **options))]


@pytest.mark.parametrize(
    ("name", "options", "states", "elements", "properties"),
    [
        ("parity", {}, 2, 2, "group commutative solvable"),
        ("even-a", {}, 2, 2, "group commutative solvable quasi-aperiodic"),
        ("regex", {"pattern": "((a|b)(a|b))*"}, 2, 2, "group commutative solvable quasi-aperiodic"),
        ("abab", {}, 5, 10, "solvable quasi-aperiodic"),
        ("flip-flop", {}, 2, 3, "aperiodic solvable quasi-aperiodic"),
        ("even-pairs", {}, 5, 5, "aperiodic solvable quasi-aperiodic"),
        ("regex", {"pattern": "(ab)*"}, 3, 6, "aperiodic solvable quasi-aperiodic"),
        ("regex", {"pattern": "a*b*"}, 3, 5, "aperiodic solvable quasi-aperiodic R-trivial J-trivial"),
        ("regex", {"pattern": "a(a|b)*"}, 3, 3, "aperiodic solvable quasi-aperiodic R-trivial"),
        ("tomita", {"grammar": 1}, 2, 2, "commutative aperiodic solvable quasi-aperiodic R-trivial J-trivial"),
        ("tomita", {"grammar": 2}, 3, 6, "aperiodic solvable quasi-aperiodic"),
        ("tomita", {"grammar": 3}, 5, 27, "solvable quasi-aperiodic"),
        ("tomita", {"grammar": 4}, 4, 12, "aperiodic solvable quasi-aperiodic"),
        ("tomita", {"grammar": 5}, 4, 4, "group commutative solvable"),
        ("tomita", {"grammar": 6}, 3, 3, "group commutative solvable"),
        ("tomita", {"grammar": 7}, 5, 9, "aperiodic solvable quasi-aperiodic R-trivial J-trivial"),
        ("cycle-navigation", {}, 5, 5, "group commutative solvable"),
        ("s3", {}, 6, 6, "group solvable"),
        ("dihedral", {"n": 5}, 10, 10, "group solvable"),
        ("a4-z5", {}, 60, 60, "group solvable"),
        ("a5", {}, 60, 60, "group"),
        ("s5", {}, 120, 120, "group"),
        ("modular-arithmetic", {"n": 2}, 9, 38, "solvable"),
    ],
    ids=str,
)
def test_known_monoids(name: str, options: dict[str, Any], states: int, elements: int, properties: str):
    found = algebra(name, **options)
    assert (found.states, found.elements) == (states, elements)
    named = {
        "group": found.group,
        "commutative": found.commutative,
        "aperiodic": found.aperiodic,
        "solvable": found.solvable,
        "quasi-aperiodic": found.quasi_aperiodic,
        "R-trivial": found.r_trivial,
        "J-trivial": found.j_trivial,
    }
    assert {name for name, holds in named.items() if holds} == set(properties.split())


def test_circuit_classes():
    names = ("flip-flop", "even-a", "parity", "s3", "a5")
    classes = ["in AC0", "in AC0", "in ACC0, not in AC0", "in ACC0, not in AC0", "complete for NC1"]
    assert [algebra(name).complexity for name in names] == classes


def test_large_groups_take_no_longer_than_small_ones():
    """512 symbols with 512 states: their cycles are followed once."""
    facts = algebra("cyclic", n=512)
    assert facts.groups[0].cyclic
    assert (facts.periods["1"], facts.periods["2"], facts.periods["384"]) == (512, 256, 4)


def test_what_a_symbol_counts():
    assert algebra("cycle-navigation").periods == {"0": 1, "+": 5, "-": 5}
    assert algebra("dihedral", n=6).periods["r2"] == 3
    assert algebra("tomita", grammar=3).periods == {"0": 2, "1": 2}


# -- every property again, from all words --------------------------------------------------------------------------


Element = tuple[int, ...]


def monoid(moves: list[list[int]]) -> tuple[dict[Element, str], list[Element]]:
    """All transformations of states by words, with a word for each, and those of single symbols."""
    letters: list[Element] = [tuple(column) for column in zip(*moves, strict=True)]
    found = {tuple(range(len(moves))): ""}
    queue = list(found)
    for element in queue:
        for i, letter in enumerate(letters):
            longer = tuple(letter[q] for q in element)
            if longer not in found:
                found[longer] = found[element] + str(i)
                queue.append(longer)
    return found, letters


def times(x: Element, y: Element) -> Element:
    return tuple(y[q] for q in x)


def power(x: Element, n: int) -> Element:
    result: Element = tuple(range(len(x)))
    for _ in range(n):
        result = times(result, x)
    return result


def words_of_length(elements: set[Element], letters: list[Element]) -> Iterator[set[Element]]:
    current: set[Element] = {tuple(range(len(letters[0])))}
    for _ in range(2 * len(elements) + 2):
        current = {times(x, a) for x in current for a in letters}
        yield current


def divides(elements: set[Element], multiply: Callable[[Element], set[Element]]) -> bool:
    """Whether no two elements generate the same ideal."""
    ideals = {x: frozenset(multiply(x)) for x in elements}
    return len(set(ideals.values())) == len(elements)


@st.composite
def machines(draw: st.DrawFn) -> list[list[int]]:
    states, symbols = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    row = st.lists(st.integers(0, states - 1), min_size=symbols, max_size=symbols)
    return draw(st.lists(row, min_size=states, max_size=states))


@few_examples
@given(moves=machines(), accept=st.sets(st.integers(0, 3), min_size=1))
def test_properties_are_those_of_the_definitions(moves: list[list[int]], accept: set[int]):
    count = len(moves)
    table, accepting = tuple(map(tuple, moves)), tuple(sorted(accept & set(range(count)) or {0}))
    task: Any = named_task("dfa", alphabet="xy"[: len(moves[0])], table=table, accept=accepting)
    found = algebra_of(task)
    assert found is not None
    smallest = minimal(task.machine)
    elements, letters = monoid(smallest.moves.tolist())
    everything = set(elements)
    n = 24  # a multiple of every period of at most 4 states, and not below their number
    assert found.elements == len(elements)
    counts = {x for x in everything if times(power(x, n), x) != power(x, n)}
    assert found.aperiodic == (not counts)
    assert found.group == all(any(times(x, y) == power(x, 0) for y in everything) for x in everything)
    assert found.commutative == all(times(a, b) == times(b, a) for a, b in product(everything, repeat=2))
    right = divides(everything, lambda x: {times(x, y) for y in everything})
    both = divides(everything, lambda x: {times(times(y, x), z) for y in everything for z in everything})
    assert (found.r_trivial, found.j_trivial) == (right, both)
    # Not quasi-aperiodic: for some length, the words of this length contain all elements of a group.
    groups = [{power(x, k) for k in range(n, 2 * n)} for x in counts]
    assert found.quasi_aperiodic == (
        not any(group <= same for same in words_of_length(everything, letters) for group in groups)
    )


# -- groups ----------------------------------------------------------------------------------------------------


def test_facts_about_groups():
    s4, a4 = set(permutations(range(4))), set(filter(even, permutations(range(4))))
    assert facts(s4) == GroupFacts(24, commutative=False, cyclic=False, steps=3, dihedral=False)
    assert derived(s4) == a4
    assert len(derived(a4)) == 4
    square = generated([(1, 2, 3, 0), (0, 3, 2, 1)], 4)
    assert facts(square) == GroupFacts(8, commutative=False, cyclic=False, steps=2, dihedral=True)
    quaternions = generated([(1, 2, 3, 0, 5, 6, 7, 4), (4, 7, 6, 5, 2, 1, 0, 3)], 8)
    assert facts(quaternions) == GroupFacts(8, commutative=False, cyclic=False, steps=2, dihedral=False)
    assert facts(set(filter(even, permutations(range(5))))).steps is None
    six = generated([(1, 2, 0, 4, 3)], 5)
    assert facts(six) == GroupFacts(6, commutative=True, cyclic=True, steps=1, dihedral=False)
    klein = generated([(1, 0, 2, 3), (0, 1, 3, 2)], 4)
    assert facts(klein) == GroupFacts(4, commutative=True, cyclic=False, steps=1, dihedral=False)


def elements_of_order(group: set[Element], n: int) -> set[Element]:
    return {x for x in group if power(x, n) == power(x, 0) and all(power(x, k) != power(x, 0) for k in range(1, n))}


@pytest.mark.parametrize("n", range(3, 9))
def test_dihedral_groups_and_their_look_alikes(n: int):
    """The other groups have half of their elements in a cyclic part, too: Z_n x Z_2, and the dicyclic groups."""
    rotation, reflection = (*((i + 1) % n for i in range(n)), n, n + 1), (*(-i % n for i in range(n)), n, n + 1)
    swap = (*range(n), n + 1, n)
    assert facts(generated([rotation, reflection], n + 2)).dihedral
    assert not facts(generated([rotation, swap], n + 2)).dihedral
    if n % 2 == 0:  # r^a x^b acts on all of its elements from the right, with x x = r^(n/2) and r x = x r^-1
        turn = [(a + 1) % n if b == 0 else n + (a - 1) % n for b in (0, 1) for a in range(n)]
        other = [n + a if b == 0 else (a + n // 2) % n for b in (0, 1) for a in range(n)]
        dicyclic = generated([tuple(turn), tuple(other)], 2 * n)
        assert len(dicyclic) == 2 * n
        assert len(elements_of_order(dicyclic, 2)) == 1
        assert not facts(dicyclic).dihedral


def test_a_group_inside_of_a_larger_monoid():
    """A_5 that an extra symbol resets, which makes the monoid larger and no group."""
    elements = sorted(filter(even, permutations(range(5))))
    number = {p: i for i, p in enumerate(elements)}
    generators = [(1, 2, 0, 3, 4), (1, 2, 3, 4, 0)]
    rows = tuple((*(number[tuple(g[i] for i in p)] for g in generators), 0) for p in elements)
    found = algebra("dfa", alphabet="abr", table=rows, accept=(0,))
    assert (found.elements, found.group, found.solvable) == (120, False, False)
    assert [group.order for group in found.groups] == [60]


# -- bounds ----------------------------------------------------------------------------------------------------


def test_tasks_without_an_automaton_have_no_algebra():
    assert algebra_of(named_task("majority")) is None
    assert algebra_of(named_task("dyck-1")) is None


def test_what_is_too_large_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"^cyclic: the algebra of an automaton with 1,024 states and 1,024 symbols"):
        algebra("cyclic", n=1024)
    shift, swap, merge = [*range(1, 8), 0], [1, 0, *range(2, 8)], [0, *range(7)]
    every_transformation = tuple(zip(shift, swap, merge, strict=True))  # all 8^8 of 8 states
    with pytest.raises(BadInput, match=r"^dfa: its monoid has more than 20,000 elements"):
        algebra("dfa", alphabet="abc", table=every_transformation, accept=(0,))


# -- what theory says ----------------------------------------------------------------------------------------------


def test_predictions_follow_from_the_algebra():
    tc0 = "not unless TC0 = NC1"
    parity, flip_flop, s3, a5 = (answers(name) for name in ("parity", "flip-flop", "s3", "a5"))
    assert [row[DIAGONAL] for row in (parity, flip_flop, s3, a5)] == ["no", "yes", "no", "no"]
    assert [row[REAL] for row in (parity, flip_flop, s3, a5)] == ["yes", "yes", "no", "no"]
    assert [row[COMPLEX] for row in (parity, flip_flop, s3, a5)] == ["yes", "yes", "yes", "no"]
    assert [row[STEP] for row in (parity, flip_flop, s3, a5)] == ["no", "open", "no", "no"]
    assert [row[SIGNED] for row in (parity, flip_flop, s3, a5)] == ["yes", "open", "yes", "open"]
    assert [row[HARD] for row in (parity, flip_flop, s3, a5)] == ["no", "yes", "no", "no"]
    assert [row[LOG] for row in (parity, flip_flop, s3, a5)] == ["yes", "yes", "yes", tc0]
    for row in (parity, flip_flop, s3, a5):
        assert row[SOFTMAX] == "no"
        assert {row[i] for i in (PRODUCT, RWKV, PD, RNN)} == {"yes"}
    assert answers("tomita", grammar=7)[SOFTMAX] == "yes"
    assert answers("tomita", grammar=5)[REAL] == "yes", "the parity of the 0s and that of the 1s"
    assert answers("cyclic", n=4)[REAL] == "open"
    assert answers("cycle-navigation")[SIGNED] == answers("tomita", grammar=6)[SIGNED] == "yes", "rotations of D_n"
    assert answers("a4-z5")[SIGNED] == answers("s4")[SIGNED] == "open"


def test_the_statement_about_rwkv_7_is_not_about_its_published_ranges():
    """Its transition has no eigenvalue below exp(-1 / sqrt(e)) - 1, so that on equal symbols every state settles."""
    assert f"end at {exp(-1 / sqrt(e)) - 1:.3f}" in predictions(algebra("parity"))[RWKV].assumes
    assert not {"rwkv-7", "linear-transformer", "retnet", "dss"} & {*CLASSES}, "nor has a fixed decay a statement here"


def test_layers_are_the_abelian_steps_of_a_group():
    def reason(name: str) -> str:
        return predictions(algebra(name))[COMPLEX].reason

    assert "one layer is enough" in reason("cyclic")
    assert "2 layers are enough, and fewer are not" in reason("s3")
    assert "3 layers are enough, and fewer are not" in reason("s4")


def test_every_decided_line_has_a_source_and_its_assumptions():
    for name in ("parity", "even-pairs", "s4", "a5", "modular-arithmetic"):
        for prediction in predictions(algebra(name)):
            assert bool(prediction.source) == bool(prediction.assumes) == (prediction.answer != "open")
