"""The stated distributions of the samplers of bracket languages."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations, product
from math import sqrt

import pytest
import torch
from torch import Tensor

from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.bounded_dyck import BoundedDyck

from . import naive
from .cases import (
    assert_distribution,
    assert_rate,
    assert_uniform,
    drawn,
    texts,
)


def dyck_words(length: int) -> list[str]:
    words = map("".join, product("()", repeat=length))
    return [w for w in words if naive.dyck_rest(w) == ""]


def test_dyck_words_are_equally_likely():
    words = dyck_words(8)
    assert len(words) == 14
    assert_uniform(Counter(texts(named_task("dyck-1"), drawn(named_task("dyck-1"), 8, 8000))), words)


def shuffle_chances(length: int) -> Counter[str]:
    """Types of pairs uniform, their places uniform, each type's own brackets a uniform Dyck word."""
    chances: Counter[str] = Counter()
    for round_pairs in range(length // 2 + 1):
        ways = len(list(combinations(range(length // 2), round_pairs)))
        all_places = list(combinations(range(length), 2 * round_pairs))
        round_words, square_words = dyck_words(2 * round_pairs), dyck_words(length - 2 * round_pairs)
        for places, a, b in product(all_places, round_words, square_words):
            brackets = {True: iter(a), False: iter(b.replace("(", "[").replace(")", "]"))}
            word = "".join(next(brackets[i in places]) for i in range(length))
            share = ways / 2 ** (length // 2) / len(all_places) / len(round_words) / len(square_words)
            chances[word] += share
    return chances


def test_shuffled_words_are_as_stated_and_truly_interleaved():
    observed = Counter(texts(named_task("shuffle"), drawn(named_task("shuffle"), 6, 12000)))
    assert_distribution(observed, shuffle_chances(6))
    assert observed["([)]()"] > 0
    crossing = sum(n for word, n in observed.items() if naive.bounded_dyck(list(word), depth=6)[-1] == "0")
    assert crossing > 0.2 * 12000


def reset_chances(length: int) -> dict[str, float]:
    """Coin by coin, as the task's description says."""
    chances: defaultdict[str, float] = defaultdict(float)
    for coins in product([True, False], repeat=length):
        chance = Fraction(1)
        for coin in coins:
            chance *= Fraction(1 if coin else 9, 10)
        resets = list(coins)
        last = length - resets[::-1].index(True) if True in resets else 0
        if (length - last) % 2:
            resets[last] = True
            last += 1
        beginnings: dict[tuple[str, int], Fraction] = {("", 0): chance}
        for reset in resets[:last]:
            grown: defaultdict[tuple[str, int], Fraction] = defaultdict(Fraction)
            for (text, depth), share in beginnings.items():
                if reset:
                    grown[text + "1", 0] += share
                elif depth == 0:
                    grown[text + "(", 1] += share
                else:
                    grown[text + "(", depth + 1] += share / 2
                    grown[text + ")", depth - 1] += share / 2
            beginnings = grown
        endings = dyck_words(length - last)
        for ((text, _), share), ending in product(beginnings.items(), endings):
            chances[text + ending] += float(share / len(endings))
    return chances


@pytest.mark.parametrize("length", [1, 4, 5, 6])
def test_words_with_resets_are_as_stated(length: int):
    task = named_task("reset-dyck-1")
    observed = Counter(texts(task, drawn(task, length, 12000)))
    chances = reset_chances(length)
    if length == 1:
        assert set(observed) == set(chances) == {"1"}
    else:
        assert_distribution(observed, chances)


def test_the_number_of_resets_varies():
    resets = (drawn(named_task("reset-dyck-1"), 30, 4000) == 3).sum(1)
    counts = Counter(resets.tolist())
    assert min(counts[0], counts[1], counts[2], counts[3], counts[6]) > 40
    # One in ten, and one more where the last stretch would be odd.
    odd = sum(0.1 * 0.9**rest for rest in range(1, 30, 2))
    assert abs(resets.double().mean().item() - (3 + odd)) < 4 * sqrt(30 * 0.09 + 0.25) / sqrt(4000)


def bounded_dyck_chances(length: int, k: int, depth: int) -> dict[str, float]:
    """A fair walk on depths 0 to `depth` that turns where it must, with uniform types."""
    chances: defaultdict[str, float] = defaultdict(float)

    def walk(word: str, stack: str, share: float) -> None:
        to_come = length - len(word)
        if to_come == 0:
            chances[word] += share
            return
        may_open = len(stack) < min(depth, to_come)
        may_close = len(stack) > 0
        for pair in naive.PAIRS[:k] if may_open else ():
            walk(word + pair[0], stack + pair[1], share / k / (1 + may_close))
        if may_close:
            walk(word + stack[-1], stack[:-1], share / (1 + may_open))

    walk("", "", 1.0)
    return chances


@pytest.mark.parametrize(("k", "depth"), [(1, 3), (2, 2), (3, 1)])
def test_bounded_dyck_words_are_as_stated(k: int, depth: int):
    task = named_task("bounded-dyck", k=k, depth=depth)
    inputs = drawn(task, 6, 12000)
    words = [word for word in texts(task, inputs) if naive.bounded_dyck(list(word), depth)[-1] == "1"]
    assert_distribution(Counter(words), bounded_dyck_chances(6, k, depth))


@pytest.mark.parametrize("negatives", ["corrupted", "count-balanced"])
@pytest.mark.parametrize(("k", "depth", "length"), [(2, 2, 20), (2, 2, 100), (1, 2, 20), (2, 1, 2), (4, 3, 40)])
def test_half_of_bounded_dyck_is_negative(negatives: str, k: int, depth: int, length: int):
    task = named_task("bounded-dyck", k=k, depth=depth, negatives=negatives)
    rng = Rng.seeded(0, "label test").rows(2000)
    batch = task.batch(torch.full((2000,), length), rng)
    accepted = batch.targets[:, -1] == 1
    assert_rate(accepted, 0.5)
    # Every row that was meant to be a negative is one: the labels are a stream of their own.
    assert torch.equal(accepted, rng.child("label").integers(1, 2)[:, 0] == 1)


def words_and_corrupted(length: int, count: int) -> tuple[Tensor, Tensor]:
    """Bounded Dyck words and what becomes of them as negatives."""
    task = BoundedDyck(k=2, depth=2)
    rng = Rng.seeded(0, "corrupt").rows(count)
    lengths = torch.full((count,), length)
    words = task._words(lengths, rng.child("words"), length)
    return words, task._corrupt(words, lengths, rng.child("negatives"))


@pytest.mark.parametrize("length", [8, 20, 44])
def test_the_number_of_corrupted_positions(length: int):
    words, spoilt = words_and_corrupted(length, 4000)
    changes = Counter((words != spoilt).sum(1).tolist())
    most = max(length // 10, 1)
    assert set(changes) == set(range(1, most + 1))
    if most > 1:
        # Where changes cancel only one of them is made: a few more ones than their share.
        assert all(abs(changes[n] / 4000 - 1 / most) < 0.04 for n in changes)


def test_half_of_the_corruptions_change_the_type_and_half_the_direction():
    words, spoilt = words_and_corrupted(20, 4000)
    changed = words != spoilt
    another_type = ((words - 1) // 2 != (spoilt - 1) // 2)[changed]
    another_direction = (words % 2 != spoilt % 2)[changed]
    assert (another_type ^ another_direction).all()
    assert_rate(another_type, 0.5)
    # The places are uniform.
    assert_uniform(Counter(changed.nonzero()[:, 1].tolist()), range(20))


def test_brackets_of_one_type_exchange_the_first_and_the_last():
    task = named_task("bounded-dyck", k=1, depth=3, negatives="count-balanced")
    negatives = [row for row in texts(task, drawn(task, 12, 400)) if naive.bounded_dyck(list(row), 3)[-1] == "0"]
    restored = ["(" + row[1:-1] + ")" for row in negatives]
    assert {row[0] + row[-1] for row in negatives} == {")("}
    assert all(naive.bounded_dyck(list(row), 3)[-1] == "1" for row in restored)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_count_balanced_negatives_keep_every_count(k: int):
    task = named_task("bounded-dyck", k=k, depth=3, negatives="count-balanced")
    inputs = drawn(task, 20, 2000)
    assert (task.solve(inputs)[:, -1] == 0).any()
    for kind in range(k):
        assert torch.equal((inputs == 2 * kind + 1).sum(1), (inputs == 2 * kind + 2).sum(1))


def test_corrupted_negatives_have_a_count_balanced_probe():
    probes = {
        negatives: [probe.name for probe in named_task("bounded-dyck", negatives=negatives).probes((20, 100), 200)]
        for negatives in ("corrupted", "count-balanced")
    }
    assert "count-balanced" in probes["corrupted"]
    assert "count-balanced" not in probes["count-balanced"]
