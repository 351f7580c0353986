"""What the samplers draw: exact lengths, strings of the language, and the stated distributions."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product
from math import inf, log2, sqrt

import pytest
import torch
from torch import Tensor

from assay.description import BadInput
from assay.rng import Rng
from assay.tasks.dyck import BoundedDyck
from assay.tasks.neighbour import NearestNeighbour
from assay.tasks.recall import MultiQueryRecall, Recall
from assay.tasks.task import Task, unpadded

from . import naive
from .cases import (
    CASES,
    NO_BB,
    Case,
    assert_distribution,
    assert_rate,
    assert_uniform,
    drawn,
    made,
    names,
    of_every_length,
    texts,
)

ALL = {**{name: case.task for name, case in CASES.items()}, "nearest-neighbour": NearestNeighbour(dimension=4)}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_task = pytest.mark.parametrize("task", ALL.values(), ids=ALL.keys())
one_word_per_length = {"even-a", "abab", "an-bn", "an-bn-cn", "an-bn-cn-dn"}


# -- every sampler ---------------------------------------------------------------------------------------------


@every_task
def test_lengths_are_exact(task: Task):
    lengths = of_every_length(task, 25).repeat(4)
    inputs = task.inputs(lengths, Rng.seeded(1).rows(len(lengths)), width=25)
    filled = inputs != 0 if inputs.ndim == 2 else (inputs != 0).any(-1)
    assert torch.equal(filled, torch.arange(25) < lengths[:, None])
    assert torch.equal(filled, unpadded(inputs))


@every_task
def test_padding_to_the_longest_row_unless_told(task: Task):
    lengths = of_every_length(task, 25)
    assert task.inputs(lengths, Rng.seeded(1).rows(len(lengths))).shape[1] == lengths.max()


@every_task
def test_padding_may_be_wider_than_any_input(task: Task):
    lengths = of_every_length(task, 25)
    assert task.inputs(lengths, Rng.seeded(1).rows(len(lengths)), width=99).shape[1] == 99


@every_case
def test_tokens_are_symbols_and_answers_have_numbers(case: Case):
    lengths = of_every_length(case.task, 25)
    batch = case.task.sample(lengths, Rng.seeded(1).rows(len(lengths)))
    assert batch.inputs.max() < case.task.shape.vocab == len(case.task.symbols) + 1
    assert batch.targets.max() < case.task.shape.answers == len(case.task.answers)
    assert len(set(case.task.symbols)) == len(case.task.symbols)
    assert len(set(case.task.answers)) == len(case.task.answers)


@every_case
def test_drawn_strings_are_in_the_language(case: Case):
    lengths = of_every_length(case.task, 24).repeat(8)
    batch = case.task.sample(lengths, Rng.seeded(2).rows(len(lengths)))
    last = batch.targets.gather(1, lengths[:, None] - 1)[:, 0].tolist()
    said = {case.task.answers[answer] for answer in set(batch.targets.flatten().tolist()) if answer >= 0}
    assert "dead" not in said
    if case.ends:
        assert {case.task.answers[answer] for answer in last} == case.ends


@every_task
def test_a_row_is_the_same_in_any_batch(task: Task):
    lengths = of_every_length(task, 25).repeat(30)[:100]
    rng = Rng.seeded(3, "batch")
    many = task.inputs(lengths, rng.rows(100), width=25)
    assert torch.equal(task.inputs(lengths[:8], rng.rows(8), width=25), many[:8])
    assert torch.equal(task.inputs(lengths[40:60], rng.rows(20, first=40), width=25), many[40:60])


@pytest.mark.parametrize("task", [*ALL.values(), Recall(vocabulary=512)], ids=[*ALL, "recall-512"])
def test_a_row_is_the_same_at_any_width(task: Task):
    lengths = of_every_length(task, 25).repeat(4)
    rng = Rng.seeded(3, "width").rows(len(lengths))
    wide = task.inputs(lengths, rng, width=131)
    for width in (25, 26, 40):
        assert torch.equal(task.inputs(lengths, rng, width), wide[:, :width])
    for length in lengths.unique().tolist():
        alike = lengths == length
        assert torch.equal(task.inputs(lengths[alike], Rng(rng.keys[alike])), wide[alike, :length])


@every_task
def test_the_same_seed_gives_the_same_bytes(task: Task):
    lengths = of_every_length(task, 25)
    first, second = (task.inputs(lengths, Rng.seeded(4, "s").rows(len(lengths))) for _ in range(2))
    assert first.numpy().tobytes() == second.numpy().tobytes()


@every_task
def test_another_seed_gives_other_bytes(task: Task):
    lengths = of_every_length(task, 25)
    first, second = (task.inputs(lengths, Rng.seeded(seed).rows(len(lengths))) for seed in (4, 5))
    assert torch.equal(first, second) == (task.kind in one_word_per_length)


@every_task
def test_rows_of_a_batch_differ(task: Task):
    longest = int(of_every_length(task, 24).max())
    rows = drawn(task, longest, 6).flatten(1)
    assert (len(rows.unique(dim=0)) == 1) == (task.kind in one_word_per_length)


# -- which lengths there are -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.ends or "dyck" in name or "n=2" in name])
def test_a_length_fits_when_some_string_is_in_the_language(name: str):
    """All strings of each short length, solved: does one of them end as words of the language do?"""
    case = CASES[name]
    tokens = torch.arange(1, len(case.task.symbols) + 1)
    for length in range(1, 6 if len(tokens) > 4 else 9 if len(tokens) > 2 else 13):
        if len(tokens) ** length > 70000:
            break
        strings = torch.cartesian_prod(*[tokens] * length).view(-1, length)
        last = {
            case.task.answers[said] if said >= 0 else None for said in set(case.task.solve(strings)[:, -1].tolist())
        }
        ends = case.ends or (set("1") if case.task.answer_positions == "at the end" else set("01"))
        assert case.task.fits(length) == bool(last & ends), f"length {length}"


@pytest.mark.parametrize(
    ("task", "fitting"),
    [
        (made("index-lookup", alphabet=3, positions=6), [2, 3, 4, 5, 6, 7]),
        (made("equality-random"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (made("equality-ncp"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (made("disjointness"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (made("nearest-neighbour"), [3, 5, 7, 9, 11, 13, 15, 17, 19]),
        (made("recall", vocabulary=12), [3, 5, 7, 9, 11]),
        (made("multi-query-recall", pairs_bound=3), [12, 14, 16, 18, 20]),
        (made("s3"), list(range(1, 21))),
        (made("flip-flop"), list(range(1, 21))),
        (made("modular-arithmetic"), [1, 3, 5, 7, 9, 11, 13, 15, 17, 19]),
    ],
    ids=lambda value: value.kind if isinstance(value, Task) else "",
)
def test_fitting_lengths(task: Task, fitting: list[int]):
    assert task.lengths(1, 20) == fitting


@every_task
def test_no_input_is_empty(task: Task):
    assert not task.fits(0)
    assert not task.fits(-1)


@pytest.mark.parametrize("name", ["parity", "even-a", "abab", "an-bn", "an-bn-cn", "dyck-1", "dfa", "regex"])
def test_the_number_of_inputs(name: str):
    """Counted one by one."""
    case = CASES[name]
    tokens = torch.arange(1, len(case.task.symbols) + 1)
    for length in case.task.lengths(1, 10):
        strings = torch.cartesian_prod(*[tokens] * length).view(-1, length)
        ends = [case.task.answers.index(end) for end in case.ends or ()]
        words = torch.isin(case.task.solve(strings)[:, -1], torch.tensor(ends)).sum().item()
        assert 2 ** case.task.log2_inputs(length) == pytest.approx(words)


@every_task
def test_there_is_always_an_input_and_never_more_than_there_are_strings(task: Task):
    for length in task.lengths(1, 40):
        most = inf if task.features else length * log2(len(task.symbols))
        assert 0 <= task.log2_inputs(length) <= most + 1e-9


def test_where_no_length_fits():
    with pytest.raises(BadInput, match="abab has no input of length 5 to 7"):
        made("abab").lengths(5, 7)
    never = made("dfa", alphabet="x", table=((0,), (1,)), accept=(1,))  # the accepting state cannot be reached
    with pytest.raises(BadInput, match="dfa has no input"):
        never.lengths(1, 10)


@every_task
def test_every_bin_has_inputs(task: Task):
    low, high = task.train_lengths
    bins = task.bins(low, high)
    assert (bins[0].low, bins[0].high) == (low, high)
    for shorter, longer in pairwise(bins):
        assert shorter.high <= longer.high
        assert task.lengths(longer.low, longer.high)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("parity", 2, 50),
        ("dyck-1", 2, 50),
        ("reset-dyck-1", 2, 50),
        ("shuffle", 2, 50),
        ("even-a", 2, 500),
        ("abab", 4, 500),
        ("an-bn", 2, 2 * 50),
        ("an-bn-cn", 3, 3 * 50),
        ("index-lookup", 11, 101),
    ],
)
def test_published_training_lengths(name: str, low: int, high: int):
    assert made(name).train_lengths == (low, high)


# -- regular languages -----------------------------------------------------------------------------------------


def test_regular_words_are_equally_likely():
    """The 21 words of length 6 over a and b without bb."""
    words = ["".join(w) for w in product("ab", repeat=6) if "bb" not in "".join(w)]
    assert len(words) == 21
    assert_uniform(Counter(texts(CASES["regex"].task, drawn(CASES["regex"].task, 6, 8000))), words)
    assert all(re.fullmatch(naive.pattern(NO_BB), word) for word in words)


def test_even_words_are_equally_likely():
    words = ["".join(w) for w in product("01", repeat=6) if w.count("1") % 2 == 0]
    assert_uniform(Counter(texts(made("parity"), drawn(made("parity"), 6, 8000))), words)


def test_expressions_are_equally_likely():
    task = made("modular-arithmetic", n=2)
    expressions = ["".join(w) for w in product("01", "+-*", "01", "+-*", "01")]
    assert_uniform(Counter(texts(task, drawn(task, 5, 16000))), expressions)


def test_long_regular_words_are_found():
    """Of more than 2^600 words of length 1,000 none is the likeliest, and none is outside of the language."""
    rows = texts(CASES["regex"].task, drawn(CASES["regex"].task, 1000, 50))
    assert len(set(rows)) == 50
    assert not any("bb" in row for row in rows)


def test_a_rare_word_of_a_regular_language_is_drawn_where_it_is_the_only_one():
    task = made("regex", pattern="a*b|bbb")
    assert set(texts(task, drawn(task, 3, 1000))) == {"aab", "bbb"}
    assert set(texts(task, drawn(task, 400, 20))) == {"a" * 399 + "b"}


def test_four_tokens_in_five_keep_the_bit():
    assert_distribution(
        Counter("".join(texts(made("flip-flop"), drawn(made("flip-flop"), 50, 400)))), {"s": 0.1, "r": 0.1, "-": 0.8}
    )


@pytest.mark.parametrize("name", ["cyclic", "s3", "a5", "group"])
def test_group_elements_are_uniform(name: str):
    task = CASES[name].task
    rows = drawn(task, 50, 400)
    assert_uniform(Counter(rows.flatten().tolist()), range(1, len(task.symbols) + 1))
    assert len(task.symbols) == {"cyclic": 3, "s3": 6, "a5": 60, "group": 8}[name]


# -- brackets --------------------------------------------------------------------------------------------------


def dyck_words(length: int) -> list[str]:
    words = map("".join, product("()", repeat=length))
    return [w for w in words if naive.dyck_rest(w) == ""]


def test_dyck_words_are_equally_likely():
    words = dyck_words(8)
    assert len(words) == 14
    assert_uniform(Counter(texts(made("dyck-1"), drawn(made("dyck-1"), 8, 8000))), words)


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
    observed = Counter(texts(made("shuffle"), drawn(made("shuffle"), 6, 12000)))
    assert_distribution(observed, shuffle_chances(6))
    assert observed["([)]()"] > 0
    crossing = sum(n for word, n in observed.items() if naive.bounded_dyck(list(word), depth=6)[-1] == "0")
    assert crossing > 0.2 * 12000


def reset_chances(length: int) -> Counter[str]:
    """Coin by coin, as the task's description says."""
    chances: Counter[str] = Counter()
    for coins in product([True, False], repeat=length):
        chance = Fraction(1)
        for coin in coins:
            chance *= Fraction(1 if coin else 9, 10)
        resets = list(coins)
        last = length - resets[::-1].index(True) if True in resets else 0
        if (length - last) % 2:
            resets[last] = True
            last += 1
        beginnings = {("", 0): chance}
        for reset in resets[:last]:
            grown: Counter[tuple[str, int]] = Counter()
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
            chances[text + ending] += share / len(endings)
    return chances


