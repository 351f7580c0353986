"""Moore machines: their minimal form, their difference, and the part of a task that a network can be held to."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

import torch
from jaxtyping import Int
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.task import DEAD, IGNORE, PAD, Task

Word = tuple[int, ...]  # tokens
DRAWN = 512  # inputs that are drawn to see whether training shows dead prefixes


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
    listed = classes.tolist()
    return [listed.index(c) for c in range(max(listed) + 1)]


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
    seen = {(one.start, other.start)}
    while pairs:
        (p, q), word = pairs.popleft()
        for symbol, after in enumerate(zip(one.moves[p].tolist(), other.moves[q].tolist(), strict=True)):
            answers = int(one.outputs[after[0]]), int(other.outputs[after[1]])
            longer = (*word, symbol + 1)
            if IGNORE not in answers and answers[0] != answers[1]:
                return longer
            if after not in seen:
                seen.add(after)
                pairs.append((after, longer))
    return None


# -- what a network can be held to ---------------------------------------------------------------------------------


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
        chosen = lengths[rows.child("lengths").integers(1, len(lengths))[:, 0]]
        return bool(self.task.solve(self.task.inputs(chosen, rows.child("inputs"))).eq(answer).any())

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
        own = getattr(self.task, "machine", None)
        if own is None:
            return None
        outputs = own.outputs
        if self.dead is None:
            return minimal(own, int(outputs[own.start]))
        outside = len(own.moves)
        dead = torch.cat([outputs == self.dead, torch.tensor([True])])
        moves = torch.cat([own.moves, torch.full_like(own.moves[:1], outside)])
        moves = torch.where(dead[moves] | dead[:, None], outside, moves)
        outputs = torch.cat([outputs, torch.tensor([IGNORE])]).masked_fill(dead, IGNORE)
        return minimal(Machine(moves, outputs, own.start), int(own.outputs[own.start]))


def outside_state(machine: Machine) -> int | None:
    """The state that stands for all words outside of the domain: it has no question and is never left."""
    stays = (machine.moves == torch.arange(len(machine.moves))[:, None]).all(1)
    found = (stays & (machine.outputs == IGNORE)).nonzero().flatten().tolist()
    return int(found[0]) if found else None
