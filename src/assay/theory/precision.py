"""How few bits a construction does with: the coarsest numbers in which it is still exact, as a function of N."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

from assay.models.attention import AttentionLayer
from assay.models.rounded import Fixed, Float, Format, Rounded
from assay.rng import Rng
from assay.theory.claim import Change, Construction

Part = Literal["weights", "activations", "state", "all"]
PARTS: tuple[Part, ...] = get_args(Part)
INPUTS = 256  # random ones for each format that is tried
RUNGS = (31, 16, 8, 4, 2, 1, 0)
GENEROUS = RUNGS[0]


def rounding(format: Format, part: Part = "all") -> Change:
    """Gives a part of a machine's numbers this format.

    The rest is computed in float64, so that what fails, fails for the format.
    """
    on = {name: part in (name, "all") for name in PARTS if name != "all"}
    return lambda model: Rounded(model.double(), format, **on)


def exact(claim: Construction, length: int, part: Part, format: Format, inputs: int = INPUTS) -> bool:
    """Whether a construction answers random inputs rightly, all of them, when a part of its numbers has this format.

    A format that fails at one position in many may pass: what is found can be a bit too coarse, never too fine.
    """
    return claim.examine_random(length, Rng.seeded(0, "precision"), inputs, rounding(format, part)).wrong == 0


def least(holds: Callable[[int], bool]) -> int | None:
    """The least number of bits at which something holds, from above and one by one in the end.

    What holds at few bits may by chance hold again at fewer: the one reported is that down to which all tried hold.

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
    """The least bits behind the point, with plenty before it; None if 31 are too few."""
    return least(lambda bits: exact(claim, length, part, Fixed(GENEROUS, bits), inputs))


def least_fixed(claim: Construction, length: int, part: Part = "all", inputs: int = INPUTS) -> Fixed | None:
    """The least bits behind the point, and with them the least before it."""
    fraction = least_fraction(claim, length, part, inputs)
    if fraction is None:
        return None
    whole = least(lambda bits: exact(claim, length, part, Fixed(bits, fraction), inputs))
    return None if whole is None else Fixed(whole, fraction)


def least_mantissa(
    claim: Construction, length: int, part: Part = "all", exponent: int = 8, inputs: int = INPUTS
) -> int | None:
    """The least bits of mantissa of floating-point numbers; None if 31 are too few."""
    return least(lambda bits: bits > 0 and exact(claim, length, part, Float(exponent, bits), inputs))


def parts(claim: Construction, length: int) -> tuple[Part, ...]:
    """The parts that a construction has: what attention carries along are activations, not a state."""
    recurs = any(not isinstance(block.mixer, AttentionLayer) for block in claim.build(length).blocks)
    return tuple(part for part in PARTS if part != "state" or recurs)


def survey(
    claim: Construction, length: int, of: Iterable[Part] | None = None, inputs: int = INPUTS
) -> list[dict[str, Any]]:
    """The least formats of the parts of a construction, all that it has unless some are named, for a chart."""
    rows, width = [], claim.build(length).read_out.in_features
    for part in parts(claim, length) if of is None else of:
        found = least_fixed(claim, length, part, inputs)
        row = {"claim": claim.name, "length": length, "width": width, "part": part}
        bits = (None,) * 3 if found is None else (found.whole, found.fraction, found.bits)
        rows.append(row | dict(zip(("whole", "fraction", "bits"), bits, strict=True)))
    return rows
