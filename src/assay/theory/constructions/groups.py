"""Word problems of finite groups by products of reflections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assay.errors import BadInput
from assay.models.delta_rule import DeltaRule
from assay.models.skeleton import Model, Stack
from assay.tasks.groups import PermutationGroup, WordProblem
from assay.theory.claim import Recurrent
from assay.theory.constructions.automata import machine_of
from assay.theory.subspaces import FAR, Space, blank, embed, program, say


def as_permutations(group: WordProblem) -> tuple[tuple[int, ...], ...]:
    """The elements of a group as permutations, where the left factor acts first. A group given by its table becomes
    permutations by Cayley's theorem: b sends a to a b.

    >>> from assay.tasks.groups import Cyclic
    >>> as_permutations(Cyclic(n=3))
    ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    """
    return group.elements if isinstance(group, PermutationGroup) else tuple(zip(*group.product, strict=True))


def transpositions(permutation: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Exchanges (i, j) whose product is a permutation of n things, one for each i up to n - 2; (i, i) does nothing.

    >>> list(transpositions((1, 2, 0)))
    [(0, 2), (1, 2)]
    """
    rest = list(permutation)
    for i in range(len(rest) - 1):
        j = rest.index(i)
        yield i, j
        rest[i], rest[j] = rest[j], rest[i]


class Reflections(Recurrent):
    """The delta rule with beta = 2 and n - 1 writes per token solves the word problem of every group of permutations of
    n things, exactly and at every length: a write is a reflection, which exchanges two things.

    A write with v = W_0 k gives W' - W_0 = (W - W_0)(I - 2 k k^T). So W = W_0 - W_0 P, with P the product so far, and
    the initial W = 0 is the identity. Every thing has two coordinates in the keys, which always agree:
    k = (e_i + e_i* - e_j - e_j*) / 2 exchanges i with j, and every number is an integer or a half. With one coordinate
    k = (e_i - e_j) / sqrt(2), and every product is rounded. W q yields P c for a vector c of n different numbers; among
    all elements g, the product P has the largest <g c, P c>.
    """

    source: ClassVar[str] = "own; after Siems et al. 2025"
    length: ClassVar[int] = 50
    largest: ClassVar[int] = 20_000
    few: ClassVar[int] = 1 << 14  # all pairs of elements
    usual: ClassVar[str] = "s5"
    copies: ClassVar[int] = 2
    reach: ClassVar[Literal[1, 2]] = 2  # the largest beta

    def __init__(self, group: WordProblem | str | dict[str, Any] | None = None) -> None:
        task = machine_of(self.usual if group is None else group)
        if not isinstance(task, WordProblem):
            raise BadInput(f"{task.kind} is not the word problem of a group")
        self.group = task

    def task(self, length: int) -> WordProblem:
        return self.group

    def build(self, length: int) -> Model:
        elements = torch.tensor(as_permutations(self.group))
        n = elements.shape[1]
        swaps = [f"swap {i}" for i in range(n - 1)]
        stream = Space(**dict.fromkeys(swaps, n), one=1, image=n)
        mixer = DeltaRule(heads=1, features="unit", beta=self.reach, steps=n - 1)
        stack = Stack(name="reflections", mixers=(mixer,), width=stream.width, ff=0, norm="none")
        model, one = blank(stack, self.group), stream.read("one")
        embed(model, stream.vector(**dict(zip(swaps, exchanges(elements), strict=True)), one=1.0))

        c = torch.arange(n) - (n - 1) / 2
        again = torch.eye(n).repeat(self.copies, 1)  # the copies of every coordinate
        length_of_key, W_0 = (2 * self.copies) ** 0.5, again.T
        writes = [(key, W_0 @ key / length_of_key, FAR * one) for key in (again @ stream.read(s) for s in swaps)]
        program(model, 0, (again @ c)[:, None] * one, writes, stream.write("image"))
        image = c[:, None] * one - c.norm() / self.copies**0.5 * stream.read("image")  # P c, from (W_0 - W_0 P) q
        lead = (c - c[elements[1:]]).square().sum(1).min() / 2
        say(model, c[elements] @ image / lead)
        return model


def exchanges(elements: Int[Tensor, "elements n"]) -> tuple[Float[Tensor, "elements n"], ...]:
    """For each i up to n - 2, the vector e_i - e_j of every element; 0 if it exchanges nothing."""
    n = elements.shape[1]
    pairs = torch.tensor([list(transpositions(p)) for p in elements.tolist()])
    return (torch.eye(n)[pairs[..., 0]] - torch.eye(n)[pairs[..., 1]]).unbind(1)


class A5Reflections(Reflections):
    """The delta rule with beta = 2 and four writes per token solves the word problem of A_5, the smallest group that is
    not solvable, at every length, in width 26."""

    usual: ClassVar[str] = "a5"


class S3Reflections(Reflections):
    """The delta rule with beta = 2 and two writes per token solves the word problem of S_3 at every length, in width
    10."""

    length: ClassVar[int] = 200
    largest: ClassVar[int] = 100_000
    usual: ClassVar[str] = "s3"


class CyclicReflections(Reflections):
    """The delta rule with beta = 2 and n - 1 writes per token adds modulo n at every length, here with n = 3, by the
    permutations that Cayley's theorem gives for any table of a group."""

    length: ClassVar[int] = 200
    largest: ClassVar[int] = 100_000
    usual: ClassVar[str] = "cyclic"
