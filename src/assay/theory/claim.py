"""What a claim is: a statement with a source, and a `verify` that measures."""

from __future__ import annotations

import inspect
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.description import BadInput
from assay.models.rounded import Rounded
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.task import IGNORE, Task

RANDOM = 10_000  # inputs drawn at the length asked for
TOKENS = 10_000_000  # of all random inputs of a recurrent machine together
ELEMENTS = 1 << 24  # about as many numbers as an attention matrix of one batch may have
Change = Callable[[Model], nn.Module]  # rounds the numbers of a construction, exchanges its attention, breaks it


class Examined(NamedTuple):
    """How many inputs were looked at, how many were answered wrongly, and the smallest lead of the right answer."""

    inputs: int
    wrong: int
    margin: float

    def __add__(self, other: Examined) -> Examined:  # type: ignore[override]
        return Examined(self.inputs + other.inputs, self.wrong + other.wrong, min(self.margin, other.margin))


NOTHING = Examined(0, 0, math.inf)


@dataclass(frozen=True)
class Verdict:
    """How a claim came out at a length. `bits` is what a bound asks for, or the bits of a construction's numbers."""

    claim: str
    length: int
    holds: bool
    checked: str
    inputs: int
    width: int | None = None
    bits: float | None = None
    margin: float | None = None
    seconds: float = 0.0
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON data, which has no infinite numbers."""
        finite = self.margin is not None and math.isfinite(self.margin)
        return asdict(self) | {"margin": self.margin if finite else None}


class Claim(ABC):
    """A statement that can be measured at any length. Its docstring states it; the first sentence alone suffices."""

    source: ClassVar[str]
    length: ClassVar[int]  # at which it is checked unless another is asked for
    largest: ClassVar[int]  # that takes minutes, not hours, on a laptop
    name: str = ""  # as the registry has it

    @property
    def statement(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0].replace("\n", " ")

    def check_length(self, length: int) -> None:
        """Raise BadInput where the claim says nothing about this length."""
        if length < 1:
            raise BadInput(f"{self.name} has no length {length}: at least 1")

    @abstractmethod
    def verify(self, length: int | None = None, rng: Rng | None = None) -> Verdict: ...


class Construction(Claim):
    """Explicit weights that solve a task: checked against its oracle, on every input where these are few, and on
    random ones at the length asked for.

    `length` is the N of the theorem. A subclass says which task that is and how many tokens its inputs have.
    """

    small: ClassVar[tuple[int, ...]]  # lengths at which every input is checked
    any_string: ClassVar[bool] = False  # whether it answers every string, not only those that the task draws

    @abstractmethod
    def task(self, length: int) -> Task: ...

    @abstractmethod
    def build(self, length: int) -> Model:
        """The machine for all inputs up to this length."""

    def tokens(self, length: int) -> int:
        """How many tokens the longest input has."""
        return length

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if not self.task(length).fits(self.tokens(length)):
            raise BadInput(f"{self.name} has no length {length}: {self.task(length).kind} has no such input")

    # -- inputs --------------------------------------------------------------------------------------------------------

    def every(self, length: int) -> Int[Tensor, "rows time"]:
        """Every input of this length that the claim speaks of: here, all strings."""
        return strings(len(self.task(length).symbols), self.tokens(length))

    def draw(self, length: int, rows: Rng) -> Tensor:
        """Random inputs, one per row of the generator: of the full length, as the task draws them.

        Where the claim speaks of any string, every second one has one symbol replaced.
        """
        task, count = self.task(length), len(rows.keys)
        lengths = torch.full((count,), self.tokens(length))
        inputs = task.inputs(lengths, rows.child("inputs"))
        if self.any_string:
            place = rows.child("place").integers(1, inputs.shape[1])
            symbol = rows.child("symbol").integers(1, len(task.symbols)) + 1
            replaced = inputs.scatter(1, place, symbol)
            inputs = torch.where(rows.child("replace").integers(1, 2) == 1, replaced, inputs)
        return inputs

    # -- the check -----------------------------------------------------------------------------------------------------

    def verify(
        self,
        length: int | None = None,
        rng: Rng | None = None,
        change: Change | None = None,
        inputs: int = RANDOM,
    ) -> Verdict:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        small = tuple(n for n in self.small if n <= length)
        all_of: Examined = sum((self.examine(n, iter([self.every(n)]), change) for n in small), NOTHING)
        random = self.examine_random(length, rng, inputs, change)
        model, machine, seen = self.build(length), self.changed(length, change), all_of + random
        own = torch.finfo(model.read_out.weight.dtype).bits
        said = [f"all of {_range(small)}"] if small else []
        return Verdict(
            claim=self.name,
            length=length,
            holds=seen.wrong == 0,
            checked=", ".join([*said, "random"]),
            inputs=seen.inputs,
            width=model.read_out.in_features,
            bits=machine.format.bits if isinstance(machine, Rounded) else own,
            margin=seen.margin,
            seconds=time.perf_counter() - begin,
            note=f"{seen.wrong:,} wrong" if seen.wrong else "",
        )

    def examine_random(self, length: int, rng: Rng, count: int, change: Change | None) -> Examined:
        parts = ((first, min(1000, count - first)) for first in range(0, count, 1000))
        return self.examine(length, (self.draw(length, rng.rows(rows, first)) for first, rows in parts), change)

    def examine(self, length: int, batches: Iterator[Tensor], change: Change | None = None) -> Examined:
        """Compare the machine's answers with the oracle's."""
        task, machine = self.task(length), self.changed(length, change)
        seen = NOTHING
        for batch in batches:
            for part in batch.split(self.at_once(length)):
                seen += compared(machine(part)[0], task.solve(part))
        return seen

    def at_once(self, length: int) -> int:
        """How many inputs are run together: attention has a matrix for each."""
        return max(1, ELEMENTS // self.tokens(length) ** 2)

    def changed(self, length: int, change: Change | None) -> nn.Module:
        model = self.build(length)
        return model if change is None else change(model)


class Recurrent(Construction):
    """One machine for all lengths, whose state does not grow: long inputs are run many at once, and fewer are drawn."""

    any_string: ClassVar[bool] = True
    few: ClassVar[int] = 1 << 12

    @property
    def small(self) -> tuple[int, ...]:  # type: ignore[override]
        """The lengths up to 10 that have few strings."""
        return tuple(n for n in range(1, 11) if len(self.task(n).symbols) ** n <= self.few)

    @property
    def exact_to(self) -> float:
        """The largest length for which it is exact."""
        return math.inf

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if length > self.exact_to:
            raise BadInput(f"{self.name} is exact up to {self.exact_to}, and {length} is longer")

    def examine_random(self, length: int, rng: Rng, count: int, change: Change | None) -> Examined:
        return super().examine_random(length, rng, min(count, max(16, TOKENS // self.tokens(length))), change)

    def at_once(self, length: int) -> int:
        model = self.build(length)
        each = self.tokens(length) * model.read_out.in_features + model.state_floats(length)
        return max(16, ELEMENTS // each)


def compared(logits: Tensor, targets: Int[Tensor, "rows time"]) -> Examined:
    """An input is answered wrongly where another answer leads, or none does, at any position that asks."""
    asked = targets != IGNORE
    logits, right = logits[asked], targets[asked][:, None]
    mine = logits.gather(1, right)
    others = logits.scatter(1, right, -math.inf).amax(1, keepdim=True)
    lead = torch.full(targets.shape, math.inf, dtype=logits.dtype)
    lead[asked] = (mine - others)[:, 0].nan_to_num(nan=-math.inf)
    worst = lead.amin(1)
    return Examined(len(targets), int((worst <= 0).sum()), float(worst.min()))


def strings(symbols: int, time: int) -> Int[Tensor, "rows time"]:
    """All strings over so many symbols, as tokens."""
    count = symbols**time
    if count > 1 << 20:
        raise BadInput(f"{symbols}^{time} strings are too many to look at each; at most 2^20")
    return torch.arange(count)[:, None] // symbols ** torch.arange(time - 1, -1, -1) % symbols + 1


def _range(numbers: tuple[int, ...]) -> str:
    """
    >>> _range((2, 3, 4)), _range((5,))
    ('2 to 4', '5')
    """
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
