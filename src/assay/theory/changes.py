"""A construction with something changed before it is checked: the format of its numbers, or its attention."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from assay.description import BadInput, suggestion
from assay.models.attention import WEIGHTINGS
from assay.models.rounded import read_format
from assay.models.skeleton import Model
from assay.theory.attention_variants import attention_layers, exchanged, weighing
from assay.theory.claim import Change, Claim, Construction
from assay.theory.precision import PARTS, rounding


def change_of(numbers: str | None, part: str, attention: str | None) -> Change:
    """Round a part of all numbers to a format, and weigh by another attention. What is not rounded is in float64."""
    format = None if numbers is None else read_format(numbers)
    if part not in PARTS:
        raise BadInput(f"there is no part '{part}' to round{suggestion(part, PARTS)}")
    if attention is not None and attention not in WEIGHTINGS:
        raise BadInput(f"unknown attention '{attention}'{suggestion(attention, WEIGHTINGS)}")

    def change(model: Model) -> nn.Module:
        if attention is not None:
            model = exchanged(model, [weighing(attention)] * len(attention_layers(model)))
        return model if format is None else rounding(format, part)(model)

    return change


def changeable(claims: Sequence[Claim], attention: str | None) -> list[Construction]:
    """Those in which there is something to change."""
    found = [claim for claim in claims if isinstance(claim, Construction)]
    if attention is None:
        return found
    return [claim for claim in found if attention_layers(claim.build(min(claim.length, 8)))]
