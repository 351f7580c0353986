"""The least precision of a construction: the fewest bits per number with which it is still exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

from assay.models.attention import AttentionLayer
from assay.models.skeleton import Model
from assay.numbers import Fixed, Float, Format
from assay.rng import Rng
from assay.theory.claim import Change, Construction, Machine
from assay.theory.rounding import Rounded

Part = Literal["weights", "activations", "state", "all"]
PARTS: tuple[Part, ...] = get_args(Part)
INPUTS = 256  # random inputs for each format that is tried
RUNGS = (31, 16, 8, 4, 2, 1, 0)  # bits, tried from above until one fails
GENEROUS = RUNGS[0]


def rounding_change(format: Format, part: Part = "all") -> Change:
    """A change that rounds one part of a machine's numbers to a format.

    The other numbers are float64, so that only the format can cause a failure.
    """
    rounds = {name: part in (name, "all") for name in PARTS if name != "all"}
    return lambda model: Rounded(model.double(), format, **rounds)


def exact(claim: Construction, length: int, part: Part, format: Format, inputs: int = INPUTS) -> bool:
    """Whether a construction answers all of some random inputs correctly with one part of its numbers in this format.

    A format that fails on very few inputs may pass, so a least format can be a bit too coarse, but never too fine.
    """
    return _exact(claim, claim.machine(length), part, format, inputs)


def _exact(claim: Construction, machine: Machine, part: Part, format: Format, inputs: int) -> bool:
    assert isinstance(machine.module, Model)
    rounded = machine._replace(module=rounding_change(format, part)(machine.module))
    return claim.examine_random(rounded, Rng.seeded(0, "precision"), inputs).wrong == 0


def least(holds: Callable[[int], bool]) -> int | None:
    """The least number of bits such that this and all larger numbers tried hold; None if 31 bits fail.

    The search goes down, so a smaller number that holds by chance below one that fails is not reported.

    >>> least(lambda bits: bits >= 9 or bits == 3)
    9
    """
    held: int | None = None
    failed = -1
    for bits in RUNGS:
        if not holds(bits):
            failed = bits
            break
        held = bits
    if held is None:
        return None
    return next((bits + 1 for bits in range(held - 1, failed, -1) if not holds(bits)), failed + 1)


def least_fraction(claim: Construction, length: int, part: Part = "all", inputs: int = INPUTS) -> int | None:
    """The least number of fraction bits, with plenty of whole bits; None if 31 are too few."""
    machine = claim.machine(length)
    return least(lambda bits: _exact(claim, machine, part, Fixed(GENEROUS, bits), inputs))


def least_fixed(claim: Construction, length: int, part: Part = "all", inputs: int = INPUTS) -> Fixed | None:
    """The fixed-point format with the least fraction bits, and with these the least whole bits."""
    fraction = least_fraction(claim, length, part, inputs)
    if fraction is None:
        return None
    machine = claim.machine(length)
    whole = least(lambda bits: _exact(claim, machine, part, Fixed(bits, fraction), inputs))
    return None if whole is None else Fixed(whole, fraction)


def least_mantissa(
    claim: Construction, length: int, part: Part = "all", exponent: int = 8, inputs: int = INPUTS
) -> int | None:
    """The least number of mantissa bits of floating-point numbers; None if 31 are too few."""
    machine = claim.machine(length)
    return least(lambda bits: bits > 0 and _exact(claim, machine, part, Float(exponent, bits), inputs))


def parts(claim: Construction, length: int) -> tuple[Part, ...]:
    """The parts that a construction has. The cache of attention counts as activations, not as a state."""
    recurrent = any(not isinstance(block.mixer, AttentionLayer) for block in claim.build(length).blocks)
    return tuple(part for part in PARTS if part != "state" or recurrent)


def survey(
    claim: Construction, length: int, some_parts: Iterable[Part] | None = None, inputs: int = INPUTS
) -> list[dict[str, Any]]:
    """The least fixed-point format of each part of a construction (all by default), as rows for a chart."""
    rows, width = [], claim.build(length).read_out.in_features
    for part in parts(claim, length) if some_parts is None else some_parts:
        format = least_fixed(claim, length, part, inputs)
        row = {"claim": claim.name, "length": length, "width": width, "part": part}
        bits = (None,) * 3 if format is None else (format.whole, format.fraction, format.bits)
        rows.append(row | dict(zip(("whole", "fraction", "bits"), bits, strict=True)))
    return rows
