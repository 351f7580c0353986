"""A state that is rounded or disturbed after every step."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInput
from assay.models import named_model
from assay.numbers import read_format
from assay.rng import Rng

TOKENS = torch.tensor([[1, 2, 2, 1, 2, 1, 1]])


def model(**state: object) -> torch.nn.Module:
    options = {"width": 8, "layers": 1, **({"state": state} if state else {})}
    return named_model("lstm", **options).build(3, 0, 2, Rng.seeded(0))


def test_a_rounded_state_has_only_numbers_of_its_format():
    rounded = model(numbers="fixed:1.3")
    logits, (_, (states,)) = rounded(TOKENS)
    for x in states:
        assert torch.equal(x, read_format("fixed:1.3").round(x))
    assert not torch.equal(logits, model()(TOKENS)[0])
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in rounded.parameters()), "gradients pass"


def test_noise_disturbs_training_only_and_repeats():
    noisy, plain = model(noise=0.1), model()
    first, second = noisy(TOKENS)[0], noisy(TOKENS)[0]
    assert torch.equal(first, second)
    expected = plain(TOKENS)[0]
    assert 0 < (first - expected).abs().max() < 1
    assert torch.allclose(noisy.eval()(TOKENS)[0], plain.eval()(TOKENS)[0], atol=1e-6)


def test_a_wrong_format_is_refused():
    with pytest.raises(BadInput, match="fixed"):
        model(numbers="fixd:1.3")
