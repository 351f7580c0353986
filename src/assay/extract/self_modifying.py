"""The self-modifying automaton of an SRWM: its weight matrices after all short strings, as finitely many programs.

The state of an SRWM is a weight matrix W, which is also its program: with W held fixed, every symbol has one answer.
Reading a symbol changes W. Matrices that are close to each other are one program, and the automaton of programs says
what each program answers to each symbol, and which program it becomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.errors import BadInput
from assay.extract.clustering import programs_of
from assay.extract.machines import Word
from assay.extract.programs import PARTS, Program, SelfModifying, moore_of
from assay.extract.questions import Questions, check_symbols, shortest_wrong
from assay.extract.tree import Tree, flat, grow, matrices_of
from assay.lab.evaluate import predict
from assay.models.skeleton import Model
from assay.models.srwm import SrwmLayer
from assay.tasks.automaton import Machine
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE, Task

MOST_MATRICES = 1_100  # strings whose matrices are clustered, where no length is given
MOST_STRINGS = 20_000  # strings on which automaton and network are compared, where no length is given
MOST_OF_ALL = 400_000  # a longer `length` is refused
LONGEST = 60  # where there are few strings of each length
FOLLOWED = 500  # strings whose last matrix is compared with the program that the automaton is in
OnProgress = Callable[[str], None]  # receives what is being done


def srwm_in(module: nn.Module) -> Model:
    """The module, if its whole state is self-referential weight matrices; else BadInput."""
    if not isinstance(module, Model):
        raise BadInput("a self-modifying automaton needs an SRWM in every layer; this is a module of your own")
    others = [i for i, block in enumerate(module.blocks) if not isinstance(block.mixer, SrwmLayer)]
    if others:
        kind = type(module.blocks[others[0]].mixer).__name__
        raise BadInput(f"a self-modifying automaton needs an SRWM in every layer; layer {others[0] + 1} is a {kind}")
    if module.positions is not None:
        raise BadInput("a self-modifying automaton needs a model without positions, which are a state beside the SRWM")
    return module


def has_programs(module: nn.Module) -> bool:
    """Whether the module has a self-modifying automaton."""
    try:
        srwm_in(module)
    except BadInput:
        return False
    return True


def extract_programs(
    module: nn.Module, task: Task, *, length: int | None = None, on_progress: OnProgress = lambda activity: None
) -> SelfModifying:
    """The self-modifying automaton of an SRWM, compared with the network on every string up to `length`.

    By default up to the length with at most 20,000 strings; for a task without an automaton of its own, such as
    Dyck-1, where every longer string can need a new program, up to the length that the network solves.
    """
    check_symbols(task)
    model, questions, symbols = srwm_in(module), Questions(task), len(task.symbols)
    if length is not None and questions.dead is None:
        _check_strings(length, [symbols**n for n in range(1, length + 1)])
    on_progress("reading short strings")
    # Where the programs are finitely many, longer strings test them.
    longest = LONGEST if questions.machine is None else LONGEST // 2
    tree = matrices_of(model, questions, min(length or longest, longest), MOST_MATRICES)
    right_to = tree.right_to
    if questions.machine is None:
        tree = tree.up_to(max(right_to, 1))
        length = length or tree.length
    on_progress(f"finding programs among {len(tree.words):,} matrices")
    labels, threshold = programs_of(tree, symbols)
    programs = _described(tree, labels, model, symbols)
    on_progress("comparing automaton and network")
    comparison = _compare(model, questions, moore_of(programs), length)
    on_progress("counting programs by length")
    growth = []
    for n in range(1, tree.length + 1):
        subtree = tree.up_to(n)
        growth.append((n, len(subtree.words) - 1, int(programs_of(subtree, symbols)[0].max()) + 1))
    means = torch.stack([tree.matrices[labels == number].mean(0) for number in range(len(programs))])
    gaps = tree.distances.masked_fill(labels[:, None] == labels, math.inf)
    return SelfModifying(
        task=task,
        domain=questions.domain,
        programs=programs,
        threshold=threshold,
        gap=float(gaps.min()),
        distances=torch.cdist(means, means),
        clustered_to=tree.length,
        matrices=len(tree.words),
        right_to=right_to,
        every_to=comparison.every_to,
        strings=comparison.strings,
        disagreement=comparison.disagreement,
        followed=_followed(model, comparison.longest, programs, tree, labels),
        growth=tuple(growth),
    )


def _described(tree: Tree, labels: Int[Tensor, "strings"], model: Model, symbols: int) -> tuple[Program, ...]:
    count = int(labels.max()) + 1
    answers: list[list[int | None]] = [[None] * symbols for _ in range(count)]
    moves: list[list[int | None]] = [[None] * symbols for _ in range(count)]
    rows = zip(tree.parents.tolist(), tree.symbols.tolist(), tree.answers.tolist(), labels.tolist(), strict=True)
    for parent, symbol, answer, program in list(rows)[1:]:
        origin = int(labels[parent])
        moves[origin][symbol] = program
        if answer != IGNORE or answers[origin][symbol] is None:
            answers[origin][symbol] = answer
    parts = _parts(model)
    programs = []
    for number in range(count):
        members = tree.matrices[labels == number]
        mean, initial = members.mean(0), tree.matrices[0]
        changed = {
            part: float((mean - initial)[columns].norm() / initial[columns].norm().clamp(min=1e-12))
            for part, columns in parts.items()
        }
        spread = float((members - mean).norm(dim=1).mean())
        word = tree.words[labels.tolist().index(number)]
        programs.append(Program(word, len(members), tuple(answers[number]), tuple(moves[number]), changed, spread))
    return tuple(programs)


def _parts(model: Model) -> dict[str, Int[Tensor, "columns"]]:
    """The columns of a flat state that belong to each part of the matrices, of all layers together."""
    layers = model.initial_state(1)[1]
    names = torch.cat([torch.full((part.numel(),), i) for layer in layers for i, part in enumerate(layer)])
    return {name: (names == i).nonzero().flatten() for i, name in enumerate(PARTS)}


@dataclass(frozen=True)
class Comparison:
    """On how many strings automaton and network were compared, and the shortest on which they differ."""

    every_to: int
    strings: int
    disagreement: Word | None
    longest: list[Word]  # the strings of the greatest length


def _compare(model: Model, questions: Questions, machine: Machine, length: int | None) -> Comparison:
    words: list[Word] = [()]
    strings, every_to, counts = 0, 0, list[int]()
    disagreement: Word | None = None
    while every_to < (length or LONGEST):
        _, longer = grow(words, questions)
        if not longer or (length is None and strings + len(longer) > MOST_STRINGS):
            break
        counts.append(len(longer))
        _check_strings(length or LONGEST, counts)
        words, every_to, strings = longer, every_to + 1, strings + len(longer)
        if disagreement is None:
            inputs = rows_of(words)
            answers = predict(model, inputs).where(questions.targets(inputs) != IGNORE, IGNORE)
            disagreement = shortest_wrong(inputs, machine.answer(inputs), answers)
    return Comparison(every_to, strings, disagreement, words)


def _check_strings(length: int, counts: list[int]) -> None:
    """Raise BadInput if there are too many strings, given the number of strings of each length."""
    totals = list(accumulate(counts))
    if totals[-1] > MOST_OF_ALL:
        possible = sum(total <= MOST_OF_ALL for total in totals)
        raise BadInput(f"--length {length} is too long: at most {MOST_OF_ALL:,} strings can be read; try {possible}")


def _followed(
    model: Model, words: list[Word], programs: tuple[Program, ...], tree: Tree, labels: Int[Tensor, "strings"]
) -> float:
    """The share of strings after which the network's matrix is nearest to one of the automaton's program."""
    words = words[:: max(1, len(words) // FOLLOWED)]
    with torch.no_grad():
        matrices = flat(model(rows_of(words))[1])
    nearest = labels[torch.cdist(matrices, tree.matrices).argmin(1)].tolist()
    matches = 0
    for word, number in zip(words, nearest, strict=True):
        program: int | None = 0
        for token in word:
            program = None if program is None else programs[program].moves[token - 1]
        matches += program == number
    return matches / len(words)
