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
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.description import BadInput
from assay.extract.learning import check_symbols, named, shortest_wrong
from assay.extract.machines import Questions, Word, minimal
from assay.lab.evaluate import predict
from assay.models.causal import State
from assay.models.skeleton import Model
from assay.models.srwm import SrwmLayer
from assay.tasks.automaton import Machine
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE, Task
from assay.tasks.words import readable

PARTS = ("W_y", "W_q", "W_k", "w_b")
MOST_MATRICES = 1_100  # strings whose matrices are clustered, where no length is given
MOST_STRINGS = 20_000  # strings on which automaton and network are compared, where no length is given
MOST_OF_ALL = 400_000  # a longer `length` is refused
LONGEST = 60  # where there are few strings of each length
FOLLOWED = 500  # strings whose last matrix is compared with the program that the automaton is in
UNSEEN = -2  # the answer of the automaton after a move that was not seen
OnProgress = Callable[[str], None]  # receives what is being done


@dataclass(frozen=True)
class Program:
    """One program: what it answers to each symbol, and which program it then becomes (None: not seen)."""

    word: Word  # the shortest string that leads to it
    strings: int  # strings that lead to it, of those clustered
    answers: tuple[int | None, ...]
    moves: tuple[int | None, ...]
    changed: dict[str, float]  # by part: the distance from the initial matrix, as a share of its norm
    spread: float  # the mean distance of its matrices from their mean


@dataclass(frozen=True)
class SelfModifying:
    """The automaton of the programs of one SRWM, and how far it agrees with the network."""

    task: Task
    domain: str
    programs: tuple[Program, ...]
    threshold: float  # matrices at most this far apart are one program
    gap: float  # the distance of the two nearest programs; infinite for a single one
    distances: Float[Tensor, "programs programs"]  # of the programs' mean matrices
    clustered_to: int  # the matrices of all strings up to this length were clustered
    matrices: int
    right_to: int  # the network answers all of these strings rightly up to this length
    every_to: int  # automaton and network were compared on every string up to this length
    strings: int
    disagreement: Word | None  # the shortest string on which they differ, or for which the automaton has no move
    followed: float  # the share of longer strings whose matrix is nearest to the program that the automaton is in
    growth: tuple[tuple[int, int, int], ...]  # (length, strings up to it, programs for these alone)

    @property
    def statement(self) -> str:
        count, noun = len(self.programs), "program" if len(self.programs) == 1 else "programs"
        if self.disagreement is None:
            known = " (their matrices make the programs)" if self.every_to <= self.clustered_to else ""
            return (
                f"{count} {noun}; the automaton agrees with the network on every one of {self.strings:,} strings up to "
                f"length {self.every_to}{known}"
            )
        word = readable(self.disagreement, self.task.symbols)
        shorter = len(self.disagreement) - 1
        return f"{count} {noun}; the automaton agrees with the network up to length {shorter}, not on {word}"

    @property
    def machine(self) -> Machine:
        return moore_of(self.programs)

    @property
    def behaviours(self) -> int | None:
        """The programs that some string tells apart: the states of the minimal automaton; None if moves are missing."""
        complete = all(move is not None for program in self.programs for move in program.moves)
        return len(minimal(self.machine).moves) if complete else None

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        symbols, task = self.task.symbols, self.task
        return {
            "statement": self.statement,
            "domain": self.domain,
            "programs": [
                {
                    "program": number,
                    "shortest_string": readable(program.word, symbols),
                    "strings": program.strings,
                    "answers": {s: a if a is None else named(a, task) for s, a in _by(symbols, program.answers)},
                    "moves": dict(_by(symbols, program.moves)),
                    "changed": {part: round(share, 4) for part, share in program.changed.items()},
                    "spread": round(program.spread, 4),
                }
                for number, program in enumerate(self.programs)
            ],
            "behaviours": self.behaviours,
            "threshold": round(self.threshold, 4),
            "gap": round(self.gap, 4) if math.isfinite(self.gap) else None,
            "distances": [[round(x, 4) for x in row] for row in self.distances.tolist()],
            "clustered_to": self.clustered_to,
            "matrices": self.matrices,
            "right_to": self.right_to,
            "every_string_to": self.every_to,
            "strings": self.strings,
            "disagreement": self.disagreement and readable(self.disagreement, symbols),
            "followed": round(self.followed, 4),
            "growth": [{"length": n, "strings": s, "programs": p} for n, s, p in self.growth],
        }


def _by(symbols: tuple[str, ...], values: tuple[int | None, ...]) -> list[tuple[str, int | None]]:
    return list(zip(symbols, values, strict=True))


