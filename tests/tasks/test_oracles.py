"""Every oracle against its naive twin, on strings that hypothesis chooses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay.errors import BadInput
from assay.rng import Rng
from assay.tasks import TASKS, named_task
from assay.tasks.equality import EqualityNcp
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.task import IGNORE, Task

from . import naive
from .cases import CASES, REAL_VALUED, Case, few_examples, naive_targets, of_every_length

ROWS, WIDTH = 24, 14
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
any_bytes = st.binary(min_size=ROWS * WIDTH, max_size=ROWS * WIDTH)
row_bytes = st.binary(min_size=ROWS, max_size=ROWS)
seeds = st.integers(-(2**63), 2**63 - 1)


def any_tokens(raw: bytes, cuts: bytes, width: int, symbols: int) -> Tensor:
    """Any tokens; each row is cut by a padding somewhere, with only padding or anything behind it."""
    tokens = torch.tensor(list(raw)).view(ROWS, WIDTH)[:, :width] % symbols + 1
    cut = torch.tensor(list(cuts))[:, None]
    first_pad = cut // 2 % (width + 1)
    time = torch.arange(width)
    return torch.where((time == first_pad) | ((time > first_pad) & (cut % 2 == 0)), 0, tokens)


def test_every_registered_task_is_compared():
    assert {"nearest-neighbour"} == REAL_VALUED
    assert {case.task.kind for case in CASES.values()} | REAL_VALUED == set(TASKS.entries)


@every_case
@few_examples
@given(raw=any_bytes, cuts=row_bytes, width=st.integers(1, WIDTH))
def test_any_string_has_the_naive_answers(case: Case, raw: bytes, cuts: bytes, width: int):
    inputs = any_tokens(raw, cuts, width, len(case.task.symbols))
    assert case.task.solve(inputs).tolist() == naive_targets(case, inputs)


@every_case
@few_examples
@given(seed=seeds)
def test_drawn_strings_have_the_naive_answers(case: Case, seed: int):
    lengths = of_every_length(case.task, 24)
    batch = case.task.batch(lengths, Rng.seeded(seed).rows(len(lengths)))
    assert batch.targets.tolist() == naive_targets(case, batch.inputs)


@every_case
@few_examples
@given(seed=seeds, changes=row_bytes)
def test_almost_correct_strings_have_the_naive_answers(case: Case, seed: int, changes: bytes):
    """Arbitrary strings die early; a drawn one with a single other symbol dies, if at all, late."""
    lengths = of_every_length(case.task, ROWS)
    inputs = case.task.inputs(lengths, Rng.seeded(seed).rows(len(lengths)))
    change = torch.tensor(list(changes))[: len(lengths), None]
    changed = inputs.scatter(1, change % lengths[:, None], change // 3 % len(case.task.symbols) + 1)
    assert case.task.solve(changed).tolist() == naive_targets(case, changed)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    states, symbols = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    state = st.integers(0, states - 1)
    row = st.tuples(*[state] * symbols)
    accept = st.sets(state, min_size=1).map(lambda found: tuple(sorted(found)))
    return {"alphabet": "xyz"[:symbols], "table": draw(st.tuples(*[row] * states)), "accept": draw(accept)}


@few_examples
@given(options=tables(), raw=any_bytes, cuts=row_bytes)
def test_any_automaton_has_the_naive_answers(options: dict[str, Any], raw: bytes, cuts: bytes):
    case = Case(named_task("dfa", **options), partial(naive.dfa, **options))
    inputs = any_tokens(raw, cuts, WIDTH, len(case.task.symbols))
    assert case.task.solve(inputs).tolist() == naive_targets(case, inputs)


letters = st.sampled_from("ab").map(lambda a: ("letter", a))
trees = st.recursive(
    letters,
    lambda tree: (
        st.tuples(st.sampled_from(["or", "then"]), tree, tree)
        | st.tuples(st.sampled_from(["star", "plus", "maybe"]), tree)
    ),
    max_leaves=6,
)


@few_examples
@given(tree=trees, raw=any_bytes, cuts=row_bytes)
def test_any_regular_expression_has_the_naive_answers(tree: naive.Tree, raw: bytes, cuts: bytes):
    """The alphabet has a letter that no pattern names."""
    case = Case(named_task("regex", pattern=naive.pattern(tree), alphabet="abc"), partial(naive.regex, tree=tree))
    assert case.task.symbols == ("a", "b", "c")
    inputs = any_tokens(raw, cuts, 8, 3)
    assert case.task.solve(inputs).tolist() == naive_targets(case, inputs)


ANSWERS_EVERYWHERE = [
    name
    for name, case in CASES.items()
    if "dead" in case.task.answers
    and case.task.answer_positions == "everywhere"
    and case.task.kind not in ("reset-dyck-1", "phone-book")  # a reset forgets; a complete number has no question
    and not isinstance(case.task, EqualityNcp)  # a complete copy has no question
]


@pytest.mark.parametrize("name", ANSWERS_EVERYWHERE)
def test_dead_is_for_ever(name: str):
    """On every string of a short length."""
    task = CASES[name].task
    tokens = torch.arange(1, len(task.symbols) + 1)
    strings = torch.cartesian_prod(*[tokens] * (6 if len(tokens) <= 4 else 3))
    dead = task.solve(strings) == task.answers.index("dead")
    assert (dead.cummax(1).values == dead).all()
    assert dead.any()
    assert not dead.all(1).all()


# -- real-valued inputs ----------------------------------------------------------------------------------------


def labelled_points(lengths: Tensor, dimension: int, seed: int) -> Tensor:
    """x y x y ... x: any points at all (not only unit vectors), one-hot labels, zeros behind."""
    rows, width = len(lengths), int(lengths.max())
    rng = Rng.seeded(seed).rows(rows)
    points = rng.child("points").normal(width * dimension).view(rows, width, dimension)
    labels = torch.nn.functional.one_hot(rng.child("labels").integers(width, 2), 2)
    time = torch.arange(width)[:, None]
    items = torch.cat([points * (time % 2 == 0), labels * (time % 2)], dim=2).float()
    return items * (time < lengths[:, None, None])


def naive_neighbour_targets(inputs: Tensor, lengths: list[int], dimension: int) -> list[list[int]]:
    width = inputs.shape[1]
    answers = [
        int(naive.nearest_neighbour(items[:n], dimension)) for items, n in zip(inputs.tolist(), lengths, strict=True)
    ]
    return [[IGNORE] * (n - 1) + [answer] + [IGNORE] * (width - n) for answer, n in zip(answers, lengths, strict=True)]


@few_examples
@given(seed=seeds, dimension=st.integers(2, 6))
def test_nearest_neighbour_of_any_points(seed: int, dimension: int):
    lengths = torch.arange(1, 24, 2)
    inputs = labelled_points(lengths, dimension, seed)
    expected = naive_neighbour_targets(inputs, lengths.tolist(), dimension)
    assert NearestNeighbour(dimension=dimension).solve(inputs).tolist() == expected


@few_examples
@given(seed=seeds)
def test_nearest_neighbour_ignores_all_behind_a_padding(seed: int):
    lengths = torch.full((10,), 23)
    inputs = labelled_points(lengths, 3, seed)
    kept = [2 * i + 1 for i in range(10)]
    inputs[torch.arange(10), torch.tensor(kept)] = 0.0
    expected = naive_neighbour_targets(inputs, kept, 3)
    assert NearestNeighbour(dimension=3).solve(inputs).tolist() == expected


@few_examples
@given(seed=seeds)
def test_nearest_neighbour_of_drawn_points(seed: int):
    nearest = NearestNeighbour(dimension=4)
    lengths = of_every_length(nearest, 24)
    batch = nearest.batch(lengths, Rng.seeded(seed).rows(len(lengths)))
    assert batch.targets.tolist() == naive_neighbour_targets(batch.inputs, lengths.tolist(), 4)


# -- examples from the definitions, worked by hand -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "answers"),
    [
        ("parity", "11110101", "01011001"),
        ("even-a", "aaaa", "0101"),
        ("abab", "abababab", "00010001"),
        ("an-bn", "aaaabbbb", "ccccbbbT"),
        ("an-bn-cn", "aaabbbccc", "dddbbcccT"),
        ("shuffle", "[[([])]]", "01 01 11 11 11 01 01 00"),
        ("shuffle", "([)]", "10 11 01 00"),
        ("dyck-1", "(())", "1110"),
    ],
)
def test_published_examples(name: str, text: str, answers: str):
    assert named_task(name).explain(text) == answers


def test_the_empty_string_has_no_answers():
    def silent(task: Task) -> bool:
        try:
            return task.solve(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0) and task.explain("") == ""
        except (IndexError, RuntimeError):
            return False

    assert [name for name, case in CASES.items() if not silent(case.task)] == []


@every_case
def test_solving_leaves_the_inputs_alone(case: Case):
    lengths = of_every_length(case.task, 24)
    inputs = case.task.inputs(lengths, Rng.seeded(0).rows(len(lengths)))
    before = inputs.clone()
    case.task.solve(inputs)
    assert torch.equal(inputs, before)


def test_an_unknown_symbol_is_named():
    with pytest.raises(BadInput, match="parity has no symbol 'x'"):
        named_task("parity").explain("01x")
