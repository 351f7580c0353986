"""Whether the statement of a certificate has the form that the checker expects, before anything of it is run."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from assay.description import BadInput
from assay.models import read_model
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks import read_task
from assay.tasks.task import DEAD, IGNORE, Task

LARGEST_BLOCK = 1 << 16
MOST_BITS = 30


def require_valid(says: dict[str, Any], tensors: dict[str, Tensor], own_module: bool) -> None:
    """BadInput if a field is not what `assay certify` would write; a user's module is run only if that is allowed."""
    task = read_task(says["task"])
    moves, answers, fixed, word = tensors["moves"], tensors["answers"], says["fixed"], says["word"]
    whole = all(type(bits) is int and 0 <= bits <= MOST_BITS for bits in fixed)
    forms = {
        "the outcome": says["outcome"] in ("proved", "refuted"),
        "the block": type(says["block"]) is int and 1 <= says["block"] <= LARGEST_BLOCK,
        "the length": says["length"] is None or (type(says["length"]) is int and says["length"] >= 1),
        "the number format": whole and (not fixed or (len(fixed) == 2 and sum(fixed) <= MOST_BITS)),
        "the shape": says["shape"] == list(task.shape),
        "the word": all(type(token) is int and 1 <= token <= len(task.symbols) for token in word),
        "the table": tuple(moves.shape) == (len(answers), len(task.symbols)) and moves.max() < len(answers),
    }
    for name, valid in forms.items():
        if not valid:
            raise BadInput(f"{name} in it is not one that `assay certify` writes")
    if says["model"]["kind"] == "foreign" and not own_module:
        raise BadInput(f"it runs the code of {says['model']['path']}; allow that with --own-module")


def problem_of(says: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Why the statement cannot be true, whatever the weights: another table, or a state that is not carried whole."""
    task = read_task(says["task"])
    if not same_automaton(task, tensors["moves"], tensors["answers"]):
        return f"the table is not that of {task.kind}"
    model: Any = read_model(says["model"]).build(*task.shape, Rng.seeded(0))
    own = isinstance(model, Model)  # its first part, the position, is read only by position encodings
    parts = pytree.tree_leaves(model.initial_state(1))[own:]
    if (own and model.positions is not None) or not all(part.ndim for part in parts):
        return "the model counts positions, so its state is never the same twice"
    return ""


def same_automaton(task: Task, moves: Tensor, answers: Tensor) -> bool:
    """Whether a table answers as the task's automaton on every word; a move to -1 must be one to a dead prefix.

    For a task that answers at the end the table also counts lengths; then the checker's comparison on short words
    has to be enough.
    """
    machine: Any = getattr(task, "machine", None)
    if machine is None or task.answer_positions == "at the end":
        return machine is not None
    dead = task.answers.index(DEAD) if DEAD in task.answers else None
    pairs, waiting = {(machine.start, 0)}, [(machine.start, 0)]
    while waiting:
        state, row = waiting.pop()
        for symbol, successor in enumerate(machine.moves[state].tolist()):
            output, move = int(machine.outputs[successor]), int(moves[row, symbol])
            if move < 0 and output != dead:
                return False
            if move >= 0 and int(answers[move]) != output and output != IGNORE:
                return False
            if move >= 0 and (successor, move) not in pairs:
                pairs.add((successor, move))
                waiting.append((successor, move))
    return True
