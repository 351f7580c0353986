"""The least precision: a scan that does not skip over failures, and what the lookups need."""

from __future__ import annotations

import doctest

import pytest

from assay.numbers import Fixed, Float
from assay.theory import precision
from assay.theory.constructions.index_lookup import BinaryLookup, QuadraticLookup, TraceLookup
from assay.theory.constructions.parity import ElmanParity
from assay.theory.precision import (
    exact,
    least,
    least_fixed,
    least_fraction,
    least_mantissa,
    parts,
    rounding_change,
    survey,
)


def test_doctests():
    assert doctest.testmod(precision).failed == 0


@pytest.mark.parametrize("needed", range(32))
def test_the_least_is_found(needed: int):
    assert least(lambda bits: bits >= needed) == needed


def test_what_holds_again_by_chance_is_not_the_least():
    assert least(lambda bits: bits >= 6 or bits in (0, 2, 3)) == 6
    assert least(lambda bits: bits < 31) is None


def test_trace_codes_do_with_two_fraction_bits_at_2048():
    assert exact(TraceLookup(), 2048, "all", Fixed(7, 2))
    assert not exact(TraceLookup(), 2048, "all", Fixed(6, 2))  # eta sqrt(d) is beyond 64


def test_the_frontier_between_width_and_precision():
    lookups = TraceLookup(), BinaryLookup(), QuadraticLookup()
    trace, binary, quadratic = (least_fixed(claim, 128, inputs=64) for claim in lookups)
    assert trace is not None
    assert binary is not None
    assert quadratic is not None
    assert trace.bits < binary.bits < quadratic.bits
    assert trace.fraction <= 2


def test_quadratic_positions_need_ever_more():
    few, many = (least_fixed(QuadraticLookup(), length, inputs=32) for length in (16, 64))
    assert few is not None
    assert many is not None
    assert few.bits + 4 <= many.bits  # j^2 has two bits more at twice the length
    small, large = (least_mantissa(QuadraticLookup(), length, inputs=32) for length in (16, 64))
    assert small is not None
    assert large is not None
    assert small + 2 <= large


def test_one_bit_fewer_fails():
    claim, length = QuadraticLookup(), 32
    format = least_fixed(claim, length, "weights", inputs=64)
    assert format is not None
    assert exact(claim, length, "weights", format, inputs=64)
    assert not exact(claim, length, "weights", Fixed(format.whole - 1, format.fraction), inputs=64)
    mantissa = least_mantissa(claim, length, "activations", inputs=64)
    assert mantissa is not None
    assert not exact(claim, length, "activations", Float(8, mantissa - 1), inputs=64)


class Dull(QuadraticLookup):
    """Attention is spread over the neighbours, however fine the numbers are."""

    eta = 0.1


def test_what_is_wrong_in_any_precision_has_no_least():
    assert least_fraction(Dull(), 16, inputs=32) is None
    rows = survey(Dull(), 16, inputs=32)
    assert [row["bits"] for row in rows] == [None] * 3
    assert [row["part"] for row in rows] == [*parts(Dull(), 16)]


def test_a_state_is_a_part_of_what_recurs():
    assert parts(TraceLookup(), 8) == ("weights", "activations", "all")
    assert parts(ElmanParity(), 8) == ("weights", "activations", "state", "all")
    assert least_fixed(ElmanParity(), 8, "state", inputs=50) == Fixed(1, 0)


def test_survey():
    claim = BinaryLookup()
    claim.name = "lookup-binary"
    (row,) = survey(claim, 8, ("all",), inputs=4)
    assert row["bits"] == 1 + row["whole"] + row["fraction"]
    assert (row["claim"], row["part"], row["length"], row["width"]) == ("lookup-binary", "all", 8, 12)


def test_a_change_for_check():
    assert TraceLookup().check(8, change=rounding_change(Fixed(6, 2)), inputs=8).holds
    assert not TraceLookup().check(8, change=rounding_change(Fixed(2, 2)), inputs=8).holds
