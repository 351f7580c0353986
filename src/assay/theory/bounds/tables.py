"""Exact bounds for any small task from its oracle alone, by the table of all its answers.

Split the positions of an input into two parts. The table has a row for every content of the first part, a column for
every content of the second, and the oracle's answers as entries. If the first part is a prefix, a recurrent machine
must tell the distinct rows apart. For any two parts, the logarithm of the rank is a lower bound on the bits that two
parties must exchange (Mehlhorn and Schmidt 1982), and so on the bits that one layer of attention must pass on.
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

from assay.errors import BadInput
from assay.tasks.task import IGNORE, PAD, Task
from assay.theory.bounds.information import bits_for
from assay.theory.claim import strings

LARGEST = 1 << 20  # inputs of a table
PRIME = (1 << 31) - 1


@dataclass(frozen=True, eq=False)
class Form:
    """The inputs of a table: at each position any of some tokens (or real vectors), independently of the others.

    So every content of one part of an input can be combined with every content of the other part.
    """

    choices: tuple[Tensor, ...]

    @classmethod
    def any_string(cls, task: Task, tokens: int) -> Form:
        """All strings over the symbols; the oracle answers every string."""
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
        """All inputs; the last position changes fastest."""
        total = math.prod(self.sizes)
        if total > LARGEST:
            raise BadInput(f"{total:,} inputs are too many for a table; at most 2^20: take shorter ones")
        number, columns = torch.arange(total), []
        for choice in reversed(self.choices):
            columns.append(choice[number % len(choice)])
            number = number // len(choice)
        return torch.stack(columns[::-1], dim=1)


def answers(task: Task, form: Form) -> Int[Tensor, "inputs time"]:
    """The oracle's answers to every input of a form."""
    return torch.cat([task.solve(part).int() for part in form.inputs().split(1 << 14)])


# -- recurrent machines --------------------------------------------------------------------------------------------


class Counted(NamedTuple):
    """The number of prefixes that must be told apart, and their number of tokens."""

    states: int
    cut: int

    @property
    def bits(self) -> int:
        return bits_for(self.states)


def prefixes_told_apart(task: Task, form: Form) -> Counted:
    """The count at the cut where it is largest. Every answer after the cut counts."""
    table, time = answers(task, form), len(form.choices)
    most = Counted(1, 0)
    for cut in range(1, time):
        after = table.view(math.prod(form.sizes[:cut]), -1, time)[..., cut:]
        most = max(most, Counted(different(after.flatten(1)), cut), key=lambda counted: counted.states)
    return most


def different(rows: Int[Tensor, "rows columns"]) -> int:
    """The number of rows of which no two may be confused: both have an answer in some column, and the answers differ.

    If every row has answers in the same columns, this is the number of distinct rows. Otherwise a row may agree with
    two rows that do not agree with each other; then a greedy search gives a lower bound.
    """
    rows = rows[_first_of_each(rows)]
    answered = rows != IGNORE
    if (answered == answered[0]).all():
        return len(rows)
    kept = rows[:0]
    for row in rows:
        differs = (kept != row) & (kept != IGNORE) & (row != IGNORE)
        if differs.any(1).all():
            kept = torch.cat([kept, row[None]])
    return len(kept)


def _first_of_each(rows: Int[Tensor, "rows columns"]) -> list[int]:
    """The index of the first occurrence of each distinct row."""
    first: dict[bytes, int] = {}
    for i, row in enumerate(rows.numpy()):
        first.setdefault(row.tobytes(), i)
    return list(first.values())


# -- two parties ---------------------------------------------------------------------------------------------------


def every_other(tokens: int) -> Bool[Tensor, "tokens"]:
    """The odd positions, counted from 1."""
    return torch.arange(tokens) % 2 == 0


