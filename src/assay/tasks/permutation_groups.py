"""Finite groups, as sets of permutations: whether they are commutative, cyclic, solvable or dihedral."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

Permutation = tuple[int, ...]
LARGEST = 5_000  # elements of a group that is looked at


class GroupFacts(NamedTuple):
    """What is known about a finite group; `steps` is its derived length, None if it is not solvable."""

    order: int
    commutative: bool
    cyclic: bool
    steps: int | None
    dihedral: bool

    @property
    def solvable(self) -> bool:
        return self.steps is not None


def facts(group: set[Permutation]) -> GroupFacts:
    """
    >>> facts({(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)})
    GroupFacts(order=6, commutative=False, cyclic=False, steps=2, dihedral=True)
    """
    steps, part = 0, group
    while len(part) > 1:
        smaller = derived(part)
        if len(smaller) == len(part):
            return GroupFacts(len(group), commutative=False, cyclic=False, steps=None, dihedral=False)
        steps, part = steps + 1, smaller
    cyclic = steps <= 1 and any(order(element) == len(group) for element in group)
    return GroupFacts(len(group), steps <= 1, cyclic, steps, dihedral=steps == 2 and is_dihedral(group))


def then(first: Permutation, second: Permutation) -> Permutation:
    return tuple([second[i] for i in first])


def inverse(permutation: Permutation) -> Permutation:
    images = [0] * len(permutation)
    for i, image in enumerate(permutation):
        images[image] = i
    return tuple(images)


def order(permutation: Permutation) -> int:
    """The least common multiple of the lengths of its cycles.

    >>> order((1, 2, 0, 4, 3))
    6
    """
    seen, result = [False] * len(permutation), 1
    for start in range(len(permutation)):
        length, place = 0, start
        while not seen[place]:
            seen[place], length, place = True, length + 1, permutation[place]
        result = math.lcm(result, length or 1)
    return result


def generated(generators: Iterable[Permutation], size: int) -> set[Permutation]:
    """The group of permutations of this many points that these generate."""
    generators = tuple(generators)
    group, new = {tuple(range(size))}, [tuple(range(size))]
    while new:
        new = list({then(element, generator) for element in new for generator in generators} - group)
        group.update(new)
    return group


def generators_of(group: set[Permutation]) -> list[Permutation]:
    """A few elements that generate a group: each one at least doubles what the ones before it generate."""
    size, chosen = len(next(iter(group))), list[Permutation]()
    part = generated((), size)
    for element in sorted(group):
        if element not in part:
            chosen.append(element)
            part = generated(chosen, size)
    return chosen


def derived(group: set[Permutation]) -> set[Permutation]:
    """The commutator subgroup: the smallest normal subgroup that has the commutators of the generators."""
    generators, size = generators_of(group), len(next(iter(group)))
    pairs = [(a, b) for a in generators for b in generators]
    chosen = {then(then(inverse(a), inverse(b)), then(a, b)) for a, b in pairs}
    while True:
        part = generated(chosen, size)
        conjugates = {then(then(inverse(g), x), g) for g in generators for x in chosen}
        if conjugates <= part:
            return part
        chosen |= conjugates


def is_dihedral(group: set[Permutation]) -> bool:
    """Whether a group is D_n for some n of at least 3: a cyclic half, and reflections outside that invert it.

    In D_n every element of order n generates the same half, and one reflection with it the group: one of each decides.
    """
    half = len(group) // 2
    if len(group) < 6 or len(group) % 2:
        return False
    rotation = next((element for element in group if order(element) == half), None)
    if rotation is None:
        return False
    reflection = next(iter(group - generated([rotation], len(rotation))))
    return order(reflection) == 2 and then(then(reflection, rotation), reflection) == inverse(rotation)