# -- strings and their matrices ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """All strings of a domain up to a length, shortest first, with their matrices; row 0 is the empty string."""

    words: list[Word]
    parents: Int[Tensor, "strings"]  # -1 for the empty string
    answers: Int[Tensor, "strings"]  # the network's, IGNORE where there is no question
    matrices: Float[Tensor, "strings numbers"]
    distances: Float[Tensor, "strings strings"]  # of the matrices
    right_to: int

    @property
    def length(self) -> int:
        return len(self.words[-1])

    @property
    def symbols(self) -> Int[Tensor, "strings"]:
        return torch.tensor([word[-1] - 1 if word else -1 for word in self.words])

    def up_to(self, length: int) -> Tree:
        count = sum(len(word) <= length for word in self.words)
        near = self.distances[:count, :count]
        return Tree(self.words[:count], self.parents[:count], self.answers[:count], self.matrices[:count], near, length)


def grow(words: list[Word], questions: Questions) -> tuple[list[int], list[Word]]:
    """The strings of the domain that are one symbol longer, and the row of each one's prefix."""
    symbols = range(1, len(questions.task.symbols) + 1)
    longer = [(row, (*word, symbol)) for row, word in enumerate(words) for symbol in symbols]
    if questions.dead is not None:
        answers = questions.task.answer(rows_of(word for _, word in longer))[:, -1]
        longer = [pair for pair, answer in zip(longer, answers.tolist(), strict=True) if answer != questions.dead]
    return [row for row, _ in longer], [word for _, word in longer]


@torch.no_grad()
def matrices_of(model: Model, questions: Questions, longest: int, most: int) -> Tree:
    """Every string up to a length, while there are at most so many, with the matrices after it."""
    words: list[Word] = [()]
    tree: list[Word] = [()]
    state: State = model.initial_state(1)
    parents, answers, matrices = [-1], [IGNORE], [flat(state)]
    first, right_to, right = 0, 0, True
    for length in range(1, longest + 1):
        rows, longer = grow(words, questions)
        if not longer or len(tree) + len(longer) > most:
            break
        position, layers = state
        chosen = tuple(tuple(part[rows] for part in layer) for layer in layers)
        logits, state = model.step(torch.tensor([word[-1] for word in longer]), (position, chosen))
        targets = questions.targets(rows_of(longer))[:, -1]
        answer = logits.argmax(-1).where(targets != IGNORE, IGNORE)
        right &= bool((answer == targets).all())
        right_to = length if right else right_to
        parents += [first + row for row in rows]
        first = len(tree)
        words, tree = longer, tree + longer
        answers += answer.tolist()
        matrices.append(flat(state))
    points = torch.cat(matrices)
    distances = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return Tree(tree, torch.tensor(parents), torch.tensor(answers), points, distances, right_to)


def flat(state: State) -> Float[Tensor, "rows numbers"]:
    """All numbers of the matrices of all layers, row by row."""
    return torch.cat([part.flatten(1) for layer in state[1] for part in layer], dim=1)


# -- programs ------------------------------------------------------------------------------------------------------


