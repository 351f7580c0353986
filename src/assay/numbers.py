"""Number formats of few bits: fixed and floating point."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.errors import BadInput, suggestion


class Format(ABC):
    """A finite set of numbers. Rounding keeps the dtype of a tensor, which should be finer than the format."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """The number of bits of one number."""

    def round(self, x: Tensor) -> Tensor:
        """The nearest numbers of the format, ties to even. Integer and Boolean tensors are returned as they are."""
        if x.is_complex():
            return torch.complex(self.nearest(x.real), self.nearest(x.imag))
        return self.nearest(x) if x.is_floating_point() else x

    @abstractmethod
    def nearest(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Fixed(Format):
    """A sign, `whole` bits before the point and `fraction` bits after it, in two's complement.

    Numbers that are too large saturate at 2^whole - 2^-fraction or -2^whole.

    >>> Fixed(2, 1).round(torch.tensor([0.3, 1.25, 9.0, -9.0]))
    tensor([ 0.5000,  1.0000,  3.5000, -4.0000])
    """

    whole: int
    fraction: int

    def __post_init__(self) -> None:
        if not (self.whole >= 0 and self.fraction >= 0 and self.whole + self.fraction <= 62):
            raise BadInput(f"{self} is not a number format: whole and fraction are at least 0, together at most 62")

    def __str__(self) -> str:
        return f"fixed:{self.whole}.{self.fraction}"

    @property
    def bits(self) -> int:
        return 1 + self.whole + self.fraction

    def nearest(self, x: Tensor) -> Tensor:
        end = 2.0 ** (self.whole + self.fraction)
        return (x * 2.0**self.fraction).round_().clamp(-end, end - 1).mul_(2.0**-self.fraction)


@dataclass(frozen=True)
class Float(Format):
    """A sign, `exponent` bits and `mantissa` bits as in IEEE 754, with gradual underflow.

    Numbers that are too large become infinite. A `finite` format has no infinities and saturates at its largest number,
    as e4m3 does.

    >>> Float(5, 10).round(torch.tensor([1 / 3, 1e-7, 1e5]))
    tensor([3.3325e-01, 1.1921e-07,        inf])
    """

    exponent: int
    mantissa: int
    finite: bool = False

    def __post_init__(self) -> None:
        if not (2 <= self.exponent <= 11 and 1 <= self.mantissa <= 52):
            raise BadInput(f"{self} is not a number format: 2 to 11 bits of exponent, 1 to 52 of mantissa")

    def __str__(self) -> str:
        names = (name for name, known in NAMED.items() if known == self)
        return next(names, f"float:{self.exponent}.{self.mantissa}")

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def largest(self) -> float:
        top = (1 << self.exponent - 1) - (not self.finite)
        below_two = 2 - math.ldexp(1, self.finite - self.mantissa)  # a finite format has one NaN pattern
        return math.ldexp(below_two, top)

    def nearest(self, x: Tensor) -> Tensor:
        lowest = 2 - 2 ** (self.exponent - 1)  # the exponent of the smallest normal number
        wide = x.double()  # float64 represents every unit in the last place
        exponent = (torch.frexp(wide).exponent - 1).clamp_(min=lowest)
        unit = torch.ldexp(torch.ones_like(wide), exponent - self.mantissa)
        near = (wide / unit).round_().mul_(unit)
        if self.finite:
            near = near.clamp_(-self.largest, self.largest)
        else:
            near = torch.where(near.abs() > self.largest, near * torch.inf, near)
        return near.to(x.dtype)


NAMED: dict[str, Format] = {
    "float32": Float(8, 23),
    "bfloat16": Float(8, 7),
    "float16": Float(5, 10),
    "e5m2": Float(5, 2),
    "e4m3": Float(4, 3, finite=True),
}


def read_format(text: str) -> Format:
    """
    >>> read_format("fixed:6.2"), read_format("float16")
    (Fixed(whole=6, fraction=2), Float(exponent=5, mantissa=10, finite=False))
    """
    if text in NAMED:
        return NAMED[text]
    kinds: dict[str, Callable[[int, int], Format]] = {"fixed": Fixed, "float": Float}
    match = re.fullmatch(r"(fixed|float):(\d+)\.(\d+)", text)
    if match:
        return kinds[match[1]](int(match[2]), int(match[3]))
    if text.partition(":")[0] in kinds:
        raise BadInput(f"number format '{text}' is not complete: fixed:WHOLE.FRACTION or float:EXPONENT.MANTISSA")
    raise BadInput(f"unknown number format '{text}'{suggestion(text, [*NAMED, 'fixed:6.2', 'float:5.10'])}")
