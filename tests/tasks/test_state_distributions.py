"""The stated distributions of the samplers of state tracking: flip-flop language, Tomita, arithmetic with brackets."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch

from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.bins import Bin

from . import naive
from .cases import assert_distribution, assert_rate, assert_uniform, drawn, texts


@pytest.mark.parametrize("ignore", [0.8, 0.98, 0.1])
def test_flip_flop_strings_are_as_published(ignore: float):
    """w first and r last; of the others a share is ignored, the rest is half w and half r; other bits are fair."""
    rows = texts(named_task("flip-flop-language"), drawn(named_task("flip-flop-language", ignore=ignore), 64, 600))
    assert {row[0] + row[-2] for row in rows} == {"wr"}
    others = Counter(instruction for row in rows for instruction in row[2:-2:2])
    rest = (1 - ignore) / 2
    assert_distribution(others, {"i": ignore, "w": rest, "r": rest})
    bits = Counter(
        bit for row in rows for instruction, bit in zip(row[::2], row[1::2], strict=True) if instruction != "r"
    )
    assert_uniform(bits, "01")


def test_flip_flop_asks_at_reads_alone():
    task = named_task("flip-flop-language")
    inputs = drawn(task, 64, 100)
    assert torch.equal(task.solve(inputs) >= 0, inputs == task.symbols.index("r") + 1)


def test_bins_of_flip_flop_are_sparse_and_dense():
    task = named_task("flip-flop-language")
    bins = {bin_.name: bin_ for bin_ in task.bins(16, 16)}
    assert task.in_bin(bins["Bin0"]) is task
    assert task.in_bin(bins["Sparse"]) == named_task("flip-flop-language", ignore=0.98)
    assert task.in_bin(bins["Dense"]) == named_task("flip-flop-language", ignore=0.1)
    from_json: dict[str, Any] = {"name": "Sparse", "low": 16, "high": 16, "options": {"ignore": 0.98}}
    assert Bin(**from_json) == bins["Sparse"]
    plain = Bin(name="Bin0", low=1, high=2).plain()
    assert "options" not in plain, "digests of earlier runs stay"


@pytest.mark.parametrize("grammar", range(1, 8))
def test_half_of_tomita_are_beginnings_of_words_and_half_are_changed(grammar: int):
    """Beginnings are uniform; the others have one to three flips at uniform places (which may coincide)."""
    task, length = named_task("tomita", grammar=grammar), 5
    strings = ["".join(word) for word in product("01", repeat=length)]
    alive = {
        text
        for text in strings
        if any(
            naive.tomita([*text, *more], grammar)[-1] == "1" for size in range(3) for more in product("01", repeat=size)
        )
    }
    chances = Counter[str]()
    for word in alive:
        chances[word] += 1 / len(alive) / 2  # type: ignore[assignment]
        for count in (1, 2, 3):
            for places in product(range(length), repeat=count):
                flipped = "".join("10"[int(bit)] if i in places else bit for i, bit in enumerate(word))
                chances[flipped] += 1 / len(alive) / 2 / 3 / length**count  # type: ignore[assignment]
    assert_distribution(Counter(texts(task, drawn(task, length, 12000))), chances)


def test_short_expressions_are_as_stated():
    """A uniform digit, with a sign or brackets at lengths 2 to 4; at length 9 the operator has five places."""
    task = named_task("modular-arithmetic-brackets", n=2)
    for length, shape in enumerate(["{}", "-{}", "({})", "(-{})"], 1):
        assert_uniform(Counter(texts(task, drawn(task, length, 2000))), [shape.format(digit) for digit in "01"])
    pairs = [(left, sign, right) for left in "01" for sign in "+-" for right in "01"]
    assert_uniform(Counter(texts(task, drawn(task, 5, 8000))), [f"({''.join(pair)})" for pair in pairs])
    marks = Counter("".join("x" if c in "01" else c for c in text) for text in texts(task, drawn(task, 9, 8000)))
    two = {f"(x{a}(x{b}x))": 1 / 20 for a, b in product("+-", repeat=2)}
    two |= {f"((x{b}x){a}x)": 1 / 20 for a, b in product("+-", repeat=2)}
    two |= {f"(-x{a}(-x))": 1 / 10 for a in "+-"} | {f"((x){a}(x))": 1 / 10 for a in "+-"}
    assert_distribution(marks, two | {f"((-x){a}-x)": 1 / 10 for a in "+-"})


def test_the_number_of_expressions():
    task = named_task("modular-arithmetic-brackets", n=2, multiply=True)
    for length in range(1, 8):
        count = len(set(texts(task, drawn(task, length, 4000))))
        assert 2 ** task.log2_inputs(length) == pytest.approx(count)


def test_values_of_expressions_are_nearly_uniform():
    task = named_task("modular-arithmetic-brackets")
    values = task.solve(drawn(task, 39, 2000))[:, -1]
    assert_uniform(Counter(values.tolist()), range(5))


def test_parity_at_the_end_is_asked_of_all_strings():
    task = named_task("parity", questions="at the end")
    targets = task.solve(drawn(task, 21, 4000))
    assert_rate(targets[:, -1] == 1, 0.5)
    assert (targets[:, :-1] < 0).all()
    assert "questions" not in named_task("parity").plain(), "digests of earlier runs stay"


def test_probes_of_a_task_that_asks_at_the_end_end_with_a_question():
    task = named_task("modular-arithmetic", questions="at the end")
    probes = task.probes((3, 9), 40)
    assert probes
    for probe in probes:
        assert (task.solve(probe.inputs) >= 0).any(1).all()
    lassos = named_task("parity", questions="at the end").probes((2, 50), 100)[0].inputs
    lengths = {int(length) for length in (lassos > 0).sum(1)}
    assert lengths == {100, 50, 25, 12, 6, 3, 1}


def test_dihedral_symmetries_are_uniform():
    task = named_task("dihedral", n=4)
    rows = task.inputs(torch.full((400,), 50), Rng.seeded(0).rows(400))
    assert_uniform(Counter(rows.flatten().tolist()), range(1, 9))
