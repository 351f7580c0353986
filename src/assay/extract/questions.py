"""The questions of a task that a network can be held to, and the shortest one that it answers wrongly."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from assay.errors import BadInput
from assay.extract.machines import Word
from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.minimal import minimal
from assay.tasks.task import DEAD, IGNORE, PAD, Task

DRAWN = 512  # inputs that are drawn to see whether training shows dead prefixes


class Questions:
    """The questions of a task that a network can be held to: the others are answered by IGNORE.

    If no drawn input has a dead prefix, training shows none, so a word with a dead prefix is outside of the domain. A
    task that asks at the end has questions at the lengths of its inputs only.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.dead = task.answers.index(DEAD) if DEAD in task.answers else None
        self.at_the_end = task.answer_positions == "at the end"
        if self.dead is not None and self._drawn(self.dead):
            self.dead = None

    def _drawn(self, answer: int) -> bool:
        """Whether an input of training has this answer."""
        rows = Rng.seeded(0, "questions").rows(DRAWN)
        lengths = torch.tensor(self.task.lengths(*self.task.train_lengths))
        row_lengths = lengths[rows.child("lengths").integers(1, len(lengths))[:, 0]]
        return bool(self.task.solve(self.task.inputs(row_lengths, rows.child("inputs"))).eq(answer).any())

    @property
    def domain(self) -> str:
        """Which words are asked, as part of a sentence."""
        lengths = ", at lengths that the task has" if self.at_the_end else ""
        dead = " without a dead prefix (training shows none)" if self.dead is not None else ""
        return f"all words{dead}{lengths}"

    def targets(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """The task's answer to every prefix; IGNORE outside of the domain and at padding."""
        answers = self.task.answer(inputs)
        inside = inputs != PAD
        if self.dead is not None:
            inside &= (answers == self.dead).cumsum(1) == 0
        if self.at_the_end:
            inside &= torch.tensor([self.task.fits(n + 1) for n in range(inputs.shape[1])])
        return answers.where(inside, IGNORE)

    @property
    def machine(self) -> Machine | None:
        """The task's own minimal automaton on the domain; None for a task without one, such as a counter."""
        automaton = getattr(self.task, "machine", None)
        if automaton is None:
            return None
        outputs = automaton.outputs
        if self.dead is None:
            return minimal(automaton, int(outputs[automaton.start]))
        outside = len(automaton.moves)
        dead = torch.cat([outputs == self.dead, torch.tensor([True])])
        moves = torch.cat([automaton.moves, torch.full_like(automaton.moves[:1], outside)])
        moves = torch.where(dead[moves] | dead[:, None], outside, moves)
        outputs = torch.cat([outputs, torch.tensor([IGNORE])]).masked_fill(dead, IGNORE)
        start = automaton.start
        return minimal(Machine(moves, outputs, start), int(automaton.outputs[start]))


def shortest_wrong(
    inputs: Int[Tensor, "rows time"], answers: Int[Tensor, "rows time"], targets: Int[Tensor, "rows time"]
) -> Word | None:
    """The shortest prefix whose answer is not the target."""
    wrong = (answers != targets) & (targets != IGNORE)
    if not wrong.any():
        return None
    length = int(wrong.any(0).long().argmax()) + 1
    row = int(wrong[:, length - 1].long().argmax())
    return tuple(inputs[row, :length].tolist())


def check_symbols(task: Task) -> None:
    """Raise BadInput for a task whose inputs are not strings."""
    if not task.symbols:
        raise BadInput(f"{task.kind} has real-valued inputs; an automaton needs a task with symbols, such as parity")
