"""The random generator: its bits are known, frozen, and look random."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from math import sqrt
from statistics import NormalDist

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.rng import Rng, mix

torch.set_num_threads(1)
WORD = 2**64


def python_mix(z: int) -> int:
    """The finaliser of SplitMix64, on Python's own integers."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def python_words(seed: int, path: list[int | str], columns: int) -> list[int]:
    stride = 0x9E3779B97F4A7C15
    key = seed % WORD
    for part in path:
        name = hashlib.blake2b(part.encode(), digest_size=8).hexdigest() if isinstance(part, str) else f"{part:x}"
        key = python_mix(key ^ python_mix((int(name, 16) + stride) % WORD))
    return [python_mix((key + (column + 1) * stride) % WORD) for column in range(columns)]


def unsigned(words: Tensor) -> list[int]:
    return [word % WORD for word in words.tolist()]


def assert_chi_square(observed: Tensor, expected: float) -> None:
    """At four standard deviations (Wilson-Hilferty); the seeds are fixed, so it passes always or never."""
    statistic = float(((observed.double() - expected) ** 2 / expected).sum())
    freedom = observed.numel() - 1
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 4 * sqrt(2 / (9 * freedom))) ** 3


# -- which bits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
    ],
)
def test_a_bare_seed_is_published_splitmix64(seed: int, words: list[int]):
    assert unsigned(Rng.seeded(seed).words(4)) == words


