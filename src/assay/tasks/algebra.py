"""The algebra of a regular task: the monoid of what words do to the states of its minimal automaton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import BadInput
from assay.tasks.automaton import Machine
from assay.tasks.minimal import minimal
from assay.tasks.permutation_groups import LARGEST, GroupFacts, facts, order
from assay.tasks.task import Task

MOST_MOVES = 1 << 18  # of an automaton that is looked at
MOST_ELEMENTS = 20_000
MOST_NUMBERS = 20_000_000  # elements times states
Elements = NDArray[np.int32]  # [elements, states]: to which state an element takes each state


@dataclass(frozen=True)
class Algebra:
    """What holds for the syntactic monoid of a task (its elements are words, alike if no context tells them apart).

    - aperiodic: no word counts; x^(n+1) = x^n for some n. The languages are star-free (Schützenberger 1965).
    - group: every word can be undone.
    - solvable: every group in the monoid is solvable.
    - R-trivial: no word leads back to a state that was left; J-trivial: the same from both sides.
    - quasi-aperiodic: no group among the words of one length; the task is in AC0 (Barrington et al. 1992).
    - periods: modulo which number each symbol counts by itself; 1 if it does not.
    """

    states: int
    elements: int
    group: bool
    commutative: bool
    aperiodic: bool
    quasi_aperiodic: bool
    r_trivial: bool
    j_trivial: bool
    groups: tuple[GroupFacts, ...]  # the different largest ones in the monoid, without those of one element
    periods: dict[str, int]

    @property
    def solvable(self) -> bool:
        return all(group.solvable for group in self.groups)

    @property
    def complexity(self) -> str:
        """The circuit class that the algebra decides (Barrington 1989, Barrington et al. 1992)."""
        return "in AC0" if self.quasi_aperiodic else "in ACC0, not in AC0" if self.solvable else "complete for NC1"

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            **{name: value for name, value in vars(self).items() if name != "groups"},
            "solvable": self.solvable,
            "complexity": self.complexity,
            "groups": [group._asdict() for group in self.groups],
        }


def algebra_of(task: Task) -> Algebra | None:
    """The algebra of a task; None if it has no finite automaton. One that is too large is refused."""
    machine = getattr(task, "machine", None)
    if not isinstance(machine, Machine):
        return None
    states, symbols = machine.moves.shape
    if states * symbols > MOST_MOVES:
        raise BadInput(
            f"{task.kind}: the algebra of an automaton with {states:,} states and {symbols:,} symbols is not computed; "
            f"it may have {MOST_MOVES:,} moves"
        )
    smallest = minimal(machine)
    letters = smallest.moves.T.contiguous().numpy().astype(np.int32)
    elements, after = _generate(letters, task.kind)
    powers = _idempotent_powers(elements)
    moving = _counts(elements, powers)
    groups = _groups(elements, task.kind) if moving.any() else ()
    last = _words_of_one_length(after)
    r_trivial = _has_only_loops(smallest.moves.numpy())
    return Algebra(
        states=len(smallest.moves),
        elements=len(elements),
        group=bool((np.sort(letters, axis=1) == np.arange(letters.shape[1])).all()),
        commutative=all(np.array_equal(a[b], b[a]) for i, a in enumerate(letters) for b in letters[:i]),
        aperiodic=not moving.any(),
        quasi_aperiodic=not moving[last].any(),
        r_trivial=r_trivial,
        j_trivial=r_trivial and _has_only_loops(_before(elements, letters)),
        groups=groups,
        periods={symbol: _period(letter) for symbol, letter in zip(task.symbols, letters, strict=True)},
    )


def _generate(letters: Elements, kind: str) -> tuple[Elements, NDArray[np.int64]]:
    """All elements, the empty word first, and `after[x, a]`, the number of the element x followed by the symbol a."""
    unique, number_of_letter = np.unique(letters, axis=0, return_inverse=True)
    identity = np.arange(letters.shape[1], dtype=np.int32)
    most = min(MOST_ELEMENTS, MOST_NUMBERS // letters.shape[1])
    number, found, after = {identity.tobytes(): 0}, [identity], list[list[int]]()
    for element in found:  # grows while it is read
        row = []
        for letter in unique:
            product = letter[element]
            key = product.tobytes()
            if key not in number:
                number[key] = len(found)
                found.append(product)
            row.append(number[key])
        after.append(row)
        if len(found) > most:
            raise BadInput(f"{kind}: its monoid has more than {most:,} elements, which is too many to look at")
    return np.stack(found), np.array(after)[:, number_of_letter.reshape(-1)]


def _then(first: Elements, second: Elements) -> Elements:
    """Products of elements, row by row."""
    product: Elements = np.take_along_axis(second, first, axis=1)
    return product


def _idempotent_powers(elements: Elements) -> Elements:
    """x^n for a large n: the image of x^n is where x only permutes."""
    power = elements
    for _ in range(int(elements.shape[1]).bit_length()):
        power = _then(power, power)
    return power


def _counts(elements: Elements, powers: Elements) -> NDArray[np.bool_]:
    """The elements x with x^(n+1) != x^n for every n."""
    moved: NDArray[np.bool_] = (_then(powers, elements) != powers).any(axis=1)
    return moved


def _groups(elements: Elements, kind: str) -> tuple[GroupFacts, ...]:
    """The facts about the groups in a monoid: for each image of an idempotent, what permutes this image."""
    idempotents = elements[(_then(elements, elements) == elements).all(axis=1)]
    images = {tuple(np.unique(row).tolist()) for row in idempotents}
    found = set()
    for image in images:
        restricted = elements[:, image]
        permutes = (np.sort(restricted, axis=1) == np.array(image)).all(axis=1)
        permutations = np.unique(restricted[permutes], axis=0)
        if len(permutations) > LARGEST:
            raise BadInput(
                f"{kind}: a group in its monoid has {len(permutations):,} elements, which is too many to look at"
            )
        if len(permutations) > 1:
            found.add(frozenset(map(tuple, np.searchsorted(image, permutations).tolist())))
    return tuple(sorted({facts(set(group)) for group in found}, key=lambda group: (group.order, group.commutative)))


def _words_of_one_length(after: NDArray[np.int64]) -> NDArray[np.int64]:
    """The elements that are words of length n, 2n, 3n ... alike, for the least such n (the stable semigroup)."""
    current = np.zeros(len(after), dtype=bool)
    current[0] = True
    lengths, sets = {current.tobytes(): 0}, [current]
    while True:
        following = np.zeros_like(current)
        following[after[current]] = True
        length, key = len(sets), following.tobytes()
        if key in lengths:
            first, period = lengths[key], length - lengths[key]
            stable = period * max(1, -(-first // period))
            return np.flatnonzero(sets[stable] if stable < length else following)
        lengths[key] = length
        sets.append(following)
        current = following


def _before(elements: Elements, letters: Elements) -> NDArray[np.int64]:
    """The number of the element that is a symbol followed by x, for each x and symbol."""
    number = {row.tobytes(): i for i, row in enumerate(elements)}
    return np.array([[number[element[letter].tobytes()] for letter in letters] for element in elements])


def _has_only_loops(successors: NDArray[np.int64]) -> bool:
    """Whether a graph has no cycle but edges from a node to itself."""
    edges = [{int(q) for q in row} - {node} for node, row in enumerate(successors)]
    incoming = [0] * len(edges)
    for targets in edges:
        for target in targets:
            incoming[target] += 1
    free = [node for node, count in enumerate(incoming) if not count]
    for node in free:  # grows while it is read
        for target in edges[node]:
            incoming[target] -= 1
            if not incoming[target]:
                free.append(target)
    return len(free) == len(edges)


def _period(letter: NDArray[np.int32]) -> int:
    """The least common multiple of the cycles of one element."""
    power = letter
    for _ in range(len(letter).bit_length()):
        power = power[power]
    in_cycles = np.unique(power)
    return order(tuple(np.searchsorted(in_cycles, letter[in_cycles]).tolist()))
