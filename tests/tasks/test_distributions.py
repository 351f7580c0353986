"""The stated distributions of the samplers: regular languages, pairs of strings, lookup and recall."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import permutations, product
from math import sqrt

import pytest
import torch
from torch import Tensor

from assay.rng import Rng
from assay.tasks import named_task
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.phone_book import PhoneBook
from assay.tasks.recall import MultiQueryRecall, Recall
from assay.tasks.task import Task

from . import naive
from .cases import (
    CASES,
    NO_BB,
    assert_distribution,
    assert_rate,
    assert_uniform,
    drawn,
    names,
    texts,
)

# -- regular languages -----------------------------------------------------------------------------------------


def test_regular_words_are_equally_likely():
    """The 21 words of length 6 over a and b without bb."""
    words = ["".join(w) for w in product("ab", repeat=6) if "bb" not in "".join(w)]
    assert len(words) == 21
    assert_uniform(Counter(texts(CASES["regex"].task, drawn(CASES["regex"].task, 6, 8000))), words)
    assert all(re.fullmatch(naive.pattern(NO_BB), word) for word in words)


def test_even_words_are_equally_likely():
    words = ["".join(w) for w in product("01", repeat=6) if w.count("1") % 2 == 0]
    assert_uniform(Counter(texts(named_task("parity"), drawn(named_task("parity"), 6, 8000))), words)


def test_expressions_are_equally_likely():
    task = named_task("modular-arithmetic", n=2)
    expressions = ["".join(w) for w in product("01", "+-*", "01", "+-*", "01")]
    assert_uniform(Counter(texts(task, drawn(task, 5, 16000))), expressions)


def test_long_regular_words_are_found():
    """Of more than 2^600 words of length 1,000 none is the likeliest, and none is outside of the language."""
    rows = texts(CASES["regex"].task, drawn(CASES["regex"].task, 1000, 50))
    assert len(set(rows)) == 50
    assert not any("bb" in row for row in rows)


def test_a_rare_word_of_a_regular_language_is_drawn_where_it_is_the_only_one():
    task = named_task("regex", pattern="a*b|bbb")
    assert set(texts(task, drawn(task, 3, 1000))) == {"aab", "bbb"}
    assert set(texts(task, drawn(task, 400, 20))) == {"a" * 399 + "b"}


def test_four_tokens_in_five_keep_the_bit():
    assert_distribution(
        Counter("".join(texts(named_task("flip-flop"), drawn(named_task("flip-flop"), 50, 400)))),
        {"s": 0.1, "r": 0.1, "-": 0.8},
    )


@pytest.mark.parametrize("name", ["cyclic", "s3", "a5", "group"])
def test_group_elements_are_uniform(name: str):
    task = CASES[name].task
    rows = drawn(task, 50, 400)
    assert_uniform(Counter(rows.flatten().tolist()), range(1, len(task.symbols) + 1))
    assert len(task.symbols) == {"cyclic": 3, "s3": 6, "a5": 60, "group": 8}[name]


# -- two strings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equality-random", "equality-one", "disjointness"])
@pytest.mark.parametrize("length", [3, 21])
def test_half_of_the_decisions_are_yes(name: str, length: int):
    targets = named_task(name).solve(drawn(named_task(name), length, 4000))
    assert_rate(targets[:, -1] == 1, 0.5)


def test_random_halves_are_as_stated():
    """A negative is another uniform string; where it equals x, one of its two symbols changes."""
    strings = ["".join(s) for s in product("01", repeat=2)]
    chances = {}
    for x, y in product(strings, repeat=2):
        distance = sum(a != b for a, b in zip(x, y, strict=True))
        negative = {0: 0, 1: 1 / 4 + 1 / 4 / 2, 2: 1 / 4}[distance]
        chances[f"{x}#{y}"] = 1 / 4 * ((x == y) / 2 + negative / 2)
    assert_distribution(
        Counter(texts(named_task("equality-random"), drawn(named_task("equality-random"), 5, 8000))), chances
    )


def test_one_symbol_differs():
    """In exactly one place, uniformly chosen, and to any other symbol alike."""
    task = named_task("equality-one", alphabet=5)
    inputs = drawn(task, 13, 8000)
    x, y = inputs[:, :6], inputs[:, 7:]
    differences = (x != y).sum(1)
    assert set(differences.tolist()) == {0, 1}
    assert torch.equal(differences == 0, task.solve(inputs)[:, -1] == 1)
    places = (x != y).nonzero()[:, 1]
    assert_uniform(Counter(places.tolist()), range(6))
    changes = zip(x[x != y].tolist(), y[x != y].tolist(), strict=True)
    assert_uniform(Counter(changes), permutations(range(1, 6), 2))
    assert_uniform(Counter(x.flatten().tolist()), range(1, 6))


def test_copies_are_copies_of_uniform_strings():
    task = named_task("equality-ncp", alphabet=5)
    inputs = drawn(task, 13, 2000)
    assert torch.equal(inputs[:, :6], inputs[:, 7:])
    assert (inputs[:, 6] == 6).all()
    assert_uniform(Counter(inputs[:, :6].flatten().tolist()), range(1, 6))
    assert torch.equal(task.solve(inputs)[:, 6:12], inputs[:, :6] - 1)


def test_disjoint_sets_are_as_stated():
    """Positives: every place 00, 01 or 10. Negatives: exactly one place 11."""
    apart, meeting = [("0", "0"), ("0", "1"), ("1", "0")], ("1", "1")
    chances: defaultdict[str, float] = defaultdict(float)
    for pairs in product(apart, repeat=3):
        chances["#".join(map("".join, zip(*pairs, strict=True)))] += 1 / 2 / 3**3
    for place, others in product(range(3), product(apart, repeat=2)):
        pairs = (*others[:place], meeting, *others[place:])
        chances["#".join(map("".join, zip(*pairs, strict=True)))] += 1 / 2 / 3 / 3**2
    assert_distribution(
        Counter(texts(named_task("disjointness"), drawn(named_task("disjointness"), 7, 12000))), chances
    )


# -- lookup ----------------------------------------------------------------------------------------------------


def test_index_and_symbols_are_uniform():
    task = named_task("index-lookup", alphabet=4, positions=9)
    inputs = drawn(task, 8, 8000)
    assert_uniform(Counter(inputs[:, :7].flatten().tolist()), range(1, 5))
    assert_uniform(Counter(names(task, row)[-1] for row in inputs), [f"@{p}" for p in range(1, 8)])
    # And so is the answer: it cannot be guessed.
    assert_uniform(Counter(task.solve(inputs)[:, -1].tolist()), range(4))


def test_index_lookup_is_tested_at_its_longest():
    task = named_task("index-lookup", positions=20)
    bins = [(b.name, b.low, b.high) for b in task.bins(*task.train_lengths)]
    assert bins == [("Bin0", 11, 21), ("Bin1", 21, 21)]


def test_points_are_unit_vectors_with_fair_labels():
    task = NearestNeighbour(dimension=5)
    inputs = drawn(task, 21, 500)
    points, labels = inputs[:, ::2], inputs[:, 1::2]
    assert torch.allclose(points[..., :5].norm(dim=-1), torch.ones(500, 11), atol=1e-6)
    assert (points[..., 5:] == 0).all()
    assert (labels[..., :5] == 0).all()
    assert (labels[..., 5:].sort(-1).values == torch.tensor([0.0, 1.0])).all()
    assert_rate(labels[..., 6] == 1, 0.5)
    assert_rate(task.solve(inputs)[:, -1] == 1, 0.5)


@pytest.mark.parametrize(("dimension", "margin"), [(2, 0.3), (2, 0.1), (3, 0.01), (16, 0.3), (16, 0.1)])
def test_the_margin_is_kept_and_the_nearest_is_any(dimension: int, margin: float):
    task = NearestNeighbour(dimension=dimension, margin=margin)
    points = drawn(task, 21, 1000)[:, ::2, :dimension].double()
    nearness = (points[:, :-1] * points[:, -1:]).sum(-1)
    best, second = nearness.topk(2, dim=1).values.T
    assert (best - second >= margin).all()
    assert_uniform(Counter(nearness.argmax(1).tolist()), range(10))
    # The last point is the chosen one moved by half a unit vector, so by at most 30 degrees.
    assert best.min() >= sqrt(0.75) - 1e-6
    assert best.std() > 0.01


# -- recall ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocabulary", "length"), [(16, 15), (64, 21), (512, 51)])
def test_one_of_distinct_keys_is_asked_for(vocabulary: int, length: int):
    task = Recall(vocabulary=vocabulary)
    inputs = drawn(task, length, 4000)
    keys, values, query = inputs[:, :-1:2], inputs[:, 1::2], inputs[:, -1:]
    assert ((keys == query).sum(1) == 1).all()
    assert_uniform(Counter((keys == query).nonzero()[:, 1].tolist()), range(length // 2))
    assert_uniform(Counter(keys.flatten().tolist()), range(1, vocabulary // 2 + 1))
    assert_uniform(Counter(values.flatten().tolist()), range(vocabulary // 2 + 1, vocabulary + 1))
    assert torch.equal(task.solve(inputs)[:, -1], values[keys == query] - vocabulary // 2 - 1)


def repeated_keys(keys: Tensor) -> int:
    """The rows in which a key comes twice."""
    ascending = keys.sort(1).values
    return int((ascending[:, 1:] == ascending[:, :-1]).any(1).sum())


@pytest.mark.parametrize(
    ("task", "length", "pairs"),
    [
        (Recall(vocabulary=8192), 1201, 600),
        (MultiQueryRecall(pairs_bound=64), 256, 64),
        (MultiQueryRecall(pairs_bound=256), 1024, 256),
        (MultiQueryRecall(vocabulary=32, pairs_bound=16), 64, 16),
    ],
    ids=["recall 600 of 4096", "64 of 4096", "256 of 4096", "16 of 16"],
)
def test_many_keys_are_distinct(task: Task, length: int, pairs: int):
    rows = 500_000 // length
    assert repeated_keys(drawn(task, length, rows)[:, : 2 * pairs : 2]) == 0


def test_every_bound_key_is_asked_for():
    task = MultiQueryRecall(vocabulary=64, pairs_bound=4)
    inputs = drawn(task, 32, 2000)
    keys, values, rest = inputs[:, :8:2], inputs[:, 1:8:2], inputs[:, 8::2]
    assert (rest[:, :, None] == keys[:, None]).any(1).all()
    assert repeated_keys(keys) == 0
    assert_uniform(Counter(keys.flatten().tolist()), range(1, 33))
    assert_uniform(Counter(values.flatten().tolist()), range(33, 65))
    targets = task.solve(inputs)[:, 8::2]
    right = (rest[:, :, None] == keys[:, None]) & (targets[:, :, None] == values[:, None] - 33)
    assert right.any(1).all()


@pytest.mark.parametrize("power", [0.01, 0.5, 2.0])
def test_queries_stand_in_slots_of_a_power_law(power: float):
    """Two keys take two of seven slots, each drawn with weight slot^(power - 1), without replacement."""
    task = MultiQueryRecall(pairs_bound=2, power=power)
    inputs = drawn(task, 18, 6000)
    keys, rest = inputs[:, :4:2], inputs[:, 4:]
    found = rest[:, :, None] == keys[:, None]
    once = (found.sum(1) == 1).all(1)  # leave out the few rows where noise happens to be one of the keys
    assert once.double().mean() > 0.99
    places = found[once].long().argmax(1)
    assert (places % 2 == 0).all()
    weights = [slot ** (power - 1) for slot in range(1, 8)]
    chances = {
        (i, j): weights[i] / sum(weights) * weights[j] / (sum(weights) - weights[i])
        for i, j in permutations(range(7), 2)
    }
    assert_distribution(Counter(map(tuple, (places // 2).tolist())), chances)


def test_every_name_of_a_book_is_another_one_and_any_is_asked_for():
    """Names, digits and the entry that is asked for are uniform, and the right digits follow the question."""
    task = PhoneBook(names=4, digits=3)
    inputs = drawn(task, task.length(5), 6000)
    book, query, said = inputs[:, :30].view(-1, 5, 6), inputs[:, 30:32], inputs[:, 33:]
    name = (book[..., 0] - 1) * 4 + book[..., 1] - 5
    assert repeated_keys(name) == 0
    assert_uniform(Counter(name.flatten().tolist()), range(16))
    assert_uniform(Counter((book[..., 2:5] - 9).flatten().tolist()), range(10))
    asked = (book[..., :2] == query[:, None]).all(-1)
    assert_uniform(Counter(asked.nonzero()[:, 1].tolist()), range(5))
    assert torch.equal(said, book[asked][:, 2:4])
    assert torch.equal(task.solve(inputs)[:, 32:], book[asked][:, 2:5] - 9)


def test_noise_is_uniform():
    task = MultiQueryRecall(vocabulary=20, pairs_bound=2)
    noise = drawn(task, 40, 2000)[:, 5::2]  # no query stands here
    assert_uniform(Counter(noise.flatten().tolist()), range(1, 21))


def test_runs_among_the_inputs():
    """Half of the inputs have a stretch of one symbol; the others are drawn as without the option."""
    plain, mixed = named_task("flip-flop"), named_task("flip-flop", runs=0.5)
    lengths, rng = torch.full((2000,), 40), Rng.seeded(0).rows(2000)
    before, after = plain.inputs(lengths, rng), mixed.inputs(lengths, rng)
    changed = (before != after).any(1)
    assert 0.40 < changed.double().mean() < 0.5, "a stretch may be empty, or what it replaces"
    for old, new in zip(before[changed].tolist(), after[changed].tolist(), strict=True):
        places = [i for i in range(40) if old[i] != new[i]]
        assert len({new[i] for i in range(places[0], places[-1] + 1)}) == 1
    assert mixed.plain()["runs"] == 0.5
    assert "runs" not in plain.plain(), "digests of earlier runs stay"