@pytest.mark.parametrize("length", [1, 4, 5, 6])
def test_words_with_resets_are_as_stated(length: int):
    task = made("reset-dyck-1")
    observed = Counter(texts(task, drawn(task, length, 12000)))
    chances = reset_chances(length)
    if length == 1:
        assert set(observed) == set(chances) == {"1"}
    else:
        assert_distribution(observed, chances)


def test_the_number_of_resets_varies():
    resets = (drawn(made("reset-dyck-1"), 30, 4000) == 3).sum(1)
    counts = Counter(resets.tolist())
    assert min(counts[0], counts[1], counts[2], counts[3], counts[6]) > 40
    # One in ten, and one more where the last stretch would be odd.
    odd = sum(0.1 * 0.9**rest for rest in range(1, 30, 2))
    assert abs(resets.double().mean().item() - (3 + odd)) < 4 * sqrt(30 * 0.09 + 0.25) / sqrt(4000)


def bounded_dyck_chances(length: int, k: int, depth: int) -> Counter[str]:
    """A fair walk on depths 0 to `depth` that turns where it must, with uniform types."""
    chances: Counter[str] = Counter()

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
    task = made("bounded-dyck", k=k, depth=depth)
    inputs = drawn(task, 6, 12000)
    words = [word for word in texts(task, inputs) if naive.bounded_dyck(list(word), depth)[-1] == "1"]
    assert_distribution(Counter(words), bounded_dyck_chances(6, k, depth))


