"""Which matrices are one program: clusters by single linkage, with one answer and one successor for each symbol."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.extract.tree import Tree
from assay.tasks.task import IGNORE


def linked(distances: Float[Tensor, "strings strings"]) -> list[tuple[float, int, int]]:
    """The shortest tree that links all matrices, as (distance, row, row), longest link first.

    Without its links that are longer than a threshold, what remains linked is a chain of matrices that are close.
    """
    count = len(distances)
    nearest, partner = torch.full((count,), math.inf, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    outside, row, links = torch.ones(count, dtype=torch.bool), 0, []
    for _ in range(count - 1):
        outside[row] = False
        closer = distances[row] < nearest
        nearest = torch.where(closer, distances[row], nearest)
        partner[closer] = row
        row = int(nearest.where(outside, math.inf).argmin())
        links.append((float(nearest[row]), int(partner[row]), row))
    return sorted(links, key=lambda link: (-link[0], link[2]))


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
    has_question = tree.answers[1:] != IGNORE
    answers = tree.answers[1:][has_question]
    while True:
        keys, successors = labels[tree.parents[1:]] * symbols + tree.symbols[1:], labels[1:]
        if not torch.equal(_least(keys[has_question], answers), answers):
            return None
        least = _least(keys, successors)
        if torch.equal(least, successors):
            return labels
        pairs = torch.stack([least, successors], 1).unique(dim=0).tolist()
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
        attempt = labels_without(middle)
        if attempt is None:
            impossible = middle
        else:
            possible, labels = middle, attempt
    return labels, links[possible][0] if possible < len(links) else 0.0
