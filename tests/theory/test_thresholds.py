"""Thresholds of sparse features: the machines hold, formulas are read, and each part of the proof is needed."""

from __future__ import annotations

import doctest
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.task import Task
from assay.theory.claim import Change, strings
from assay.theory.constructions import thresholds
from assay.theory.constructions.thresholds import (
    DisjointnessTwoLayers,
    Features,
    Form,
    Formula,
    FormulaTwoLayers,
    KCnf,
    KDnf,
    Thresholds,
    clauses_of,
    random_formula,
)

from .cases import examine, mixer

CLAIMS = [DisjointnessTwoLayers, KDnf, KCnf]
FORMS: list[Form] = ["DNF", "CNF"]


def test_docstrings():
    assert doctest.testmod(thresholds).failed == 0


# -- the machines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_one_holds(claim: type[Thresholds]):
    result = claim().check(6, inputs=300)
    assert result.holds
    assert result.margin is not None
    assert result.margin > 0.99
    assert examine(claim(), 50, 300).margin > 0.99


@pytest.mark.parametrize("claim", [KDnf, KCnf])
def test_every_threshold_is_checked(claim: type[FormulaTwoLayers]):
    """With the threshold 2 wrong and all others right the claim fails."""

    class OffAtTwo(claim):  # type: ignore[misc, valid-type]
        def threshold(self, length: int) -> int:
            b = int(super().threshold(length))
            return 3 if self.at_least == 2 else b

    result = claim().check(4, inputs=40)
    assert result.holds
    assert result.inputs == 3 * 8 + 4 * 16 + 40 + 4 * (2 if claim is KDnf else 3), (
        "every threshold of 3 and 4 clauses, and random inputs"
    )
    assert examine(OffAtTwo(), 4, 40).wrong == 0
    assert not OffAtTwo().check(4, inputs=40).holds
    assert claim(at_least=3).check(4, inputs=40).inputs == 8 + 16 + 40


@pytest.mark.parametrize("form", FORMS)
def test_a_threshold_is_met_exactly_or_missed_by_one(form: Form):
    b = 15 if form == "DNF" else 45
    task = Formula(text=random_formula(form, 60), form=form, at_least=b)
    bits = task.inputs(torch.full((200,), 120), Rng.seeded(5).rows(200))[:, :60] == 2
    assert set(task.true_clauses(bits).sum(1).tolist()) == {b - 1, b}


def test_a_threshold_beyond_the_clauses():
    with pytest.raises(BadInput, match="at_least = 3 is not valid: 1 to 2, the number of clauses"):
        KDnf("x1 | x2", at_least=3)


def test_widths():
    assert DisjointnessTwoLayers().build(256).read_out.in_features == 3 * 16 + 4 + 2 + 3 + 1
    assert KDnf().build(128).read_out.in_features == 4 * 16 + 8 + 3 + 3


