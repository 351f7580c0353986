"""Published strings: the distribution of the published generator, and its defects."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from math import sqrt

import pytest
import torch

from assay.errors import BadInput
from assay.rng import Rng
from assay.tasks import TASKS, example_task, named_task
from assay.tasks.published import size_chances
from assay.tasks.task import Task, unpadded

from . import naive
from .cases import assert_distribution, texts

PUBLISHED = ("dyck-1", "shuffle", "reset-dyck-1")
WINDOWS = [(2, 50), (51, 100), (201, 1024)]


def published(name: str, low: int, high: int, rows: int = 12_000) -> tuple[Task, torch.Tensor]:
    task = named_task(name, strings="published")
    return task, task.published(low, high, Rng.seeded(0, "published test").rows(rows))


def phrase_chances(longest: int) -> dict[str, float]:
    """The probability of every phrase of the grammar; one that is too long counts as empty. Found by iteration."""
    chances = {"": 1.0}
    for _ in range(60):
        following: defaultdict[str, float] = defaultdict(float)
        following[""] = 0.25
        for inner, chance in chances.items():
            phrase = f"({inner})"
            following[phrase if len(phrase) <= longest else ""] += chance / 2
            for right, other in chances.items():
                following[inner + right if len(inner + right) <= longest else ""] += chance * other / 4
        chances = dict(following)
    return chances


def given(chances: dict[str, float], low: int) -> dict[str, float]:
    """The chances of the words that are not rejected for being short."""
    long_enough = {word: chance for word, chance in chances.items() if len(word) >= low}
    return {word: chance / sum(long_enough.values()) for word, chance in long_enough.items()}


def simulated(longest: int, coin: random.Random, around: int = 0) -> str:
    """A phrase, rule by rule, inside so many brackets: as in the published code, which also limits the depth."""
    draw = coin.random()
    if draw < 0.25 or around >= longest:
        return ""
    if draw < 0.75:
        phrase = f"({simulated(longest, coin, around + 2)})"
    else:
        phrase = simulated(longest, coin, around) + simulated(longest, coin, around)
    return phrase if len(phrase) <= longest else ""


# -- distributions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(1, 5), (2, 6), (4, 6), (5, 9), (8, 8)])
def test_dyck_words_are_those_of_the_grammar(low: int, high: int):
    task, inputs = published("dyck-1", low, high)
    assert_distribution(Counter(texts(task, inputs)), given(phrase_chances(high), max(low, 1)))


@pytest.mark.parametrize(("low", "high"), [(2, 4), (4, 6)])
def test_both_bracket_types_are_equally_likely(low: int, high: int):
    task, inputs = published("shuffle", low, high)
    chances: dict[str, float] = {}
    for word, chance in given(phrase_chances(high), low).items():
        partners = matched(word)
        openings = [i for i, bracket in enumerate(word) if bracket == "("]
        for kinds in range(2 ** len(openings)):
            square = {i for number, i in enumerate(openings) if kinds >> number & 1}
            square |= {partners[i] for i in square}
            typed = "".join("[]"["()".index(c)] if i in square else c for i, c in enumerate(word))
            chances[typed] = chance / 2 ** len(openings)
    assert_distribution(Counter(texts(task, inputs)), chances)


def matched(word: str) -> dict[int, int]:
    """Where each opening bracket is closed."""
    open_, partners = list[int](), dict[int, int]()
    for i, bracket in enumerate(word):
        if bracket == "(":
            open_.append(i)
        else:
            partners[open_.pop()] = i
    return partners


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 3), (4, 4), (5, 5), (3, 6)])
def test_words_with_a_reset_are_a_beginning_the_reset_and_a_word(low: int, high: int):
    task, inputs = published("reset-dyck-1", low, high)
    phrases = phrase_chances(high)
    chances: defaultdict[str, float] = defaultdict(float)
    for first, chance in phrases.items():
        for end in range(len(first) + 1):
            for second, other in phrases.items():
                chances[f"{first[:end]}1{second}"] += chance * other / (len(first) + 1)
    observed = Counter(texts(task, inputs))
    if high == 1:
        assert set(observed) == {"1"}
    else:
        assert_distribution(observed, given(dict(chances), low))


@pytest.mark.parametrize(("low", "high"), [(2, 50), (21, 40)])
def test_long_words_have_the_lengths_and_depths_of_the_grammar(low: int, high: int):
    coin, words = random.Random(0), list[str]()
    while len(words) < 3000:
        word = simulated(high, coin)
        words += [word] if len(word) >= low else []
    sizes = size_chances(high // 2).tolist()
    rest = sum(sizes[(low + 1) // 2 :])
    chances = {2 * n: size / rest for n, size in enumerate(sizes) if 2 * n >= low}
    task, inputs = published("dyck-1", low, high, 3000)
    for observed in (words, texts(task, inputs)):
        assert_distribution(Counter(map(len, observed)), chances)
    depths, simulated_depths = (
        torch.tensor([max(naive_depths(word)) for word in words_]).double() for words_ in (texts(task, inputs), words)
    )
    tolerance = 4 * sqrt(2 / 3000) * simulated_depths.std()
    assert abs(depths.mean() - simulated_depths.mean()) < tolerance


def naive_depths(word: str) -> list[int]:
    return [word[: i + 1].count("(") - word[: i + 1].count(")") for i in range(len(word))]


@pytest.mark.parametrize("most", [0, 1, 7, 25, 100])
def test_the_chances_of_all_sizes_are_one(most: int):
    sizes = size_chances(most)
    assert len(sizes) == most + 1
    assert abs(sizes.sum().item() - 1) < 1e-12
    twice = torch.stack([sizes[: n + 1] @ sizes[: n + 1].flip(0) for n in range(1, most + 1)]) if most else sizes[:0]
    torch.testing.assert_close(sizes[1:], sizes[:-1] / 2 + twice / 4, rtol=1e-12, atol=0)


# -- every published task ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), WINDOWS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_strings_are_words_of_the_stated_lengths(name: str, low: int, high: int):
    task, inputs = published(name, low, high, 300)
    lengths = unpadded(inputs).sum(1)
    assert inputs.shape[1] == task.width(high)
    assert torch.equal(lengths, (inputs > 0).sum(1)), "nothing after the first padding"
    assert lengths.min() >= low
    assert lengths.max() <= task.width(high)
    answers = task.solve(inputs)
    assert (answers != task.answers.index("dead")).all()
    assert (answers.gather(1, lengths[:, None] - 1) == 0).all(), "all brackets are closed at the end"


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_row_is_the_same_in_any_batch(name: str):
    task, many = published(name, 2, 50, 100)
    rng = Rng.seeded(0, "published test")
    assert torch.equal(task.published(2, 50, rng.rows(8)), many[:8])
    assert torch.equal(task.published(2, 50, rng.rows(20, first=40)), many[40:60])
    assert task.published(2, 50, rng.rows(0)).shape == (0, task.width(50))


def test_published_shuffles_are_well_nested():
    task, inputs = published("shuffle", 20, 60, 300)
    assert all(naive.bounded_dyck(list(word), depth=60)[-1] == "1" for word in texts(task, inputs))
    assert {3, 4} <= set(inputs.flatten().tolist())


def test_published_strings_have_one_reset_and_may_be_longer_than_the_window():
    _, inputs = published("reset-dyck-1", 51, 100)
    assert ((inputs == 3).sum(1) == 1).all()
    lengths = (inputs > 0).sum(1)
    assert lengths.min() == 51
    assert 0.1 < (lengths > 100).double().mean() < 0.3


def test_published_words_are_deep():
    """Bin1 as measured with the published code: median depth 14."""
    _, inputs = published("dyck-1", 51, 100, 4000)
    assert ((inputs == 1).long() - (inputs == 2).long()).cumsum(1).amax(1).median() == 14


# -- the option --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_other_strings_are_an_option_of_the_same_task(name: str):
    uniform = named_task(name)
    assert not uniform.is_published
    assert "strings" not in uniform.plain(), "as in older records"
    assert uniform.other_strings() == named_task(name, strings="published")
    assert uniform.other_strings().other_strings() == uniform


@pytest.mark.parametrize("name", [name for name in TASKS.entries if name not in PUBLISHED])
def test_other_tasks_have_no_published_strings(name: str):
    task = example_task(name)
    assert task.width(77) == 77
    for ask in (task.other_strings, lambda: task.published(2, 50, Rng.seeded(0).rows(1))):
        with pytest.raises(BadInput, match=f"^{name} has no published strings$"):
            ask()


@pytest.mark.parametrize("k", [1, 3])
def test_other_shuffles_have_no_published_strings(k: int):
    with pytest.raises(BadInput, match=rf"^shuffle: k = {k} has no published strings; k = 2 has$"):
        named_task("shuffle", k=k).other_strings()


# -- growing excursions ------------------------------------------------------------------------------------------------


def longest_stretch(excursions: str, length: int) -> float:
    """The mean of the longest stretch without a reset."""
    task = named_task("reset-dyck-1", excursions=excursions)
    inputs = task.inputs(torch.full((400,), length), Rng.seeded(0, "stretch").rows(400))
    return sum(max(map(len, word.split("1"))) for word in texts(task, inputs)) / 400


def test_excursions_grow_with_the_length_or_stay_short():
    growing = {length: longest_stretch("growing", length) for length in (50, 100, 200, 400, 800)}
    shares = [stretch / length for length, stretch in growing.items()]
    assert max(shares) < 1.25 * min(shares), "about the same share of the word at every length"
    assert growing[800] > 12 * growing[50]
    assert longest_stretch("short", 800) < 3 * longest_stretch("short", 50)


def test_words_of_training_are_the_same_with_growing_excursions():
    lengths, rng = torch.arange(1, 61), Rng.seeded(0).rows(60)
    short, growing = (
        named_task("reset-dyck-1", excursions=excursions).inputs(lengths, rng) for excursions in ("short", "growing")
    )
    assert torch.equal(short[:50], growing[:50])
    assert not torch.equal(short, growing)
    assert "excursions" not in named_task("reset-dyck-1").plain()