@pytest.mark.parametrize("negatives", ["corrupted", "count-balanced"])
@pytest.mark.parametrize(("k", "depth", "length"), [(2, 2, 20), (2, 2, 100), (1, 2, 20), (2, 1, 2), (4, 3, 40)])
def test_half_of_bounded_dyck_is_negative(negatives: str, k: int, depth: int, length: int):
    task = made("bounded-dyck", k=k, depth=depth, negatives=negatives)
    rng = Rng.seeded(0, "label test").rows(2000)
    batch = task.sample(torch.full((2000,), length), rng)
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
    task = made("bounded-dyck", k=1, depth=3, negatives="count-balanced")
    negatives = [row for row in texts(task, drawn(task, 12, 400)) if naive.bounded_dyck(list(row), 3)[-1] == "0"]
    restored = ["(" + row[1:-1] + ")" for row in negatives]
    assert {row[0] + row[-1] for row in negatives} == {")("}
    assert all(naive.bounded_dyck(list(row), 3)[-1] == "1" for row in restored)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_count_balanced_negatives_keep_every_count(k: int):
    task = made("bounded-dyck", k=k, depth=3, negatives="count-balanced")
    inputs = drawn(task, 20, 2000)
    assert (task.solve(inputs)[:, -1] == 0).any()
    for kind in range(k):
        assert torch.equal((inputs == 2 * kind + 1).sum(1), (inputs == 2 * kind + 2).sum(1))


