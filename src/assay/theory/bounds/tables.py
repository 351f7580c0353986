"""Bounds for any small task from its oracle alone: the table of all its answers, exactly.

Split the positions of an input in two. The table has a row for everything that may stand in the first part, a column
for everything that may stand in the second, and the oracle's answers as entries. With the first part a prefix, its
different rows are what a recurrent machine must tell apart; of any two parts, the logarithm of the rank is a lower
bound on the bits that their holders must exchange (Mehlhorn and Schmidt 1982), and so on one layer of attention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from assay.description import BadInput
from assay.tasks.task import IGNORE, PAD, Task
from assay.theory.bounds.information import bits_for
from assay.theory.claim import strings

LARGEST = 1 << 20  # inputs of a table
PRIME = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Form:
    """Which inputs count: at each position any one of some tokens (or real vectors), whatever stands elsewhere.

    So what stands in one part of an input can be combined with anything in the other: communication asks for that.
    """

    choices: tuple[Tensor, ...]

    @classmethod
    def any_string(cls, task: Task, tokens: int) -> Form:
        """All strings over the symbols; to those of no good form the oracle has an answer too."""
        if task.features:
            raise BadInput(f"{task.kind} has real inputs: say which vectors may stand at each position")
        if len(task.symbols) ** tokens > LARGEST:
            longest = next(n for n in count() if len(task.symbols) ** (n + 1) > LARGEST)
            raise BadInput(f"{task.kind} has too many strings of length {tokens} for a table; up to {longest} would do")
        return cls((torch.arange(1, len(task.symbols) + 1),) * tokens)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.choices))

    def inputs(self) -> Tensor:
        """All of them, the last position changing fastest."""
        total = math.prod(self.sizes)
        if total > LARGEST:
            raise BadInput(f"{total:,} inputs are too many for a table; at most 2^20: take shorter ones")
        number, made = torch.arange(total), []
        for choice in reversed(self.choices):
            made.append(choice[number % len(choice)])
            number = number // len(choice)
        return torch.stack(made[::-1], dim=1)


def answers(task: Task, form: Form) -> Int[Tensor, "inputs time"]:
    """The oracle's answers to every input of a form."""
    return torch.cat([task.solve(part).int() for part in form.inputs().split(1 << 14)])


# -- recurrent machines --------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """How many prefixes must be told apart, after how many tokens."""

    states: int
    cut: int

    @property
    def bits(self) -> int:
        return bits_for(self.states)


def prefixes_told_apart(task: Task, form: Form) -> Counted:
    """At the cut where they are most. Every answer behind the cut counts."""
    table, time = answers(task, form), len(form.choices)
    most = Counted(1, 0)
    for cut in range(1, time):
        behind = table.view(math.prod(form.sizes[:cut]), -1, time)[..., cut:]
        most = max(most, Counted(different(behind.flatten(1)), cut), key=lambda counted: counted.states)
    return most


def different(rows: Int[Tensor, "rows columns"]) -> int:
    """How many rows there are of which no two may be confused: some column asks in both, and the answers differ.

    Where the same columns ask in every row, these are the distinct ones. Otherwise a row may agree with two others that
    do not agree with each other; then as many are counted as are found one by one: at least so many.
    """
    rows = rows[_first_of_each(rows)]
    asked = rows != IGNORE
    if (asked == asked[0]).all():
        return len(rows)
    kept = rows[:0]
    for row in rows:
        differs = (kept != row) & (kept != IGNORE) & (row != IGNORE)
        if differs.any(1).all():
            kept = torch.cat([kept, row[None]])
    return len(kept)


def _first_of_each(rows: Int[Tensor, "rows columns"]) -> list[int]:
    """Where each distinct row first stands."""
    first: dict[bytes, int] = {}
    for i, row in enumerate(rows.numpy()):
        first.setdefault(row.tobytes(), i)
    return list(first.values())


# -- two parties ---------------------------------------------------------------------------------------------------


def every_other(tokens: int) -> Bool[Tensor, "tokens"]:
    """The odd positions, counted from 1."""
    return torch.arange(tokens) % 2 == 0


