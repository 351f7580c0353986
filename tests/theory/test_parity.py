"""Parity by five machines: right at every length, and wrong as soon as one thing about them is."""

from __future__ import annotations

import pytest

from assay.models.skeleton import Model
from assay.theory.claim import Recurrent
from assay.theory.constructions.parity import (
    DeltaNetParity,
    ElmanParity,
    LstmParity,
    RecurrentDeltaParity,
    SrwmParity,
)

from .cases import examine, mixer

WIDTHS = {DeltaNetParity: 2, LstmParity: 1, RecurrentDeltaParity: 1, SrwmParity: 7, ElmanParity: 2}


@pytest.mark.parametrize("machine", WIDTHS)
def test_right_at_a_length_of_a_thousand(machine: type[Recurrent]):
    result = machine().check(1000, inputs=64)
    assert result.holds
    assert result.width == WIDTHS[machine]
    assert result.margin == pytest.approx(1, abs=1e-4)


class Projects(DeltaNetParity):
    """beta up to 1: a write replaces what stood there, and the second 1 changes nothing."""

    reach = 1


class LeakyGates(LstmParity):
    saturation = 3.0


class LeakyRows(SrwmParity):
    saturation = 3.0


@pytest.mark.parametrize("broken", [Projects, LeakyGates, LeakyRows])
def test_wrong_where_a_write_does_not_reach(broken: type[Recurrent]):
    assert examine(broken(), 100, 64).wrong > 0


def weaker_feedback(model: Model) -> Model:
    mixer(model, 0).R_v.mul_(0.5)
    return model


def no_feedback(model: Model) -> Model:
    mixer(model, 0).R.zero_()
    return model


def test_wrong_where_the_last_output_is_heard_too_little():
    for machine, change in ((RecurrentDeltaParity(), weaker_feedback), (ElmanParity(), no_feedback)):
        assert examine(machine, 100, 64, change).wrong > 0
