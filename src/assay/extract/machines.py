"""Moore machines: their difference, and their tables as JSON data."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from assay.tasks.automaton import Machine
from assay.tasks.task import IGNORE, Task

Word = tuple[int, ...]  # tokens


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
