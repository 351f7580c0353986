"""Bins: the ranges of lengths from which test inputs are drawn."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from assay.description import Description

LONGEST = 100_000  # the longest input of any run
Length = Annotated[int, Field(ge=1, le=LONGEST)]


def _as_pairs(options: Any) -> Any:
    """An object's names and values; other values are returned unchanged."""
    return tuple(options.items()) if isinstance(options, dict) else options


class Bin(Description):
    """A named range of input lengths, both ends included.

    With `options`, its inputs are drawn by the task with these options changed; symbols and answers stay the same.
    """

    kind: ClassVar[str] = "bin"
    added: ClassVar[tuple[str, ...]] = ("options",)
    name: str
    low: Length
    high: Length
    options: Annotated[tuple[tuple[str, bool | int | float | str], ...], BeforeValidator(_as_pairs)] = ()

    @model_validator(mode="after")
    def _in_order(self) -> Bin:
        if self.low > self.high:
            raise ValueError(f"{self.name}: lengths {self.low} to {self.high} are in the wrong order")
        return self


def doubling_bins(low: int, high: int, longest: int = LONGEST) -> tuple[Bin, ...]:
    """Bin0 from low to high and three bins of ever longer inputs; none is longer than `longest`."""
    ends = [min(end, longest, LONGEST) for end in (high, 2 * high, 4 * high, max(8 * high, 1024))]
    starts = [low, high + 1, 2 * high + 1, 4 * high + 1]
    ranges = enumerate(zip(starts, ends, strict=True))
    return tuple(Bin(name=f"Bin{i}", low=start, high=end) for i, (start, end) in ranges if start <= end)
