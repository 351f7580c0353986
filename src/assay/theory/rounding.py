"""Number formats of few bits, and machines that compute in them."""

from __future__ import annotations

import copy
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from assay.description import BadInput, suggestion
from assay.models.causal import Causal, State
from assay.models.mixer import MixerLayer

# -- formats -------------------------------------------------------------------------------------------------------


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
        return (x * 2.0**self.fraction).round_().clamp_(-end, end - 1).mul_(2.0**-self.fraction)


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


# -- machines ------------------------------------------------------------------------------------------------------

# Functions that move numbers without computing. Attributes such as x.mT arrive as `__get__`.
VIEWS = {
    "__get__", "__getitem__", "view", "reshape", "transpose", "permute", "flatten", "unflatten", "squeeze", "unsqueeze",
    "expand", "expand_as", "chunk", "split", "unbind", "detach", "view_as_complex", "view_as_real",
}  # fmt: skip
COPIES = {
    "__setitem__", "cat", "stack", "gather", "scatter", "repeat_interleave", "masked_fill", "where", "pad", "clone",
    "contiguous", "to", "float", "double", "complex",
}  # fmt: skip
MOVES = VIEWS | COPIES


class _Rounding(TorchFunctionMode):
    """Rounds the result of every torch function that computes."""

    def __init__(self, format: Format) -> None:
        super().__init__()
        self.format = format

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in MOVES:
            return result
        if args and result is args[0] and isinstance(result, Tensor):  # in place, so round in place
            return result.copy_(self.format.round(result))
        return rounded(self.format, result)


def rounded(format: Format, tree: Any) -> Any:
    """Round all tensors of a state. Position counters are integers and stay."""
    return pytree.tree_map(lambda x: format.round(x) if isinstance(x, Tensor) else x, tree)


class Rounded(Causal):
    """A copy of a model that computes in a number format.

    `weights` rounds the parameters. `activations` rounds the result of every torch function; sums inside a matrix
    product, a norm or a softmax are formed in the model's own dtype and rounded once, like a wide accumulator, and a
    recurrence runs step by step, since the inside of a kernel cannot be rounded. Masks and real-valued inputs are not
    rounded. `state` rounds the state between two steps. All other numbers keep the model's own dtype.
    """

    def __init__(
        self, model: Causal, format: Format, weights: bool = True, activations: bool = True, state: bool = True
    ) -> None:
        super().__init__()
        self.model, self.format = copy.deepcopy(model).requires_grad_(requires_grad=False), format
        self.activations, self.state = activations, state
        if weights:
            for p in self.model.parameters():
                p.data = format.round(p.data)
        for layer in self.model.modules():
            if isinstance(layer, MixerLayer) and activations:
                layer.forward = partial(_plain_steps, layer)  # type: ignore[method-assign]

    def initial_state(self, batch: int) -> State:
        return self._carried(self.model.initial_state(batch))

    def _carried(self, state: State) -> State:
        return rounded(self.format, state) if self.state else state

    def _computing(self) -> AbstractContextManager[Any]:
        return _Rounding(self.format) if self.activations else nullcontext()

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        with torch.no_grad(), self._computing():
            y, state = self.model.step(x, state)
        return y, self._carried(state)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        if self.activations and x.is_cuda:
            raise BadInput("the numbers inside a GPU kernel cannot be rounded; move the rounded machine to the CPU")
        x = x.to(self.zeros().dtype) if x.is_floating_point() else x
        state = self.initial_state(len(x)) if state is None else state
        if self.state and not self.activations:
            return super().forward(x, state)
        with torch.no_grad(), self._computing():  # rounding activations has rounded the state too
            return self.model(x, state)  # type: ignore[no-any-return]

    def state_floats(self, length: int) -> int:
        return self.model.state_floats(length)


def _plain_steps(layer: MixerLayer, x: Tensor, state: State = None) -> tuple[Tensor, State]:
    return layer.mix(x, layer.initial_state(len(x)) if state is None else state, "reference")
