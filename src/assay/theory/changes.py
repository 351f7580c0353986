"""Changes to a construction before it is checked: the format of its numbers, or its attention."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from assay.errors import BadInput, suggestion
from assay.models.attention import WEIGHTINGS
from assay.models.skeleton import Model
from assay.numbers import read_format
from assay.theory.attention_variants import attention_layers, exchanged, weighing
from assay.theory.claim import Change, Claim, Construction
from assay.theory.precision import PARTS, rounding_change


def change_of(numbers: str | None, part: str, attention: str | None) -> Change:
    """A change that rounds one part of the numbers to a format and replaces softmax attention; None leaves as it is.

    Numbers that are not rounded are float64 if a format is given.
    """
    format = None if numbers is None else read_format(numbers)
    if part not in PARTS:
        raise BadInput(f"there is no part '{part}' to round{suggestion(part, PARTS)}")
    if attention is not None and attention not in WEIGHTINGS:
        raise BadInput(f"unknown attention '{attention}'{suggestion(attention, WEIGHTINGS)}")

    def change(model: Model) -> nn.Module:
        if attention is not None:
            model = exchanged(model, [weighing(attention)] * len(attention_layers(model)))
        return model if format is None else rounding_change(format, part)(model)

    return change


def changeable(claims: Sequence[Claim], attention: str | None) -> list[Construction]:
    """The constructions among the claims; if attention is to be replaced, those with attention."""
    constructions = [claim for claim in claims if isinstance(claim, Construction)]
    if attention is None:
        return constructions
    return [claim for claim in constructions if attention_layers(claim.build(min(claim.length, 8)))]
