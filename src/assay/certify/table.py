"""The table of a certificate: a task as a table of moves and of the answers that are demanded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from assay.errors import BadInput
from assay.tasks.automaton import Machine
from assay.tasks.probes import short_lassos
from assay.tasks.task import DEAD, IGNORE, Task
from assay.tasks.words import Lasso

LEFT_OUT = -1  # a move to a prefix outside of the task's domain
LENGTHS = 64  # lengths that are compared to find a period in `Task.fits`


@dataclass(frozen=True, eq=False)
class TaskTable:
    """`moves[state, symbol]` is the next state or LEFT_OUT, `answers[state]` the demanded answer or IGNORE.

    The start is state 0. No answer is demanded before the first token.
    """

    moves: Int[Tensor, "states symbols"]
    answers: Int[Tensor, "states"]
    task: Task
    note: str = ""  # what is left out, in words

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.task.symbols

    def to(self, device: torch.device) -> TaskTable:
        return replace(self, moves=self.moves.to(device), answers=self.answers.to(device))

    def walk(self, tokens: tuple[int, ...]) -> int:
        """The state after a word, or LEFT_OUT."""
        return _walk(self.moves.tolist(), 0, tokens)

    def lassos(self) -> list[Lasso]:
        """The short lassos without a prefix that is left out, however often the loop repeats."""
        moves = self.moves.tolist()

        def stays_inside(lasso: Lasso) -> bool:
            state, visited = _walk(moves, 0, lasso.access), set[int]()
            while state != LEFT_OUT and state not in visited:
                visited.add(state)
                state = _walk(moves, state, lasso.loop)
            return state != LEFT_OUT

        return short_lassos(len(self.symbols), lambda lassos: [lasso for lasso in lassos if stays_inside(lasso)])


def _walk(moves: list[list[int]], state: int, tokens: tuple[int, ...]) -> int:
    for token in tokens:
        if state == LEFT_OUT:
            break
        state = moves[state][token - 1]
    return state


def table_of(task: Task, dead: bool = False) -> TaskTable:
    """The table of a task that has an automaton.

    Prefixes that no continuation brings into the language are left out unless `dead`. A task that asks at the end only
    demands an answer at every length that its inputs can have.
    """
    machine = getattr(task, "machine", None)
    if not isinstance(machine, Machine):
        raise BadInput(f"{task.kind} has no finite automaton, so there is nothing to certify; its probes still test it")
    moves, answers, notes = machine.moves.clone(), machine.outputs.clone(), []
    if DEAD in task.answers and not dead:
        is_dead = answers == task.answers.index(DEAD)
        moves[is_dead[moves]] = LEFT_OUT
        notes.append("prefixes that no continuation brings into the language are left out")
    if task.answer_positions == "at the end":
        moves, answers, lengths = _with_lengths(task, moves, answers, machine.start)
        notes.append(f"answers are demanded at lengths {lengths}")
        start = 0
    else:
        start = machine.start
    moves, answers = _reachable(moves, answers, start)
    return TaskTable(moves, answers, task, "; ".join(notes))


def _with_lengths(
    task: Task, moves: Int[Tensor, "states symbols"], answers: Int[Tensor, "states"], start: int
) -> tuple[Tensor, Tensor, str]:
    """The product with a counter of the length, whose states are the lengths to `first`, then a cycle of `period`."""
    fits = [task.fits(n) for n in range(2 * LENGTHS)]
    patterns = [(first, period) for period in range(1, 9) for first in range(9)]
    patterns = [(f, p) for f, p in patterns if all(fits[n] == fits[n + p] for n in range(max(f, 1), LENGTHS))]
    if not patterns:
        raise BadInput(f"the lengths of the inputs of {task.kind} have no period of at most 8; it cannot be certified")
    first, period = min(patterns, key=sum)
    count = first + period
    # State 0 stands for the empty word too, where nothing is demanded: with first = 0 it returns at length `period`.
    successors = torch.tensor([*range(1, count), first])
    has_question = torch.tensor([fits[n] if n else first == 0 and fits[period] for n in range(count)])
    numbered = moves[:, None, :] * count + successors[:, None]
    product = torch.where(moves[:, None, :] == LEFT_OUT, LEFT_OUT, numbered).flatten(0, 1)
    demanded = torch.where(has_question, answers[:, None], IGNORE).flatten()
    order = torch.arange(len(product))
    order[[0, start * count]] = order[[start * count, 0]]  # exchange, so that the start is state 0
    renamed = torch.where(product == LEFT_OUT, LEFT_OUT, order[product.clamp(min=0)])[order]
    lengths = ", ".join(str(n) for n in range(1, 3 * count + 8) if fits[n])
    return renamed, demanded[order], f"{lengths} and so on"


def _reachable(moves: Tensor, answers: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """The states that some word reaches, in the order of a breadth-first search."""
    order, number = [start], {start: 0}
    for state in order:
        for successor in moves[state].tolist():
            if successor != LEFT_OUT and successor not in number:
                number[successor] = len(order)
                order.append(successor)
    rename = torch.full((len(moves) + 1,), LEFT_OUT)  # the last entry is what LEFT_OUT = -1 indexes
    rename[order] = torch.arange(len(order))
    return rename[moves[order]], answers[order]
