"""Codes: the guarantee of each is checked, not believed."""

from __future__ import annotations

import doctest

import pytest
import torch

from assay.errors import BadInput
from assay.rng import Rng
from assay.theory import codes
from assay.theory.codes import (
    PRIMITIVE,
    Code,
    _times,
    binary,
    largest_inner_product,
    random_signs,
    scattered_code,
    scattered_size,
    trace_code,
)


def brute(signs: torch.Tensor) -> float:
    products = signs @ signs.T
    return float(products.fill_diagonal_(-torch.inf).max()) / signs.shape[1]


@pytest.mark.parametrize(("k", "vectors", "gamma"), [(32, 2048, 1 / 4), (64, 8192, 1 / 4), (128, 4096, 1 / 8)])
def test_the_published_table_of_trace_codes(k: int, vectors: int, gamma: float):
    code = trace_code(vectors, gamma)
    assert code.k == k
    assert code.gamma == gamma
    assert set(code.signs.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(("m", "t"), [(2, 1), (3, 1), (3, 2), (4, 2), (5, 2), (4, 3)])
def test_the_transform_gives_the_largest_inner_product_of_all_codewords(m: int, t: int):
    from assay.theory.codes import _codewords

    whole = _codewords(m, t, torch.arange(2 ** (m * t + 1)), signed=False)
    assert largest_inner_product(m, t) == brute(whole)
    distinct = len(whole.unique(dim=0)) == len(whole)
    assert distinct == (t < 3), "x^5 says little new in GF(16): the same vector twice, gamma 1"


def test_without_complements_absolute_values_are_bounded_too():
    code = trace_code(500, signed=True)
    products = (code.signs @ code.signs.T / code.k).fill_diagonal_(0)
    assert float(products.abs().max()) <= 0.25
    both = trace_code(500)
    assert float((both.signs @ both.signs.T / both.k).min()) == -1.0, "a code with complements holds opposites"


def test_docstrings():
    assert doctest.testmod(codes).failed == 0


@pytest.mark.parametrize("m", [3, 4, 5, 6, 7, 8])
def test_the_size_of_a_scattered_code_follows_from_its_largest_inner_product(m: int):
    gamma = largest_inner_product(m, 2)
    assert scattered_size(4**m, gamma) == m
    assert scattered_size(4**m, gamma / 1.01) > m
    assert scattered_size(4**m + 1, gamma) > m


def test_scattered_vectors_are_nearly_orthogonal_and_not_orthogonal():
    signs = scattered_code(24, 1 / 16, Rng.seeded(0)).signs
    products = (signs @ signs.T / 512).fill_diagonal_(0).abs()
    assert set(products.unique().tolist()) == {0.0, 1 / 16}
    assert 0.3 < float((products > 0).float().mean()) < 0.7
    with pytest.raises(BadInput, match=r"have 2\^11 coordinates; at most 2\^9 here$"):
        scattered_code(24, 1 / 32, Rng.seeded(0))


@pytest.mark.parametrize("m", PRIMITIVE)
def test_the_polynomials_are_primitive(m: int):
    x, seen = torch.tensor(2), {1}
    power = torch.tensor(2)
    while int(power) not in seen:
        seen.add(int(power))
        power = _times(m, power, x)
    assert len(seen) == 2**m - 1, "x generates every element of the field but zero"


@pytest.mark.parametrize("count", [1, 2, 3, 1024, 1500])
def test_gamma_is_the_largest_inner_product_of_two_different_vectors(count: int):
    code = Code("drawn", 2.0 * Rng.seeded(3).rows(count).integers(24, 2) - 1)
    assert code.gamma == (brute(code.signs) if count > 1 else -1.0)


def test_random_signs_keep_their_promise_in_the_published_number_of_dimensions():
    code = random_signs(40, 0.25, Rng.seeded(1))
    assert code.k == 561  # ceil(128 ln 80): far more than one-hot vectors would take
    assert brute(code.signs) <= 0.25


def test_binary_digits_differ_in_one_at_least():
    code = binary(100)
    assert code.k == 7
    assert code.gamma == 1 - 2 / 7


@pytest.mark.parametrize("code", [trace_code(300), binary(300)], ids=lambda code: code.name)
def test_at_the_scale_the_right_vector_gets_its_weight(code: Code):
    for eps in (1 / 4, 1 / 16):
        eta = code.scale(len(code.signs), eps)
        weights = (eta / code.k * code.signs @ code.signs.T).softmax(1).diagonal()
        assert float(weights.min()) >= 1 - eps
    duller = code.scale(300, 1e-3) / 4
    assert float((duller / code.k * code.signs @ code.signs.T).softmax(1).diagonal().min()) < 1 - 1e-3


def test_a_code_that_is_not_there_says_what_is():
    with pytest.raises(BadInput, match="at most 2\\^25"):
        trace_code(2**26)