def linked(distances: Float[Tensor, "strings strings"]) -> list[tuple[float, int, int]]:
    """The shortest tree that links all matrices, as (distance, row, row), longest link first.

    Without its links that are longer than a threshold, what remains linked is a chain of matrices that are close.
    """
    count = len(distances)
    nearest, link = torch.full((count,), math.inf, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    outside, row, links = torch.ones(count, dtype=torch.bool), 0, []
    for _ in range(count - 1):
        outside[row] = False
        closer = distances[row] < nearest
        nearest = torch.where(closer, distances[row], nearest)
        link[closer] = row
        row = int(nearest.where(outside, math.inf).argmin())
        links.append((float(nearest[row]), int(link[row]), row))
    return sorted(links, key=lambda found: (-found[0], found[2]))


def merged(count: int, pairs: list[tuple[int, int]]) -> Int[Tensor, "{count}"]:
    """A number for each of so many items: the same for two that a chain of pairs links."""
    parent = list(range(count))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    number: dict[int, int] = {}
    return torch.tensor([number.setdefault(root(item), len(number)) for item in range(count)])


def deterministic(labels: Int[Tensor, "strings"], tree: Tree, symbols: int) -> Int[Tensor, "strings"] | None:
    """Merge programs that one program leads to by one symbol; None if one then has two answers to one symbol."""
    asked = tree.answers[1:] != IGNORE
    while True:
        keys, after = labels[tree.parents[1:]] * symbols + tree.symbols[1:], labels[1:]
        if not torch.equal(_least(keys[asked], tree.answers[1:][asked]), tree.answers[1:][asked]):
            return None
        least = _least(keys, after)
        if torch.equal(least, after):
            return labels
        pairs = torch.stack([least, after], 1).unique(dim=0).tolist()
        labels = merged(int(labels.max()) + 1, [(one, other) for one, other in pairs])[labels]


def _least(keys: Int[Tensor, "rows"], values: Int[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """For each row, the least value of the rows with the same key."""
    if not len(keys):
        return values
    least = torch.full((int(keys.max()) + 1,), torch.iinfo(torch.int64).max)
    return least.scatter_reduce(0, keys, values, "amin")[keys]


def programs_of(tree: Tree, symbols: int) -> tuple[Int[Tensor, "strings"], float]:
    """The program of each string, and the threshold: the largest one without a program that has two answers.

    If a threshold is possible, so is every smaller one, because it merges less: the search halves the range.
    """
    count = len(tree.words)
    links = linked(tree.distances)

    def labels_without(cut: int) -> Int[Tensor, "strings"] | None:
        return deterministic(merged(count, [(one, other) for _, one, other in links[cut:]]), tree, symbols)

    possible, labels = len(links), torch.arange(count)  # every matrix is a program of its own
    impossible = -1
    while possible - impossible > 1:
        middle = (possible + impossible) // 2
        found = labels_without(middle)
        if found is None:
            impossible = middle
        else:
            possible, labels = middle, found
    return labels, links[possible][0] if possible < len(links) else 0.0


def moore_of(programs: tuple[Program, ...]) -> Machine:
    """The automaton of programs as a Moore machine: a state for each pair of a program and the answer on the way to it.

    A move that was not seen leads to a state of its own, whose answer no network gives.
    """
    unseen, symbols = len(programs), range(len(programs[0].moves))
    states: list[tuple[int, int]] = [(0, IGNORE)]
    number, moves = {states[0]: 0}, []
    for program, _ in states:
        row = []
        for symbol in symbols:
            move, answer = (
                (programs[program].moves[symbol], programs[program].answers[symbol])
                if program < unseen
                else (None, None)
            )
            pair = unseen if move is None else move, UNSEEN if answer is None else answer
            if pair not in number:
                number[pair] = len(number)
                states.append(pair)
            row.append(number[pair])
        moves.append(row)
    return Machine(torch.tensor(moves), torch.tensor([answer for _, answer in states]))


# -- the automaton of an SRWM --------------------------------------------------------------------------------------


def srwm_in(module: nn.Module) -> Model:
    """The module, if its whole state is self-referential weight matrices; else BadInput."""
    name = type(module).__name__
    if not isinstance(module, Model):
        raise BadInput(f"{name} has no state that assay knows; a self-modifying automaton needs an SRWM in every layer")
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
    module: nn.Module, task: Task, *, length: int | None = None, on_progress: OnProgress = lambda doing: None
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
    checked = _compare(model, questions, moore_of(programs), length)
    on_progress("counting programs by length")
    growth = []
    for n in range(1, tree.length + 1):
        part = tree.up_to(n)
        growth.append((n, len(part.words) - 1, int(programs_of(part, symbols)[0].max()) + 1))
    means = torch.stack([tree.matrices[labels == number].mean(0) for number in range(len(programs))])
    apart = tree.distances.masked_fill(labels[:, None] == labels, math.inf)
    return SelfModifying(
        task=task,
        domain=questions.domain,
        programs=programs,
        threshold=threshold,
        gap=float(apart.min()),
        distances=torch.cdist(means, means),
        clustered_to=tree.length,
        matrices=len(tree.words),
        right_to=right_to,
        every_to=checked.every_to,
        strings=checked.strings,
        disagreement=checked.disagreement,
        followed=_followed(model, checked.longest, programs, tree, labels),
        growth=tuple(growth),
    )


def _described(tree: Tree, labels: Int[Tensor, "strings"], model: Model, symbols: int) -> tuple[Program, ...]:
    count = int(labels.max()) + 1
    answers: list[list[int | None]] = [[None] * symbols for _ in range(count)]
    moves: list[list[int | None]] = [[None] * symbols for _ in range(count)]
    rows = zip(tree.parents.tolist(), tree.symbols.tolist(), tree.answers.tolist(), labels.tolist(), strict=True)
    for parent, symbol, answer, program in list(rows)[1:]:
        before = int(labels[parent])
        moves[before][symbol] = program
        if answer != IGNORE or answers[before][symbol] is None:
            answers[before][symbol] = answer
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
class Compared:
    """On how many strings automaton and network were compared, and the shortest on which they differ."""

    every_to: int
    strings: int
    disagreement: Word | None
    longest: list[Word]  # the strings of the greatest length


def _compare(model: Model, questions: Questions, machine: Machine, length: int | None) -> Compared:
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
            asked = questions.targets(inputs) != IGNORE
            disagreement = shortest_wrong(inputs, machine.answer(inputs), predict(model, inputs).where(asked, IGNORE))
    return Compared(every_to, strings, disagreement, words)


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
    right = 0
    for word, program in zip(words, nearest, strict=True):
        now: int | None = 0
        for token in word:
            now = None if now is None else programs[now].moves[token - 1]
        right += now == program
    return right / len(words)
