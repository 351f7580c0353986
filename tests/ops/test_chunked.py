"""The parallel forms equal the reference: outputs, final states and gradients, at lengths around the chunk's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from .cases import Case, with_backends


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@with_backends("chunked")
@pytest.mark.parametrize("time", [1, 64, 65, 130])
def test_equals_the_reference(case: Case, backend: str, time: int):
    parts = case.draw(time)
    for chunked, folded in zip(case.gradients(parts, backend), case.gradients(parts), strict=True):
        close(chunked, folded)
