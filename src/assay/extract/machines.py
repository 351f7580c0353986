"""Moore machines: their minimal form, their difference, and their tables as JSON data."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from assay.tasks.automaton import Machine
from assay.tasks.task import IGNORE, Task

Word = tuple[int, ...]  # tokens


# -- the minimal form ----------------------------------------------------------------------------------------------


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
    order = [start]
    for state in order:
        order += dict.fromkeys(q for q in machine.moves[state].tolist() if q not in order)
    number = {state: i for i, state in enumerate(order)}
    moves = [[number[q] for q in machine.moves[state].tolist()] for state in order]
    return Machine(torch.tensor(moves), machine.outputs[order])


# -- differences ---------------------------------------------------------------------------------------------------


def difference(one: Machine, other: Machine) -> Word | None:
    """The shortest word (of these the first) that two machines answer differently; None if there is none.

    The empty word is not asked, and an answer of IGNORE in either machine means that there is no question.
    """
    pairs: deque[tuple[tuple[int, int], Word]] = deque([((one.start, other.start), ())])
    visited = {(one.start, other.start)}
    while pairs:
        (p, q), word = pairs.popleft()
        for symbol, successors in enumerate(zip(one.moves[p].tolist(), other.moves[q].tolist(), strict=True)):
            answers = int(one.outputs[successors[0]]), int(other.outputs[successors[1]])
            longer = (*word, symbol + 1)
            if IGNORE not in answers and answers[0] != answers[1]:
                return longer
            if successors not in visited:
                visited.add(successors)
                pairs.append((successors, longer))
    return None


# -- tables -------------------------------------------------------------------------------------------------------


def outside_state(machine: Machine) -> int | None:
    """The state that stands for all words outside of the domain: it has no question and is never left."""
    stays = (machine.moves == torch.arange(len(machine.moves))[:, None]).all(1)
    states = (stays & (machine.outputs == IGNORE)).nonzero().flatten().tolist()
    return int(states[0]) if states else None


def table(machine: Machine, task: Task) -> dict[str, Any]:
    """A machine as JSON data: moves by state and symbol, answers by state (none: no question)."""
    return {
        "symbols": list(task.symbols),
        "start": machine.start,
        "moves": machine.moves.tolist(),
        "answers": [named(answer, task) for answer in machine.outputs.tolist()],
        "outside": outside_state(machine),
    }


def named(answer: int, task: Task) -> str:
    """The name of an answer; empty where there is no question."""
    return "" if answer == IGNORE else "NaN" if answer < 0 else task.answers[answer]
