"""Whether the statement of a certificate has the form that the checker expects, before anything of it is run."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.lab.weights import load_tensors
from assay.models import read_model
from assay.models.skeleton import Model
from assay.rng import Rng
from assay.tasks import read_task
from assay.tasks.task import DEAD, IGNORE, Task
from assay.tasks.words import readable

LARGEST_BLOCK = 1 << 16
MOST_BITS = 30


def require_valid(statement: dict[str, Any], tensors: dict[str, Tensor], own_module: bool) -> None:
    """BadInput if a field is not what `assay certify` would write; a user's module is run only if that is allowed."""
    task = read_task(statement["task"])
    moves, answers, fixed, word = tensors["moves"], tensors["answers"], statement["fixed"], statement["word"]
    valid_bits = all(type(bits) is int and 0 <= bits <= MOST_BITS for bits in fixed)
    forms = {
        "the outcome": statement["outcome"] in ("proved", "refuted"),
        "the block": type(statement["block"]) is int and 1 <= statement["block"] <= LARGEST_BLOCK,
        "the length": statement["length"] is None or (type(statement["length"]) is int and statement["length"] >= 1),
        "the number format": valid_bits and (not fixed or (len(fixed) == 2 and sum(fixed) <= MOST_BITS)),
        "the shape": statement["shape"] == list(task.shape),
        "the word": all(type(token) is int and 1 <= token <= len(task.symbols) for token in word),
        "the table": tuple(moves.shape) == (len(answers), len(task.symbols)) and moves.max() < len(answers),
    }
    for name, valid in forms.items():
        if not valid:
            raise BadInput(f"{name} in it is not one that `assay certify` writes")
    if "path" in statement["model"] and not own_module:
        raise BadInput(f"it runs the code of {statement['model']['path']}; allow that with --own-module")


def problem_of(statement: dict[str, Any], tensors: dict[str, Tensor]) -> str:
    """Why the statement cannot be true, whatever the weights: another table, or a state that is not carried whole.

    BadInput if the weights do not fit the model.
    """
    task = read_task(statement["task"])
    if not same_automaton(task, tensors["moves"], tensors["answers"]):
        return f"the table is not that of {task.kind}"
    model: Any = read_model(statement["model"]).build(*task.shape, Rng.seeded(0))
    built_in = isinstance(model, Model)  # its first part, the position, is read only by position encodings
    parts = pytree.tree_leaves(model.initial_state(1))[built_in:]
    if (built_in and model.positions is not None) or not all(part.ndim for part in parts):
        return "the model counts positions, so its state is never the same twice"
    weights = {name.removeprefix("weights."): x for name, x in tensors.items() if name.startswith("weights.")}
    load_tensors(model, weights, statement["model"]["name"])
    return ""


def sentence_of(statement: dict[str, Any]) -> str:
    """What the statement says, for people."""
    task, fixed, length = read_task(statement["task"]), statement["fixed"], statement["length"]
    machine = statement["model"]["name"]
    if fixed:
        machine += f" with its state rounded to fixed:{fixed[0]}.{fixed[1]}"
    if statement["outcome"] == "refuted":
        return f"{machine} is wrong on {readable(statement['word'], task.symbols)}, an input of {task.kind}"
    extent = "" if length is None else f" up to {length} tokens"
    note = f" ({statement['left_out']})" if statement["left_out"] else ""
    return f"{machine} is right on every input of {task.kind}{extent}{note}"


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
