"""What a picture shows: the automaton of a network or of a task, and the programs of an SRWM."""

from __future__ import annotations

from assay.errors import BadInput
from assay.extract.machines import Word, named, outside_state
from assay.extract.picture import COLOURS, MOST_SYMBOLS, Graph
from assay.extract.programs import SelfModifying
from assay.tasks.automaton import Machine
from assay.tasks.task import IGNORE, Task


def graph_of(machine: Machine, task: Task, wrong: Word = ()) -> Graph:
    """A machine with its answers as colours; the arrows of a wrong word are red.

    The state for words outside of the domain is not drawn.
    """
    _check_symbols(task)
    outside = outside_state(machine)
    states = [q for q in range(len(machine.moves)) if q != outside]
    number = {state: i for i, state in enumerate(states)}
    answers = [int(machine.outputs[q]) for q in states]
    colour = _colours(sorted(set(answers) - {IGNORE}))
    arrows: dict[tuple[int, int], list[str]] = {}
    for state in states:
        for symbol, successor in zip(task.symbols, machine.moves[state].tolist(), strict=True):
            if successor != outside:
                arrows.setdefault((number[state], number[successor]), []).append(symbol)
    return Graph(
        names=[f"q{i}" for i in range(len(states))],
        texts=[named(answer, task) for answer in answers],
        colours=[colour.get(answer, "#ffffff") for answer in answers],
        start=number[machine.start],
        arrows=arrows,
        wrong=_path(machine, wrong, number),
        legend=[(fill, f"answer {named(answer, task)}") for answer, fill in colour.items()],
        caption="A move that is not drawn leads to a dead prefix, which training never shows."
        if outside is not None
        else "",
    )


def programs_graph(automaton: SelfModifying) -> Graph:
    """Programs with the answer to each symbol on the arrow: `symbol / answer`."""
    task = automaton.task
    _check_symbols(task)
    arrows: dict[tuple[int, int], list[str]] = {}
    for number, program in enumerate(automaton.programs):
        for symbol, move, answer in zip(task.symbols, program.moves, program.answers, strict=True):
            if move is not None:
                suffix = "" if answer is None or answer == IGNORE else f" / {named(answer, task)}"
                arrows.setdefault((number, move), []).append(f"{symbol}{suffix}")
    tables = [program.answers for program in automaton.programs]
    colour = dict(zip(dict.fromkeys(tables), COLOURS[1:] * len(tables), strict=False))
    meanings = [
        (fill, f"answers {_listed(table, task)} to {', '.join(task.symbols)}") for table, fill in colour.items()
    ]
    return Graph(
        names=[f"W{i}" for i in range(len(tables))],
        texts=["" for _ in tables],
        colours=[colour[table] for table in tables],
        start=0,
        arrows=arrows,
        legend=meanings if len(meanings) <= len(COLOURS) - 1 else (),
    )


def _listed(answers: tuple[int | None, ...], task: Task) -> str:
    return ", ".join("?" if answer is None else named(answer, task) or "none" for answer in answers)


def _check_symbols(task: Task) -> None:
    if len(task.symbols) > MOST_SYMBOLS:
        raise BadInput(
            f"{len(task.symbols)} symbols are too many for a picture that can be read; at most {MOST_SYMBOLS}"
        )


def _colours(answers: list[int]) -> dict[int, str]:
    return {answer: COLOURS[i % len(COLOURS)] for i, answer in enumerate(answers)}


def _path(machine: Machine, word: Word, number: dict[int, int]) -> set[tuple[int, int]]:
    """The arrows that a word takes."""
    state, arrows = machine.start, set()
    for token in word:
        successor = int(machine.moves[state, token - 1])
        if state in number and successor in number:
            arrows.add((number[state], number[successor]))
        state = successor
    return arrows