class Changes(Task):
    """1 where at least half of the symbols differ from the one before."""

    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")

    def answer(self, inputs: Tensor) -> Tensor:
        changes = (inputs[:, 1:] != inputs[:, :-1]).sum(1, keepdim=True)
        return (changes >= inputs.shape[1] // 2).long().expand(inputs.shape)

    def draw(self, lengths: Tensor, rng: Rng, width: int) -> Tensor:
        return rng.integers(width, 2) + 1


class ManyChanges(Thresholds):
    """A threshold in the middle, and a feature of each symbol and the one before."""

    small: ClassVar[tuple[int, ...]] = (2, 5, 8)

    def task(self, length: int) -> Task:
        return Changes()

    def features(self, length: int) -> Features:
        i = torch.arange(1, length)
        xor = torch.tensor([False, True, True, False])
        return Features(at=i, of=torch.stack([i - 1, i], dim=1), table=xor.expand(len(i), -1))

    def threshold(self, length: int) -> int:
        return length // 2


def test_a_threshold_in_the_middle():
    assert ManyChanges().check(40, inputs=300).holds


# -- broken in one place -------------------------------------------------------------------------------------------


def queries_halved(model: Model) -> Model:
    queries, _, _ = mixer(model, 0).project.weight.chunk(3)
    queries *= 0.5
    return model


def last_head_gone(model: Model) -> Model:
    part = mixer(model, 0)
    part.out.weight[:, -part.dim :] = 0
    return model


def wrong(claim: Thresholds, length: int, change: Change | None = None) -> int:
    return examine(claim, length, 300, change).wrong


@pytest.mark.parametrize("claim", [*CLAIMS, ManyChanges])
@pytest.mark.parametrize("change", [queries_halved, last_head_gone])
def test_with_queries_halved_or_a_head_gone_it_fails(claim: type[Thresholds], change: Change):
    assert wrong(claim(), 40, change)


@pytest.mark.parametrize("claim", [*CLAIMS, ManyChanges])
@pytest.mark.parametrize("more", [-1, 1])
def test_with_another_threshold_it_fails(claim: type[Thresholds], more: int):
    class Off(claim):  # type: ignore[misc, valid-type]
        def threshold(self, length: int) -> int:
            return int(super().threshold(length)) + more

    assert wrong(Off(), 40)


@pytest.mark.parametrize("claim", [KDnf, KCnf])
def test_one_table_for_all_positions_fails(claim: type[Thresholds]):
    class Shared(claim):  # type: ignore[misc, valid-type]
        def features(self, length: int) -> Features:
            at, of, table = super().features(length)
            return Features(at, of, table[:1].expand(len(table), -1))

    assert wrong(Shared(), 40)


@pytest.mark.parametrize("claim", [KDnf, KCnf])
def test_a_feature_computed_before_its_bits_fails(claim: type[Thresholds]):
    class Early(claim):  # type: ignore[misc, valid-type]
        def features(self, length: int) -> Features:
            _, of, table = super().features(length)
            return Features(torch.arange(length), of, table)

    assert wrong(Early(), 40)


# -- formulas ------------------------------------------------------------------------------------------------------


def naive(text: str, bits: list[bool]) -> bool:
    """Python's own reading of a formula."""
    for i in range(len(bits), 0, -1):
        text = text.replace(f"x{i}", str(bits[i - 1]))
    return bool(eval(text.replace("~", " not ").replace("&", " and ").replace("|", " or ")))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("DNF", "(x1 & ~x3) | (x2 & x4)"),
        ("DNF", "x1 & ~ x2 | x3"),
        ("DNF", "~x2"),
        ("DNF", "(x1 & ~x1) | (x4 & x4 & x5)"),
        ("DNF", "(x1 & x2 & ~x3 & x4 & x5 & x6 & x7 & x8) | x9"),
        ("CNF", "(x1 | ~x3) & (x2 | x4)"),
        ("CNF", "x1 & x2 & ~x5"),
        ("CNF", "(x1|x2|x3)&(~x1|~x2)"),
        *[(form, random_formula(form, n)) for form in FORMS for n in (3, 7)],
    ],
)
def test_a_formula_means_what_python_says_and_two_layers_evaluate_it(form: Form, text: str):
    task = Formula(text=text, form=form)
    bits = strings(2, task.variables)
    said = task.solve(bits)[:, -1].tolist()
    assert said == [naive(text, row) for row in (bits == 2).tolist()]
    result = (KDnf if form == "DNF" else KCnf)(text).check(inputs=100)
    assert result.holds
    assert result.length == task.variables
    assert result.inputs >= len(task.literals) * len(bits) + 100


@pytest.mark.parametrize(
    "text",
    ["", "x0", "y1", "x1 &", "x1 || x2", "(x1 & x2", "x1)", "(x1 | x2) & x3", "x1 x2", "x 1", "~~x1", "x12345", "()"],
)
def test_what_is_no_dnf_is_told_so_in_one_line(text: str):
    with pytest.raises(BadInput, match=r"^'.*' is not a clause of a DNF like \(x1 & ~x3\) \| \(x2 & x4\) of x1 to x"):
        KDnf(text)


def test_what_is_no_cnf_is_told_so_in_one_line():
    with pytest.raises(BadInput, match=r"^'x1 \| x2' is not a clause of a CNF like"):
        Formula(text="x1 | x2 & x3", form="CNF")  # & binds before |


def test_too_many_literals():
    with pytest.raises(BadInput, match=r"has 9 literals; at most 8$"):
        clauses_of(" & ".join(f"x{i}" for i in range(1, 10)), "DNF")


def test_a_formula_has_its_own_length():
    with pytest.raises(BadInput, match="this formula has 4 variables"):
        KDnf("x1 | x4").check(5)
    with pytest.raises(BadInput, match="at least 3 variables"):
        KDnf().check(2)


@pytest.mark.parametrize("form", FORMS)
def test_both_answers_are_drawn_and_no_row_depends_on_the_others(form: Form):
    task = Formula(text=random_formula(form, 60), form=form)
    batch = task.batch(torch.full((400,), 120), Rng.seeded(5).rows(400))
    assert 0.35 < float(batch.targets[:, -1].float().mean()) < 0.65
    alone = task.inputs(torch.tensor([120]), Rng.seeded(5).rows(1, 7))
    assert torch.equal(alone[0], batch.inputs[7])
    assert (batch.inputs[:, 60:] == 3).all()
    assert (batch.inputs[:, :60] < 3).all()


def test_a_missing_bit_is_false():
    assert Formula(text="~x3").explain("11") == ".1"
    assert Formula(text="x3").explain("11") == ".0"