def ranks(task: Task, form: Form, first: Bool[Tensor, "tokens"], modulo: int = PRIME) -> dict[str, int]:
    """For each answer the rank of the table "is this the last answer?" of a partition: `first` marks one part of it.

    A protocol of c bits cuts the table into 2^c rectangles of one answer each, so c >= log2 of the sum of the ranks,
    and of each of them. They are computed modulo a prime, exactly: such a rank is a bound of its own, and never exceeds
    the one over the rationals.
    """
    last = answers(task, form)[:, -1]
    if (last == IGNORE).any():
        raise BadInput(f"{task.kind} does not ask at the end of each of these inputs: there is no whole table")
    parts = [[i for i in range(len(first)) if first[i] == mine] for mine in (True, False)]
    rows = math.prod(form.sizes[i] for i in parts[0])
    table = last.view(form.sizes).permute(*parts[0], *parts[1]).reshape(rows, -1)
    return {task.answers[i]: rank((table == i).long(), modulo) for i in last.unique().tolist()}


def rank(matrix: Int[Tensor, "rows columns"], modulo: int = PRIME) -> int:
    """The rank of a matrix of whole numbers modulo a prime below 2^31, by elimination.

    >>> rank(torch.tensor([[1, 1], [1, -1]])), rank(torch.tensor([[1, 1], [1, -1]]), modulo=2)
    (2, 1)
    """
    matrix = matrix % modulo
    matrix = matrix[_first_of_each(matrix)].T.contiguous()  # what stands there twice adds nothing
    matrix = matrix[_first_of_each(matrix)]
    found = 0
    for column in range(matrix.shape[1]):
        below = matrix[found:, column].nonzero()
        if not len(below):
            continue
        matrix[[found, found + int(below[0])]] = matrix[[found + int(below[0]), found]]
        pivot = matrix[found] * pow(int(matrix[found, column]), -1, modulo) % modulo
        rest = matrix[found + 1 :]
        rest.sub_(rest[:, column, None] * pivot % modulo).remainder_(modulo)
        found += 1
        if found == len(matrix):
            break
    return found


# -- automata ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Learned:
    """An automaton that answers on its moves, and a word that leads to each of its states."""

    moves: Int[Tensor, "states symbols"]
    says: Int[Tensor, "states symbols"]
    words: tuple[Tensor, ...]

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        state, said = torch.zeros_like(inputs[:, 0]), []
        for token in inputs.T:
            said.append(self.says[state, token - 1])
            state = self.moves[state, token - 1]
        return torch.stack(said, dim=1)


@cache
def learned(task: Task, suffixes: int, most: int = 1 << 10) -> Learned:
    """The automaton of a task, from its oracle alone.

    Words are the same state where they get the same answers behind every suffix of up to so many symbols (Nerode). So
    any two of its states are told apart by the oracle; that they are all there are is for a test on longer inputs.
    """
    alphabet = torch.arange(1, len(task.symbols) + 1)
    tails = [strings(len(alphabet), n) for n in range(1, suffixes + 1)]
    ends = torch.cat([torch.full((len(some),), n) for n, some in enumerate(tails)])
    padded = torch.cat([torch.nn.functional.pad(some, (0, suffixes - some.shape[1]), value=PAD) for some in tails])

    def behind(word: Int[Tensor, "time"]) -> Int[Tensor, "tails"]:
        """The answers behind every suffix; the first ones are those to the next symbol."""
        whole = torch.cat([word.expand(len(padded), -1), padded], dim=1)
        said = task.solve(whole)[torch.arange(len(ends)), len(word) + ends]
        if (said == IGNORE).any():
            raise BadInput(f"{task.kind} does not ask at every end: it has no automaton of its own")
        return said

    words, moves, says = [alphabet[:0]], [], []
    states = {behind(words[0]).numpy().tobytes(): 0}
    for word in words:  # which grows meanwhile
        says.append(behind(word)[: len(alphabet)])
        row = []
        for symbol in alphabet:
            step = torch.cat([word, symbol[None]])
            row.append(states.setdefault(behind(step).numpy().tobytes(), len(words)))
            if row[-1] == len(words):
                words.append(step)
        moves.append(row)
        if len(words) > most:
            raise BadInput(f"{task.kind} has more than {most} states: it is no small automaton")
    return Learned(torch.tensor(moves), torch.stack(says), tuple(words))