def test_corrupted_negatives_have_a_count_balanced_probe():
    task = made("bounded-dyck", k=3, depth=4)
    assert task.probes() == {"count-balanced": made("bounded-dyck", k=3, depth=4, negatives="count-balanced")}
    assert task.probes()["count-balanced"].probes() == {}


# -- two strings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equality-random", "equality-one", "disjointness"])
@pytest.mark.parametrize("length", [3, 21])
def test_half_of_the_decisions_are_yes(name: str, length: int):
    targets = made(name).solve(drawn(made(name), length, 4000))
    assert_rate(targets[:, -1] == 1, 0.5)


def test_random_halves_are_as_stated():
    """A negative is another uniform string; where it equals x, one of its two symbols changes."""
    strings = ["".join(s) for s in product("01", repeat=2)]
    chances = {}
    for x, y in product(strings, repeat=2):
        distance = sum(a != b for a, b in zip(x, y, strict=True))
        negative = {0: 0, 1: 1 / 4 + 1 / 4 / 2, 2: 1 / 4}[distance]
        chances[f"{x}#{y}"] = 1 / 4 * ((x == y) / 2 + negative / 2)
    assert_distribution(Counter(texts(made("equality-random"), drawn(made("equality-random"), 5, 8000))), chances)


def test_one_symbol_differs():
    """In exactly one place, uniformly chosen, and to any other symbol alike."""
    task = made("equality-one", alphabet=5)
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
    task = made("equality-ncp", alphabet=5)
    inputs = drawn(task, 13, 2000)
    assert torch.equal(inputs[:, :6], inputs[:, 7:])
    assert (inputs[:, 6] == 6).all()
    assert_uniform(Counter(inputs[:, :6].flatten().tolist()), range(1, 6))
    asked = task.solve(inputs)
    assert torch.equal(asked[:, 6:12], inputs[:, :6] - 1)


