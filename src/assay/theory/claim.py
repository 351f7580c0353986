"""The classes of claims: a claim is a statement with a source and a `check` that tests it."""

from __future__ import annotations

import inspect
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.errors import BadInput
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks.task import IGNORE, Task
from assay.theory.rounding import Rounded

RANDOM = 10_000  # random inputs of one check
TOKENS = 10_000_000  # a recurrent machine reads at most this many tokens of random inputs
ELEMENTS = 1 << 24  # the largest number of entries in the attention matrices of one batch
Change = Callable[[Model], nn.Module]  # rounds the numbers of a construction, replaces its attention, or breaks it


class Examined(NamedTuple):
    """The number of inputs examined, the number answered wrongly, and the smallest margin of a right answer."""

    inputs: int
    wrong: int
    margin: float

    def __add__(self, other: Examined) -> Examined:  # type: ignore[override]
        return Examined(self.inputs + other.inputs, self.wrong + other.wrong, min(self.margin, other.margin))


NOTHING = Examined(0, 0, math.inf)


@dataclass(frozen=True)
class CheckResult:
    """The result of checking a claim at one length. `bits`: a bound's bits, or the bits of a construction's numbers."""

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
    """A theorem that can be checked at any length. The first paragraph of its docstring is the statement."""

    source: ClassVar[str]
    length: ClassVar[int]  # the length of a check unless the caller gives another
    largest: ClassVar[int]  # the largest length whose check takes minutes, not hours, on a laptop
    name: str = ""  # the name in the registry

    @property
    def statement(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").split("\n\n")[0].replace("\n", " ")

    def check_length(self, length: int) -> None:
        """Raise BadInput if the claim says nothing about this length."""
        if length < 1:
            raise BadInput(f"{self.name} has no length {length}: at least 1")

    @abstractmethod
    def check(self, length: int | None = None, rng: Rng | None = None) -> CheckResult: ...


class Machine(NamedTuple):
    """The machine of a construction for one length, after a change if there is one."""

    length: int
    task: Task
    module: nn.Module
    width: int
    bits: int  # of each of its numbers
    rows: int  # inputs that run as one batch


class Construction(Claim):
    """Explicit weights that solve a task.

    They are compared with the task's oracle on every input of the small lengths, and on random inputs of the length of
    the check. `length` is the N of the theorem; `tokens` gives the number of tokens of an input.
    """

    small: ClassVar[tuple[int, ...]]  # lengths at which every input is checked
    any_string: ClassVar[bool] = False  # whether the claim holds for all strings, not only for those the task draws

    @abstractmethod
    def task(self, length: int) -> Task: ...

    @abstractmethod
    def build(self, length: int) -> Model:
        """The model for all inputs up to this length."""

    def tokens(self, length: int) -> int:
        """The number of tokens of the longest input."""
        return length

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if not self.task(length).fits(self.tokens(length)):
            raise BadInput(f"{self.name} has no length {length}: {self.task(length).kind} has no such input")

    # -- inputs --------------------------------------------------------------------------------------------------------

    def every(self, length: int) -> Tensor:
        """Every input of this length that the claim covers: by default all strings."""
        return strings(len(self.task(length).symbols), self.tokens(length))

    def draw(self, length: int, rows: Rng) -> Tensor:
        """Random inputs of the full length, drawn by the task, one per row of the generator.

        If the claim covers any string, one symbol is replaced in every second input.
        """
        task, count = self.task(length), len(rows.keys)
        lengths = torch.full((count,), self.tokens(length))
        inputs = task.inputs(lengths, rows.child("inputs"))
        if self.any_string:
            position = rows.child("place").integers(1, inputs.shape[1])
            symbol = rows.child("symbol").integers(1, len(task.symbols)) + 1
            replaced = inputs.scatter(1, position, symbol)
            inputs = torch.where(rows.child("replace").integers(1, 2) == 1, replaced, inputs)
        return inputs

    # -- the check -----------------------------------------------------------------------------------------------------

    def check(
        self,
        length: int | None = None,
        rng: Rng | None = None,
        change: Change | None = None,
        inputs: int = RANDOM,
    ) -> CheckResult:
        length = self.length if length is None else length
        self.check_length(length)
        begin, rng = time.perf_counter(), Rng.seeded(0, "claim") if rng is None else rng
        small = tuple(n for n in self.small if n <= length)
        seen = sum((self.examine(self.machine(n, change), [self.every(n)]) for n in small), NOTHING)
        machine = self.machine(length, change)
        seen += self.examine_random(machine, rng, inputs) + self.examine_others(length, rng, inputs, change)
        checked = [f"all of {_range(small)}"] if small else []
        return CheckResult(
            claim=self.name,
            length=length,
            holds=seen.wrong == 0,
            checked=", ".join([*checked, "random"]),
            inputs=seen.inputs,
            width=machine.width,
            bits=machine.bits,
            margin=seen.margin,
            seconds=time.perf_counter() - begin,
            note=f"{seen.wrong:,} wrong" if seen.wrong else "",
        )

    def examine_others(self, length: int, rng: Rng, inputs: int, change: Change | None) -> Examined:
        """Other machines that the claim covers; by default there are none."""
        return NOTHING

    def machine(self, length: int, change: Change | None = None) -> Machine:
        model = self.build(length)
        width, bits = model.read_out.in_features, torch.finfo(model.read_out.weight.dtype).bits
        rows = self.rows_at_once(model, length)
        module = model if change is None else change(model)
        return Machine(
            length, self.task(length), module, width, module.format.bits if isinstance(module, Rounded) else bits, rows
        )

    def rows_at_once(self, model: Model, length: int) -> int:
        """The number of inputs in one batch: attention has a matrix for each."""
        return max(1, ELEMENTS // self.tokens(length) ** 2)

    def examine_random(self, machine: Machine, rng: Rng, count: int) -> Examined:
        parts = ((first, min(1000, count - first)) for first in range(0, count, 1000))
        return self.examine(machine, (self.draw(machine.length, rng.rows(rows, first)) for first, rows in parts))

    def examine(self, machine: Machine, batches: Iterable[Tensor]) -> Examined:
        """Compare the machine's answers with the oracle's."""
        seen = NOTHING
        for batch in batches:
            for part in batch.split(machine.rows):
                seen += compared(machine.module(part)[0], machine.task.solve(part))
        return seen


class Recurrent(Construction):
    """One machine for all lengths, with a state that does not grow. Of long inputs fewer are drawn."""

    any_string: ClassVar[bool] = True
    few: ClassVar[int] = 1 << 12  # strings at most of a length at which every input is checked

    @property
    def small(self) -> tuple[int, ...]:  # type: ignore[override]
        """The lengths up to 10 with few strings."""
        return tuple(n for n in range(1, 11) if len(self.task(n).symbols) ** n <= self.few)

    @property
    def exact_to(self) -> float:
        """The largest length up to which the machine is exact."""
        return math.inf

    def check_length(self, length: int) -> None:
        super().check_length(length)
        if length > self.exact_to:
            raise BadInput(f"{self.name} is exact up to {self.exact_to}, and {length} is longer")

    def rows_at_once(self, model: Model, length: int) -> int:
        per_row = self.tokens(length) * model.read_out.in_features + model.state_floats(length)
        return max(16, ELEMENTS // per_row)

    def examine_random(self, machine: Machine, rng: Rng, count: int) -> Examined:
        return super().examine_random(machine, rng, min(count, max(16, TOKENS // self.tokens(machine.length))))


def compared(logits: Tensor, targets: Int[Tensor, "rows time"]) -> Examined:
    """Compare logits with targets. An input is wrong if at any target another answer has a logit as large, or NaN."""
    asks = targets != IGNORE
    logits, right = logits[asks], targets[asks][:, None]
    others = logits.scatter(1, right, -math.inf).amax(1, keepdim=True)
    margins = torch.full(targets.shape, math.inf, dtype=logits.dtype)
    margins[asks] = (logits.gather(1, right) - others)[:, 0].nan_to_num(nan=-math.inf)
    smallest = margins.amin(1)
    return Examined(len(targets), int((smallest <= 0).sum()), float(smallest.min()))


def strings(symbols: int, time: int) -> Int[Tensor, "rows {time}"]:
    """All strings of this length over this many symbols, as tokens."""
    count = symbols**time
    if count > 1 << 20:
        raise BadInput(f"{symbols}^{time} strings are too many to check each of them; at most 2^20")
    return torch.arange(count)[:, None] // symbols ** torch.arange(time - 1, -1, -1) % symbols + 1


def _range(numbers: tuple[int, ...]) -> str:
    """
    >>> _range((2, 3, 4)), _range((5,))
    ('2 to 4', '5')
    """
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
