"""Your own task: its right answers, its inputs, and probes for a memory that leaks.

assay show own_task:Lift
assay run own_task:Lift --model elman --set model.width=8 --lr 1e-2 --steps 600 --weights all --store lift
assay certify lift --method closure --format fixed:2.2     # right on every input of every length?
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from assay import Rng, Task
from assay.tasks.automaton import Machine
from assay.tasks.probes import Probe, rows_of


class Lift(Task):
    """On which floor is the lift? It goes up (u) and down (d), and does not move beyond the top or bottom floor.

    >>> Lift().explain("uuuudd")
    '122210'
    """

    train_lengths: ClassVar[tuple[int, int]] = (2, 16)
    symbols: ClassVar[tuple[str, ...]] = ("u", "d")
    floors: Annotated[int, Field(ge=2, description="the number of floors")] = 3

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.floors)))

    @cached_property
    def machine(self) -> Machine:
        """The task as an automaton, with which `assay certify` compares a network."""
        floors = torch.arange(self.floors)
        moves = torch.stack([floors + 1, floors - 1], dim=1).clamp(0, self.floors - 1)
        return Machine(moves, outputs=floors)

    def answer(self, inputs: Tensor) -> Tensor:
        """The right answer after every symbol of *any* input [rows, time]; token i + 1 is symbol number i."""
        return self.machine.answer(inputs)

    def draw(self, lengths: Tensor, rng: Rng, width: int) -> Tensor:
        """Random inputs, from one generator per row; what is beyond a row's length is ignored."""
        return rng.integers(width, len(self.symbols)) + 1

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """The default probes, and rides that random inputs hardly ever contain, such as n floors up and n down."""
        rides = [([1] * n + [2] * n) * longest for n in range(1, self.floors + 2)]
        return [*super().probes(trained, longest), Probe("rides", rows_of(ride[:longest] for ride in rides))]
