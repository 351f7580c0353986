"""The minimal form of Moore machines."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import torch
from jaxtyping import Int
from torch import Tensor

from assay.tasks.automaton import Machine


def minimal(machine: Machine, start_answer: int | None = None) -> Machine:
    """The smallest machine with the same answers to all words but the empty one; states in breadth-first order.

    No task asks for the answer to the empty word. If the start differs from other states in its own answer alone, it
    becomes one of them, if possible one with `start_answer`.
    """
    machine = _numbered(machine, machine.start)
    classes = _classes(machine)
    count, first = int(classes.max()) + 1, _first(classes)
    moves = classes[machine.moves[first]]
    merged = Machine(moves, machine.outputs[first], int(classes[machine.start]))
    start = merged.start
    if not (moves == start).any():
        twins = [q for q in range(count) if q != start and torch.equal(moves[q], moves[start])]
        twins.sort(key=lambda q: int(merged.outputs[q]) != start_answer)  # stable
        start = twins[0] if twins else start
    return _numbered(merged, start)


def _classes(machine: Machine) -> Int[Tensor, "states"]:
    """The class of each state: two states share one if every word has the same answers from both."""
    classes = _as_numbers(machine.outputs.tolist())
    while True:
        refined = _as_numbers([(int(c), *row) for c, row in zip(classes, classes[machine.moves].tolist(), strict=True)])
        if int(refined.max()) == int(classes.max()):
            return classes
        classes = refined


def _as_numbers(values: Iterable[Hashable]) -> Int[Tensor, "values"]:
    """Number distinct values in the order of their first occurrence."""
    number: dict[Hashable, int] = {}
    return torch.tensor([number.setdefault(value, len(number)) for value in values])


def _first(classes: Int[Tensor, "states"]) -> list[int]:
    """The first state of each class."""
    numbers = classes.tolist()
    return [numbers.index(c) for c in range(max(numbers) + 1)]


def _numbered(machine: Machine, start: int) -> Machine:
    """The states that can be reached, numbered breadth first from the start."""
    order, number = [start], {start: 0}
    for state in order:
        for successor in machine.moves[state].tolist():
            if successor not in number:
                number[successor] = len(order)
                order.append(successor)
    moves = [[number[q] for q in machine.moves[state].tolist()] for state in order]
    return Machine(torch.tensor(moves), machine.outputs[order])
