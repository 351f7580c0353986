"""Word problems: the running product of elements of a finite group."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import permutations, product
from typing import Annotated, Any, ClassVar

import torch
from jaxtyping import Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.prefix_tasks import FreeTask
from assay.tasks.task import symbols_named

Table = tuple[tuple[int, ...], ...]


class WordProblem(FreeTask):
    """The product of all elements so far, each drawn uniformly; element 0 is the identity."""

    @property
    @abstractmethod
    def product(self) -> Table:
        """`product[a][b]` is a times b."""

    @property
    def answers(self) -> tuple[str, ...]:
        return self.symbols

    @cached_property
    def machine(self) -> Machine:
        table = torch.tensor(self.product)
        return Machine(table, torch.arange(len(table)))

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return rng.integers(width, len(self.symbols)).add_(1)


class Cyclic(WordProblem):
    """Z_n: the sum so far modulo n.

    >>> Cyclic(n=3).explain("12211")
    '10201'
    """

    kind: ClassVar[str] = "cyclic"
    n: Annotated[int, Field(ge=2, le=1024, description="the symbols are 0 to n - 1")] = 3

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.n)))

    @cached_property
    def product(self) -> Table:
        return tuple(tuple((a + b) % self.n for b in range(self.n)) for a in range(self.n))


class PermutationGroup(WordProblem):
    """A group of permutations, each written as its images of 0, 1, 2, ...; the left factor acts first."""

    @property
    @abstractmethod
    def elements(self) -> tuple[tuple[int, ...], ...]: ...

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        return tuple("".join(map(str, p)) for p in self.elements)

    @cached_property
    def product(self) -> Table:
        number = {p: i for i, p in enumerate(self.elements)}
        return tuple(tuple(number[tuple(q[i] for i in p)] for q in self.elements) for p in self.elements)


def even(permutation: tuple[int, ...]) -> bool:
    """Whether a permutation has an even number of inversions."""
    pairs = ((i, j) for j in range(len(permutation)) for i in range(j))
    return sum(permutation[i] > permutation[j] for i, j in pairs) % 2 == 0


class S3(PermutationGroup):
    """S_3: the product of permutations of three objects, the smallest group that is not commutative.

    >>> S3().explain("102 021 102")
    '102 201 210'
    """

    kind: ClassVar[str] = "s3"
    elements: ClassVar[tuple[tuple[int, ...], ...]] = tuple(permutations(range(3)))


class S4(PermutationGroup):
    """S_4: the product of permutations of four objects; solvable, in three Abelian steps.

    >>> S4().explain("1023 1230")
    '1023 2130'
    """

    kind: ClassVar[str] = "s4"
    elements: ClassVar[tuple[tuple[int, ...], ...]] = tuple(permutations(range(4)))


class S5(PermutationGroup):
    """S_5: the product of permutations of five objects; not solvable, so complete for NC1.

    >>> S5().explain("10234 12340")
    '10234 21340'
    """

    kind: ClassVar[str] = "s5"
    elements: ClassVar[tuple[tuple[int, ...], ...]] = tuple(permutations(range(5)))


class A5(PermutationGroup):
    """A_5: the product of even permutations of five objects, the smallest group that is not solvable.

    >>> A5().explain("12034 12340")
    '12034 23140'
    """

    kind: ClassVar[str] = "a5"
    elements: ClassVar[tuple[tuple[int, ...], ...]] = tuple(filter(even, permutations(range(5))))


class A4Z5(PermutationGroup):
    """A_4 x Z_5: as many elements as A_5, and solvable; objects 0 to 3 are permuted evenly, 4 to 8 are rotated.

    >>> A4Z5().explain("120345678 012356784")
    '120345678 120356784'
    """

    kind: ClassVar[str] = "a4-z5"
    elements: ClassVar[tuple[tuple[int, ...], ...]] = tuple(
        (*p, *(4 + (i + k) % 5 for i in range(5))) for p, k in product(filter(even, permutations(range(4))), range(5))
    )


class Dihedral(WordProblem):
    """D_n: the symmetries of a regular polygon with n corners, n rotations r0, r1, ... and n reflections s0, s1, ...

    r_k sends corner x to x + k, s_k to k - x, modulo n; the left factor acts first.

    >>> Dihedral(n=5).explain("r1 s0 r2 s3")
    'r1 s4 s1 r2'
    """

    kind: ClassVar[str] = "dihedral"
    n: Annotated[int, Field(ge=2, le=512, description="corners of the polygon; the group has 2 n elements")] = 5

    @property
    def symbols(self) -> tuple[str, ...]:
        return symbols_named("r", self.n) + symbols_named("s", self.n)

    @cached_property
    def product(self) -> Table:
        """The number of the left factor changes its sign if the right factor is a reflection."""

        def product_of(a: int, b: int) -> int:
            sign = -1 if b >= self.n else 1
            return (b + sign * a) % self.n + self.n * ((a >= self.n) != (b >= self.n))

        return tuple(tuple(product_of(a, b) for b in range(2 * self.n)) for a in range(2 * self.n))


class Group(WordProblem):
    """Any finite group, from its multiplication table; element 0 is the identity. Here: Klein's four-group.

    >>> Group(table=((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))).explain("1231")
    '1301'
    """

    kind: ClassVar[str] = "group"
    example: ClassVar[dict[str, Any]] = {"table": ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))}
    table: Annotated[Table, Field(description="table[a][b] is the product of the elements a and b")]

    @model_validator(mode="after")
    def _is_a_group(self) -> Group:
        n = len(self.table)
        if n < 2 or any(sorted(row) != list(range(n)) for row in self.table):
            raise ValueError(f"group: every row of the table must hold each of 0 to {n - 1} once, n at least 2")
        table = torch.tensor(self.table)
        if not (table[0] == torch.arange(n)).all() or not (table[:, 0] == torch.arange(n)).all():
            raise ValueError("group: element 0 must be the identity")
        if not (table[table] == table[:, table]).all():
            raise ValueError("group: the product is not associative")
        return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(map(str, range(len(self.table))))

    @property
    def product(self) -> Table:
        return self.table