def ranks(task: Task, form: Form, first: Bool[Tensor, "tokens"], modulo: int = PRIME) -> dict[str, int]:
    """For each answer, the rank of the table "is this the last answer?"; `first` marks the positions of the first part.

    A protocol of c bits cuts the table into 2^c rectangles of one answer each, so c >= log2 of the sum of the ranks,
    and of each rank. Ranks are computed exactly modulo a prime; such a rank never exceeds the rank over the rationals,
    so it is a lower bound too.
    """
    last = answers(task, form)[:, -1]
    if (last == IGNORE).any():
        raise BadInput(f"{task.kind} does not ask at the end of each of these inputs: there is no whole table")
    parts = [[i for i in range(len(first)) if first[i] == in_first] for in_first in (True, False)]
    rows = math.prod(form.sizes[i] for i in parts[0])
    table = last.view(form.sizes).permute(*parts[0], *parts[1]).reshape(rows, -1)
    return {task.answers[i]: rank((table == i).long(), modulo) for i in last.unique().tolist()}


def rank(matrix: Int[Tensor, "rows columns"], modulo: int = PRIME) -> int:
    """The rank of an integer matrix modulo a prime below 2^31, by elimination.

    >>> rank(torch.tensor([[1, 1], [1, -1]])), rank(torch.tensor([[1, 1], [1, -1]]), modulo=2)
    (2, 1)
    """
    matrix = matrix % modulo
    matrix = matrix[_first_of_each(matrix)].T.contiguous()  # equal rows or columns do not change the rank
    matrix = matrix[_first_of_each(matrix)]
    rank = 0
    for column in range(matrix.shape[1]):
        below = matrix[rank:, column].nonzero()
        if not len(below):
            continue
        matrix[[rank, rank + int(below[0])]] = matrix[[rank + int(below[0]), rank]]
        pivot = matrix[rank] * pow(int(matrix[rank, column]), -1, modulo) % modulo
        rest = matrix[rank + 1 :]
        rest.sub_(rest[:, column, None] * pivot % modulo).remainder_(modulo)
        rank += 1
        if rank == len(matrix):
            break
    return rank


# -- automata ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Inferred:
    """An automaton that answers on its moves, and a word that leads to each of its states."""

    moves: Int[Tensor, "states symbols"]
    says: Int[Tensor, "states symbols"]
    words: tuple[Tensor, ...]

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        state, answers = torch.zeros_like(inputs[:, 0]), []
        for token in inputs.T:
            answers.append(self.says[state, token - 1])
            state = self.moves[state, token - 1]
        return torch.stack(answers, dim=1)


@cache
def inferred(task: Task, suffixes: int, most: int = 1 << 10) -> Inferred:
    """The automaton of a task, inferred from its oracle alone.

    Two words lead to the same state if they get the same answers for every suffix of up to `suffixes` symbols (Nerode).
    So the oracle tells any two states apart; only longer inputs can show that no state is missing.
    """
    alphabet = torch.arange(1, len(task.symbols) + 1)
    tails = [strings(len(alphabet), n) for n in range(1, suffixes + 1)]
    ends = torch.cat([torch.full((len(tail),), n) for n, tail in enumerate(tails)])
    padded = torch.cat([torch.nn.functional.pad(tail, (0, suffixes - tail.shape[1]), value=PAD) for tail in tails])

    def answers_after(word: Int[Tensor, "time"]) -> Int[Tensor, "tails"]:
        """The answers at the end of every suffix; suffixes of one symbol come first."""
        whole = torch.cat([word.expand(len(padded), -1), padded], dim=1)
        ended = task.solve(whole)[torch.arange(len(ends)), len(word) + ends]
        if (ended == IGNORE).any():
            raise BadInput(f"{task.kind} does not ask at every end: it has no automaton of its own")
        return ended

    words, moves, says = [alphabet[:0]], [], []
    states = {answers_after(words[0]).numpy().tobytes(): 0}
    for word in words:  # grows meanwhile
        says.append(answers_after(word)[: len(alphabet)])
        row = []
        for symbol in alphabet:
            step = torch.cat([word, symbol[None]])
            row.append(states.setdefault(answers_after(step).numpy().tobytes(), len(words)))
            if row[-1] == len(words):
                words.append(step)
        moves.append(row)
        if len(words) > most:
            raise BadInput(f"{task.kind} has more than {most} states, too many for this bound")
    return Inferred(torch.tensor(moves), torch.stack(says), tuple(words))
