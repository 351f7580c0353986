"""All short strings of a task, and the weight matrices of an SRWM after each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.extract.machines import Word
from assay.extract.questions import Questions
from assay.lab.evaluate import answers_of
from assay.models.causal import State
from assay.models.skeleton import Model
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE


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
        rows = self.parents[:count], self.answers[:count], self.matrices[:count], self.distances[:count, :count]
        return Tree(self.words[:count], *rows, length)


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
    first, right_to, all_right = 0, 0, True
    for length in range(1, longest + 1):
        rows, longer = grow(words, questions)
        if not longer or len(tree) + len(longer) > most:
            break
        position, layers = state
        parts = tuple(tuple(part[rows] for part in layer) for layer in layers)
        logits, state = model.step(torch.tensor([word[-1] for word in longer]), (position, parts))
        targets = questions.targets(rows_of(longer))[:, -1]
        row_answers = answers_of(logits).where(targets != IGNORE, IGNORE)
        all_right &= bool((row_answers == targets).all())
        right_to = length if all_right else right_to
        parents += [first + row for row in rows]
        first = len(tree)
        words, tree = longer, tree + longer
        answers += row_answers.tolist()
        matrices.append(flat(state))
    points = torch.cat(matrices)
    distances = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return Tree(tree, torch.tensor(parents), torch.tensor(answers), points, distances, right_to)


def flat(state: State) -> Float[Tensor, "rows numbers"]:
    """All numbers of the matrices of all layers, row by row."""
    return torch.cat([part.flatten(1) for layer in state[1] for part in layer], dim=1)