numbers = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=numbers, path=st.lists(numbers | st.text(max_size=5), max_size=4))
def test_words_are_the_python_hash_of_where_they_stand(seed: int, path: list[int | str]):
    assert unsigned(Rng.seeded(seed, *path).words(5)) == python_words(seed, path, 5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(words=st.lists(numbers, min_size=1, max_size=50))
def test_mix_is_the_python_mix(words: list[int]):
    given = torch.tensor(words)
    assert unsigned(mix(given)) == [python_mix(word % WORD) for word in words]
    assert given.tolist() == words


def test_rows_and_tensors_of_numbers_are_paths():
    rows = Rng.seeded(7, "x").rows(3, first=5).words(4)
    assert [unsigned(row) for row in rows] == [python_words(7, ["x", row], 4) for row in (5, 6, 7)]
    steps = Rng.seeded(7).rows(3).child(torch.tensor([4, 4, 9])).words(2)
    assert [unsigned(row) for row in steps] == [python_words(7, [i, n], 2) for i, n in enumerate((4, 4, 9))]


def test_frozen_draws():
    """If one of these ever changes, so does every sample of every study: do not touch them."""
    rng = Rng.seeded(2024, "golden", 3)
    assert rng.words(3).tolist() == [2007347968915888913, -3745567579085958112, 1314417001377251583]
    assert rng.rows(2).words(2).tolist() == [
        [-4496977321770732592, 2367448319631262803],
        [6267604659064661219, 227121542749544955],
    ]
    assert rng.integers(8, 10).tolist() == [1, 7, 0, 3, 5, 5, 9, 2]
    assert [x.hex() for x in rng.uniform(2).tolist()] == ["0x1.bdb8857a3d558p-4", "0x1.980a24436cb92p-1"]
    normals = torch.tensor([-0.369880464836, 0.358395983413, 0.081769875228, -1.232838274342, 0.198366687939])
    assert torch.equal(rng.normal(5), normals)
    assert rng.order(8).tolist() == [4, 5, 1, 6, 2, 0, 7, 3]


# -- what a draw depends on ------------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[Rng, int], Tensor]] = {
    "words": lambda rng, columns: rng.words(columns),
    "integers": lambda rng, columns: rng.integers(columns, 1000),
    "uniform": lambda rng, columns: rng.uniform(columns),
    "normal": lambda rng, columns: rng.normal(columns),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_row_does_not_depend_on_the_count(draw: Callable[[Rng, int], Tensor]):
    rng = Rng.seeded(1, "rows")
    many = draw(rng.rows(100), 6)
    assert many.shape == (100, 6)
    assert torch.equal(draw(rng.rows(8), 6), many[:8])
    assert torch.equal(draw(rng.rows(20, first=50), 6), many[50:70])
    assert torch.equal(draw(rng.child(33), 6), many[33])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@pytest.mark.parametrize("columns", [1, 3, 4, 5])
def test_a_column_does_not_depend_on_the_columns_behind_it(draw: Callable[[Rng, int], Tensor], columns: int):
    rng = Rng.seeded(1, "columns").rows(3)
    assert torch.equal(draw(rng, columns), draw(rng, 11)[:, :columns])


def test_drawing_changes_nothing():
    rng = Rng.seeded(5, "again").rows(2)
    assert torch.equal(rng.words(4), rng.words(4))
    assert torch.equal(rng.order(4), rng.order(4))


def test_no_columns_are_no_draws():
    rng = Rng.seeded(5).rows(2)
    assert all(draw(rng, 0).shape == (2, 0) for draw in DRAWS.values())
    assert rng.order(0).shape == (2, 0)


def test_a_path_may_be_walked_in_parts():
    rng = Rng.seeded(9)
    assert torch.equal(rng.child("a", 2, "b").keys, rng.child("a").child(2).child("b").keys)
    assert torch.equal(rng.child("a", 2).keys, Rng.seeded(9, "a", 2).keys)
    assert torch.equal(rng.child().keys, rng.keys)


def test_other_paths_are_other_generators():
    """A name is not the number it spells, order matters, and so does every step."""
    paths: list[tuple[int | str, ...]] = [
        (),
        (1,),
        ("1",),
        (1, 2),
        (2, 1),
        ("a", "b"),
        ("b", "a"),
        ("ab",),
        ("a",),
        ("a", 0),
        (0, "a"),
        (0,),
        (-1,),
        ("",),
    ]
    keys = [Rng.seeded(seed, *path).keys.item() for seed in (0, 1, -1) for path in paths]
    assert len(set(keys)) == len(keys)


def test_many_rows_have_different_keys():
    assert len(Rng.seeded(0).rows(200_000).keys.unique()) == 200_000


# -- how the bits look -----------------------------------------------------------------------------------------


def test_every_byte_of_a_word_is_uniform():
    words = Rng.seeded(11, "bytes").rows(64).words(512).flatten()
    for byte in range(8):
        counts = (words >> 8 * byte & 0xFF).bincount(minlength=256)
        assert_chi_square(counts, len(words) / 256)


NEIGHBOURS: dict[str, Callable[[int], tuple[Rng, Rng]]] = {
    "seeds": lambda i: (Rng.seeded(i, "s"), Rng.seeded(i + 1, "s")),
    "bare seeds": lambda i: (Rng.seeded(i), Rng.seeded(i + 1)),
    "numbers": lambda i: (Rng.seeded(3, "s", i), Rng.seeded(3, "s", i + 1)),
    "names": lambda i: (Rng.seeded(3, f"s{i}"), Rng.seeded(3, f"s{i + 1}")),
    "parent and child": lambda i: (Rng.seeded(3, i), Rng.seeded(3, i, 0)),
    "swapped": lambda i: (Rng.seeded(3, i, i + 1), Rng.seeded(3, i + 1, i)),
}


def assert_unrelated(a: Tensor, b: Tensor) -> None:
    """Every bit differs in half of the words, and there is no linear correlation."""
    a, b = a.flatten(), b.flatten()
    differing = ((a ^ b)[:, None] >> torch.arange(64) & 1).sum(0)
    assert ((differing - len(a) / 2).abs() < 5 * sqrt(len(a)) / 2).all()
    correlation = torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1]
    assert correlation.abs() < 4 / sqrt(len(a))


