"""The parallel forms equal the reference: outputs, final states and gradients, at lengths around the chunk's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .cases import CASES, Case, with_backends


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@with_backends("chunked")
@pytest.mark.parametrize("time", [1, 64, 65, 130])
def test_equals_the_reference(case: Case, backend: str, time: int):
    parts = case.draw(time)
    for chunked, folded in zip(case.gradients(parts, backend), case.gradients(parts), strict=True):
        close(chunked, folded)


@pytest.mark.parametrize("sizes", [{"L": 1}, {"R": 0}, {"L": 1, "R": 0, "M": 1}, {"M": 3, "K": 5}], ids=str)
def test_decays_and_corrections_of_a_transition(sizes: dict[str, int]):
    """A decay of exactly zero and a negative one are decays like any other."""
    case = CASES["dplr"]
    parts = case.draw(70, **sizes)
    parts[0][3][:, :, 5], parts[0][3][:, :, 40] = 0, -1
    for chunked, folded in zip(case.gradients(parts, "chunked"), case.gradients(parts), strict=True):
        close(chunked, folded)