def test_disjoint_sets_are_as_stated():
    """Positives: every place 00, 01 or 10. Negatives: exactly one place 11."""
    apart, meeting = [("0", "0"), ("0", "1"), ("1", "0")], ("1", "1")
    chances: Counter[str] = Counter()
    for pairs in product(apart, repeat=3):
        chances["#".join(map("".join, zip(*pairs, strict=True)))] += 1 / 2 / 3**3
    for place, others in product(range(3), product(apart, repeat=2)):
        pairs = (*others[:place], meeting, *others[place:])
        chances["#".join(map("".join, zip(*pairs, strict=True)))] += 1 / 2 / 3 / 3**2
    assert_distribution(Counter(texts(made("disjointness"), drawn(made("disjointness"), 7, 12000))), chances)


# -- lookup ----------------------------------------------------------------------------------------------------


def test_index_and_symbols_are_uniform():
    task = made("index-lookup", alphabet=4, positions=9)
    inputs = drawn(task, 8, 8000)
    assert_uniform(Counter(inputs[:, :7].flatten().tolist()), range(1, 5))
    assert_uniform(Counter(names(task, row)[-1] for row in inputs), [f"@{p}" for p in range(1, 8)])
    # And so is the answer: it cannot be guessed.
    assert_uniform(Counter(task.solve(inputs)[:, -1].tolist()), range(4))


def test_index_lookup_is_tested_at_its_longest():
    task = made("index-lookup", positions=20)
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


def test_noise_is_uniform():
    task = MultiQueryRecall(vocabulary=20, pairs_bound=2)
    noise = drawn(task, 40, 2000)[:, 5::2]  # no query stands here
    assert_uniform(Counter(noise.flatten().tolist()), range(1, 21))


@pytest.mark.parametrize("task", ALL.values(), ids=ALL)
def test_the_number_of_inputs_is_never_overestimated(task: Task):
    """Lengths are split between training and testing only where there are enough inputs for it."""
    short = [length for length in range(1, 14) if task.fits(length) and task.log2_inputs(length) < 8][:4]
    for length in short:
        drawn = task.inputs(torch.full((1 << 17,), length), Rng.seeded(5, "count").rows(1 << 17))
        assert len(drawn.unique(dim=0)) >= 2 ** task.log2_inputs(length) - 0.5