@pytest.mark.parametrize("pair", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_neighbouring_generators_are_unrelated(pair: Callable[[int], tuple[Rng, Rng]]):
    pairs = [pair(i) for i in range(100)]
    assert_unrelated(*(torch.stack([p[side].words(200) for p in pairs]) for side in (0, 1)))


def test_neighbouring_rows_and_columns_are_unrelated():
    words = Rng.seeded(12, "grid").rows(200).words(200)
    assert_unrelated(words[1:], words[:-1])
    assert_unrelated(words[:, 1:], words[:, :-1])
    assert_unrelated(words[1:, 1:], words[:-1, :-1])


# -- what is made of the bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("high", [2, 3, 7, 100])
def test_integers_are_uniform_below_high(high: int):
    drawn = Rng.seeded(13, "integers").rows(40).integers(1000, high)
    assert drawn.min() == 0
    assert drawn.max() == high - 1
    assert_chi_square(drawn.flatten().bincount(minlength=high), 40_000 / high)


def test_integers_at_the_ends_of_the_range():
    rng = Rng.seeded(14).rows(10)
    assert (rng.integers(100, 1) == 0).all()
    large = rng.integers(1000, 2**31 - 1)
    assert large.min() >= 0
    assert large.max() < 2**31 - 1
    assert abs(large.double().mean() / 2**30 - 1) < 0.03


def test_integers_below_a_high_for_every_row_or_column():
    highs = torch.tensor([1, 2, 5, 30])
    by_row = Rng.seeded(15).rows(4).integers(6000, highs[:, None])
    for drawn, high in zip(by_row, highs.tolist(), strict=True):
        assert drawn.max() == high - 1
        if high > 1:
            assert_chi_square(drawn.bincount(minlength=high), 6000 / high)
    by_column = Rng.seeded(15).rows(2000).integers(4, highs)
    assert by_column.amax(0).tolist() == [0, 1, 4, 29]
    # A tensor of equal numbers draws what the number alone does.
    assert torch.equal(
        Rng.seeded(15).rows(4).integers(9, torch.full((4, 1), 77)), Rng.seeded(15).rows(4).integers(9, 77)
    )


def test_uniform_numbers():
    drawn = Rng.seeded(16, "uniform").rows(50).uniform(1000).flatten()
    assert drawn.dtype == torch.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert_chi_square((drawn * 100).long().bincount(minlength=100), 500)
    assert (drawn * 2**53 == (drawn * 2**53).floor()).all()
    assert (drawn * 2**52 != (drawn * 2**52).floor()).any()


def test_normal_numbers():
    drawn = Rng.seeded(17, "normal").rows(100).normal(1001).flatten()
    n = len(drawn)
    assert drawn.dtype == torch.float32
    drawn = drawn.double()
    # Mean, variance, skewness and kurtosis, each to four of its own standard deviations.
    for power, moment, deviation in ((1, 0, 1), (2, 1, sqrt(2)), (3, 0, sqrt(15)), (4, 3, sqrt(96))):
        assert abs((drawn**power).mean().item() - moment) < 4 * deviation / sqrt(n)
    assert drawn.abs().max() < 4.33
    quartiles = torch.tensor([-0.6744897501960817, 0.0, 0.6744897501960817], dtype=torch.float64)
    assert_chi_square(torch.bucketize(drawn, quartiles).bincount(minlength=4), n / 4)


def test_a_normal_number_is_the_quantile_of_sixteen_bits():
    words = unsigned(Rng.seeded(21).words(25))
    quarters = [word >> bits & 0xFFFF for word in words for bits in (0, 16, 32, 48)]
    quantiles = [NormalDist().inv_cdf((quarter + 0.5) / 2**16) for quarter in quarters]
    assert Rng.seeded(21).normal(100).tolist() == pytest.approx(quantiles, rel=1e-7)


def test_the_four_normals_of_a_word_are_uncorrelated():
    drawn = Rng.seeded(18).normal(40_000).view(-1, 4)
    off_diagonal = torch.corrcoef(drawn.T) - torch.eye(4)
    assert off_diagonal.abs().max() < 4 / sqrt(10_000)


def test_orders_are_permutations():
    drawn = Rng.seeded(19).rows(50).order(33)
    assert (drawn.sort(1).values == torch.arange(33)).all()


def test_every_permutation_is_equally_likely():
    drawn = Counter(map(tuple, Rng.seeded(20).rows(6000).order(4).tolist()))
    counts = torch.tensor([drawn[p] for p in permutations(range(4))])
    assert counts.sum() == 6000
    assert_chi_square(counts, 6000 / 24)
