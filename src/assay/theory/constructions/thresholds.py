"""Thresholds of sparse features by two layers of attention: disjointness, k-DNF and k-CNF."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from itertools import product
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Bool, Int
from pydantic import model_validator
from torch import Tensor
from torch.nn.functional import pad

from assay.errors import BadInput
from assay.models.attention import Attention
from assay.models.skeleton import Model, Stack
from assay.rng import Rng
from assay.tasks.equality import Disjointness
from assay.tasks.task import Task, on_device, unpadded
from assay.theory.claim import NOTHING, Change, Construction, Examined, strings
from assay.theory.codes import trace_code
from assay.theory.subspaces import Relus, Space, attend, average, blank, embed, place, say

# -- the construction --------------------------------------------------------------------------------------------------


class Features(NamedTuple):
    """Functions of k bits: the position where each is computed, the positions of its bits, and its truth table.

    The values of a table are in the order of the bits 0 ... 00, 0 ... 01, 0 ... 10, and so on.
    """

    at: Int[Tensor, "count"]
    of: Int[Tensor, "count k"]
    table: Bool[Tensor, "count 2**k"]


class Thresholds(Construction):
    """Two layers of attention, the first with k heads, decide whether at least b of N features of k bits each are true.

    In the first layer, head h copies the h-th bit of the feature of a position, and the feed-forward part evaluates the
    feature. In the second, the mean s over all T tokens counts the true features, and the answer is
    R(T s - b + 1) - R(T s - b) with R = relu.

    Two things differ from the published proof. There the feed-forward part computes another function at every
    position, but all positions share one feed-forward part. So each position holds the truth table of its feature, in
    2^k coordinates of its embedding, and the feed-forward part looks up the bits. And attention is causal here, so a
    feature is computed at or after the position of its last bit; if the input has too few such positions, blanks follow
    it. A position without a feature has a table of zeros, and needs no BOS token to attend to.
    """

    source: ClassVar[str] = "Bhattamishra et al. 2024, Theorem 13"
    gamma: ClassVar[float] = 0.5  # a narrow code, since each head has its own pointers: 16 dimensions for 512 tokens

    @abstractmethod
    def features(self, length: int) -> Features:
        """At most one feature per position, none before its bits; a feature of fewer bits repeats one of them."""

    @abstractmethod
    def threshold(self, length: int) -> int:
        """The least number of true features."""

    def build(self, length: int) -> Model:
        task, tokens, b = self.task(length), self.tokens(length), self.threshold(length)
        at, of, table = self.features(length)
        k, code = of.shape[1], trace_code(tokens, self.gamma)
        copies, ptrs = [f"copy{h}" for h in range(k)], [f"ptr{h}" for h in range(k)]
        used = dict.fromkeys(copies, 1) | dict.fromkeys(ptrs, code.k) | {"pos": code.k, "table": 2**k}
        used |= {"bit": 1, "feature": 1, "reached": 1}
        stream = Space(**used, unused=-sum(used.values()) % k)  # heads share the width evenly
        stack = Stack(name="thresholds", mixers=(Attention(heads=k), Attention(heads=1)), width=stream.width, ff=2,
                      norm="none", positions="learned", longest=tokens)  # fmt: skip
        model = blank(stack, task)
        embed(model, stream.vector(bit=[[1.0] if symbol == "1" else [-1.0] for symbol in task.symbols]))
        positions = stream.vector(pos=code.signs)
        positions[at] += stream.vector(table=table, **dict(zip(ptrs, code.signs[of.T], strict=True)))
        place(model, positions)

        eta = code.scale(tokens, eps=1 / (4 * k))  # so `agree` is off by at most 1/4
        for h, (copy, ptr) in enumerate(zip(copies, ptrs, strict=True)):
            attend(model, 0, query=eta / code.k * stream.read(ptr), key=stream.read("pos"),
                   value=stream.read("bit"), into=stream.write(copy), head=h)  # fmt: skip
        evaluate, cases = Relus(model, 0), torch.tensor(list(product((-1.0, 1.0), repeat=k)))
        agree = cases @ stream.read(*copies) / 2  # k/2 in the case of these bits, at most k/2 - 1 in the others
        evaluate.between(stream.read("table") + agree, k / 2 + 0.25, stream.write("feature").expand(-1, 2**k),
                         high=k / 2 + 0.75)  # fmt: skip

        average(model, 1, value=stream.read("feature"), into=stream.write("reached"))
        at_least = Relus(model, 1)
        at_least.between(tokens * stream.read("reached"), b - 1, stream.write("reached"))
        at_least.clear(stream.read("reached"), stream.write("reached"))
        say(model, torch.cat([-stream.read("reached"), stream.read("reached")]), torch.tensor([0.5, -0.5]))
        return model


class DisjointnessTwoLayers(Thresholds):
    """Two layers of attention of width O(log^2 N), the first with two heads, decide whether two sets given as x # y,
    with N bits in both together, are disjoint.

    There is a feature at every bit of y: this bit and its partner in x are not both 1. All N / 2 of them must be true.
    """

    length: ClassVar[int] = 64
    largest: ClassVar[int] = 256
    small: ClassVar[tuple[int, ...]] = (2, 4, 6, 8, 10)

    def task(self, length: int) -> Disjointness:
        return Disjointness()

    def tokens(self, length: int) -> int:
        return length + 1

    def every(self, length: int) -> Tensor:
        """All x # y."""
        x, y = strings(2, length).chunk(2, dim=1)
        return torch.cat([x, torch.full((len(x), 1), 3), y], dim=1)

    def features(self, length: int) -> Features:
        x = torch.arange(length // 2)
        y = x + len(x) + 1
        not_both = torch.tensor([True, True, True, False])
        return Features(at=y, of=torch.stack([x, y], dim=1), table=not_both.expand(len(x), -1))

    def threshold(self, length: int) -> int:
        return length // 2


# -- formulas ----------------------------------------------------------------------------------------------------------

Form = Literal["DNF", "CNF"]
OPERATORS = {"DNF": ("|", "&"), "CNF": ("&", "|")}  # between clauses, and within one
EXAMPLES = {"DNF": "(x1 & ~x3) | (x2 & x4)", "CNF": "(x1 | ~x3) & (x2 | x4)"}
MOST_LITERALS, ATTEMPTS = 8, 64


def clauses_of(text: str, form: Form) -> tuple[tuple[int, ...], ...]:
    """The clauses of a formula; a literal is the number of its variable, negative if it is negated.

    >>> clauses_of("(x1 & ~x3) | x2", "DNF"), clauses_of("(x1 | ~x3) & x2", "CNF")
    (((1, -3), (2,)), ((1, -3), (2,)))
    """
    between, within = OPERATORS[form]
    literal = r"\s*~?\s*x[1-9][0-9]{0,2}\s*"
    several = rf"{literal}(\{within}{literal})*"
    bare = several if within == "&" else literal  # & binds before |
    clauses = text.split(between)
    for clause in clauses:
        if not re.fullmatch(rf"\s*\({several}\)\s*|{bare}", clause):
            raise BadInput(f"'{clause.strip()}' is not a clause of a {form} like {EXAMPLES[form]} of x1 to x999")
        if clause.count("x") > MOST_LITERALS:
            raise BadInput(f"'{clause.strip()}' has {clause.count('x')} literals; at most {MOST_LITERALS}")
    numbers = (re.sub(r"[\s()x]", "", clause).replace("~", "-").split(within) for clause in clauses)
    return tuple(tuple(map(int, literals)) for literals in numbers)


class Formula(Task):
    """The value of a formula: x1 is true if the first symbol is 1, and so on. Blanks (-) may follow.

    With `at_least`, the question is whether so many clauses (or terms of a DNF) are true, in place of one term of a DNF
    or all clauses of a CNF. The sampler changes one clause after another until just enough are true, or one too few.

    >>> formula = Formula(text="(x1 & ~x3) | (x2 & x4)")
    >>> formula.explain("1001--"), formula.explain("1011--")
    ('.....1', '.....0')
    >>> Formula(text="(x1 & ~x3) | (x2 & x4)", at_least=2).explain("1001--")
    '.....0'
    """

    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    symbols: ClassVar[tuple[str, ...]] = ("0", "1", "-")
    answers: ClassVar[tuple[str, ...]] = ("0", "1")
    text: str
    form: Form = "DNF"
    at_least: int | None = None

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        count = len(clauses_of(self.text, self.form))
        if self.at_least is not None and not 1 <= self.at_least <= count:
            raise BadInput(f"at_least = {self.at_least} is not valid: 1 to {count}, the number of clauses")
        return self

    @cached_property
    def literals(self) -> Int[Tensor, "clauses k"]:
        """The clauses as a matrix; a shorter clause repeats its first literal."""
        clauses = clauses_of(self.text, self.form)
        k = max(map(len, clauses))
        return torch.tensor([clause + (k - len(clause)) * clause[:1] for clause in clauses])

    @property
    def variables(self) -> int:
        return int(self.literals.abs().max())

    @property
    def threshold(self) -> int:
        """The least number of true clauses."""
        return self.at_least or (1 if self.form == "DNF" else len(self.literals))

    def joined(self, literals: Bool[Tensor, "*rows k"]) -> Bool[Tensor, "*rows"]:
        """The value of a clause from the values of its literals."""
        return literals.all(-1) if self.form == "DNF" else literals.any(-1)

    def true_clauses(self, x: Bool[Tensor, "rows variables"]) -> Bool[Tensor, "rows clauses"]:
        literals = on_device(self.literals, x.device)
        return self.joined(x[:, literals.abs() - 1] == (literals > 0))

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        x = pad((inputs == 2) & unpadded(inputs), (0, max(0, self.variables - inputs.shape[1])))
        value = self.true_clauses(x).sum(1, keepdim=True) >= self.threshold
        return value.long().expand(inputs.shape)

    def fits(self, length: int) -> bool:
        return length >= self.variables

    def log2_inputs(self, length: int) -> float:
        return float(self.variables)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        literals = on_device(self.literals, lengths.device)
        x = rng.child("bits").integers(self.variables, 2) == 1
        target = self.threshold - rng.child("label").integers(1, 2)
        nearest, distance = x, torch.full_like(target, len(literals) + 1)
        for attempt in range(ATTEMPTS):
            true = self.true_clauses(x)
            missing = target - true.sum(1, keepdim=True)
            nearest = torch.where(missing.abs() < distance, x, nearest)
            distance = torch.minimum(missing.abs(), distance)
            if not distance.any():
                break
            draws, more = rng.child("attempt", attempt), missing > 0
            lot = draws.child("clause").integers(len(literals), 1 << 30)
            clause = literals[torch.where(true == more, -1, lot).argmax(1)]  # a random one to make true, or false
            variable, which = clause.abs() - 1, draws.child("literal").integers(1, literals.shape[1])
            every_literal = more == (self.form == "DNF")
            changed = (every_literal | (variable == variable.gather(1, which))) & (missing != 0)
            x = x.scatter(1, variable, torch.where(changed, (clause > 0) == more, x.gather(1, variable)))
        return pad(nearest.long() + 1, (0, width - self.variables), value=3)


def random_formula(form: Form, variables: int, k: int = 3) -> str:
    """A fixed formula with as many clauses as variables: clause i has variable i and k - 1 other random ones.

    >>> random_formula("CNF", 4)
    '(~x1 | ~x4 | ~x3) & (~x2 | x4 | x1) & (~x3 | x1 | ~x4) & (~x4 | x3 | ~x1)'
    """
    between, within = OPERATORS[form]
    rows = Rng.seeded(0, "formula", form, variables).rows(variables)
    steps = pad(rows.child("others").order(variables - 1)[:, : k - 1] + 1, (1, 0))
    which = (torch.arange(variables)[:, None] + steps) % variables + 1
    signs = rows.child("signs").integers(k, 2)
    clauses = [
        f" {within} ".join(("~" if sign else "") + f"x{i}" for i, sign in zip(*row, strict=True))
        for row in zip(which.tolist(), signs.tolist(), strict=True)
    ]
    return f" {between} ".join(f"({clause})" for clause in clauses)


class FormulaTwoLayers(Thresholds):
    """Two layers evaluate a formula. An input is N bits and then a blank for every clause, where it is computed.

    The default is a random formula of N variables and N clauses of three literals. Without `at_least`, the check covers
    every threshold: at the small lengths all thresholds and inputs, at its own a quarter, a half and three quarters of
    the clauses, and random inputs.
    """

    form: ClassVar[Form]
    length: ClassVar[int] = 12
    largest: ClassVar[int] = 128
    small: ClassVar[tuple[int, ...]] = tuple(range(3, 9))
    any_string: ClassVar[bool] = True

    def __init__(self, formula: str | None = None, at_least: int | None = None) -> None:
        self.formula, self.at_least = formula, at_least
        if formula is not None:  # then the claim covers this formula only
            self.length = self.task(0).variables  # type: ignore[misc]
            self.small = (self.length,) if self.length <= 12 else ()  # type: ignore[misc]

    def examine_others(self, length: int, rng: Rng, inputs: int, change: Change | None) -> Examined:
        """The thresholds that the formula itself does not have."""
        if self.at_least is not None:
            return NOTHING
        seen, clauses = NOTHING, len(self.task(length).literals)
        for n in (n for n in self.small if n <= length):
            for other in self.others(n, range(1, len(self.task(n).literals) + 1)):
                seen += other.examine(other.machine(n, change), [self.every(n)])
        for other in self.others(length, sorted({max(1, share * clauses // 4) for share in (1, 2, 3)})):
            draws = rng.child("at least", other.threshold(length))
            seen += other.examine_random(other.machine(length, change), draws, -(-inputs // 10))
        return seen

    def others(self, length: int, thresholds: Iterable[int]) -> list[Self]:
        """The same claim with other thresholds."""
        own = self.threshold(length)
        return [type(self)(self.formula, at_least) for at_least in thresholds if at_least != own]

    def check_length(self, length: int) -> None:
        if self.formula is None and length < 3:
            raise BadInput(f"{self.name} has no length {length}: at least 3 variables")
        if self.formula is not None and length != self.length:
            raise BadInput(f"{self.name} has no length {length}: this formula has {self.length} variables")

    def task(self, length: int) -> Formula:
        text = random_formula(self.form, length) if self.formula is None else self.formula
        return Formula(text=text, form=self.form, at_least=self.at_least)

    def tokens(self, length: int) -> int:
        return length + len(self.task(length).literals)

    def every(self, length: int) -> Tensor:
        """All strings of bits, followed by blanks."""
        return pad(strings(2, length), (0, self.tokens(length) - length), value=3)

    def features(self, length: int) -> Features:
        task, tokens = self.task(length), self.tokens(length)
        cases = torch.tensor(list(product((False, True), repeat=task.literals.shape[1])))
        table = task.joined(cases == (task.literals > 0)[:, None])
        return Features(at=torch.arange(length, tokens), of=task.literals.abs() - 1, table=table)

    def threshold(self, length: int) -> int:
        return self.task(length).threshold


class KDnf(FormulaTwoLayers):
    """Two layers of attention, the first with k heads, decide whether at least b of the M terms of a k-DNF of N
    variables are true, for every b from 1 to M, given N bits and M blanks, in width O(k log^2(N + M) + 2^k).

    With b = 1 this is the value of the formula.
    """

    form: ClassVar[Form] = "DNF"


class KCnf(FormulaTwoLayers):
    """Two layers of attention, the first with k heads, decide whether at least b of the M clauses of a k-CNF of N
    variables are true, for every b from 1 to M, given N bits and M blanks, in width O(k log^2(N + M) + 2^k).

    With b = M this is the value of the formula.
    """

    form: ClassVar[Form] = "CNF"
