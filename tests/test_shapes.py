"""The shapes that signatures state are checked in the tests, at every call with other shapes."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from assay.models.mixer import join_heads


def test_what_a_signature_states_is_checked():
    for _ in "12":
        assert join_heads(torch.zeros(2, 3, 4, 5)).shape == (2, 4, 15)
        with pytest.raises(TypeCheckError):
            join_heads(torch.zeros(2, 3, 4))
        with pytest.raises(TypeCheckError):
            join_heads(torch.zeros(2, 3, 4, 5, dtype=torch.long))
