"""Arithmetic with brackets: its oracle and its sampler are machines with a stack."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe, powers, rows_of
from assay.tasks.task import DEAD, Task, on_device

OPERATORS = "+-*"
COUNTED = 200  # tokens up to which expressions are counted
DEAD_STATE, START, START_MINUS = 0, 1, 2


class Control(NamedTuple):
    """The finite control of a stack machine; its states are those of the innermost open bracket.

    `moves[state, token]` follows every token but a closing bracket; that one takes `values[state]` (0: none, else the
    value + 1) to `operands[state below, value]`.
    """

    moves: Int[Tensor, "states tokens"]
    values: Int[Tensor, "states"]
    operands: Int[Tensor, "states values"]
    answers: Int[Tensor, "states"]


class BracketArithmetic(Task):
    """The value modulo n of an expression in which every operation has its brackets (Delétang et al. 2023).

    An expression is a digit d, or -d, or an expression in brackets, or (left operator right). Random ones have -d,
    (d) and (-d) at lengths 2 to 4 only; at greater lengths the operator's place and the operator are uniform. The
    answer to any other string is `dead`.

    >>> BracketArithmetic().explain("((3-4)-(-2-1))")
    '.............2'
    >>> BracketArithmetic().explain("3-4")
    '..!'
    """

    kind: ClassVar[str] = "modular-arithmetic-brackets"
    answer_positions: ClassVar[Literal["everywhere", "at the end"]] = "at the end"
    train_lengths: ClassVar[tuple[int, int]] = (1, 40)
    n: Annotated[int, Field(ge=2, le=10, description="the modulus; the digits are 0 to n - 1")] = 5
    multiply: Annotated[bool, Field(description="whether * is an operator, too")] = False

    @property
    def operators(self) -> str:
        return OPERATORS if self.multiply else OPERATORS[:2]

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*map(str, range(self.n)), *self.operators, "(", ")")

    @property
    def answers(self) -> tuple[str, ...]:
        return (*map(str, range(self.n)), DEAD)

    # -- the oracle ----------------------------------------------------------------------------------------------------

    @cached_property
    def control(self) -> Control:
        n, tokens = self.n, {symbol: i + 1 for i, symbol in enumerate(self.symbols)}
        names: list[tuple[str | int, ...]] = [("dead",), ("start",), ("start", "-"), *(("result", v) for v in range(n))]
        names += [("open",), ("open", "-"), *(("left", v) for v in range(n))]
        pending = [("right", v, operator) for v in range(n) for operator in self.operators]
        names += [*pending, *((*name, "-") for name in pending), *(("closing", v) for v in range(n))]
        number = {name: i for i, name in enumerate(names)}
        operands = torch.full((len(names), n + 1), DEAD_STATE)
        moves = torch.full((len(names), len(tokens) + 1), DEAD_STATE)
        moves[:, 0] = torch.arange(len(names))  # padding changes nothing
        values = torch.zeros(len(names), dtype=torch.int64)
        answers = torch.full((len(names),), n)
        for v in range(n):
            operands[START, v + 1], operands[number["open",], v + 1] = number["result", v], number["left", v]
            values[[number["left", v], number["closing", v]]] = v + 1
            answers[number["result", v]] = v
            for operator in self.operators:
                moves[number["left", v], tokens[operator]] = number["right", v, operator]
                for w in range(n):
                    value = {"+": v + w, "-": v - w, "*": v * w}[operator] % n
                    operands[number["right", v, operator], w + 1] = number["closing", value]
        for before in (("start",), ("open",), *pending):
            state, minus = number[before], number[(*before, "-")]
            moves[state, tokens["("]], moves[state, tokens["-"]] = number["open",], minus
            for digit in range(n):
                moves[state, digit + 1] = operands[state, digit + 1]
                moves[minus, digit + 1] = operands[state, -digit % n + 1]
        return Control(moves, values, operands, answers)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        moves, values, operands, answers = (on_device(table, inputs.device) for table in self.control)
        count, closing = moves.shape[1], len(self.symbols)
        flat, values_flat = moves.flatten(), operands.flatten()
        steps = ((inputs == closing - 1).long() - (inputs == closing).long()).T.contiguous()
        depth = torch.zeros_like(inputs[:, :1])
        below = torch.full((len(inputs), inputs.shape[1] + 2), DEAD_STATE, dtype=torch.int16, device=inputs.device)
        state, visited = torch.full_like(inputs[:, 0], START), []
        for token, step in zip(inputs.T.contiguous(), steps, strict=True):
            # What is written above the top is never read, except after an opening bracket.
            outer = below.gather(1, depth)[:, 0].long()
            below.scatter_(1, depth + 1, state[:, None].to(torch.int16))
            closed = values_flat[outer * (self.n + 1) + values[state]]
            state = torch.where(step < 0, closed, flat[state * count + token])
            depth = (depth + step[:, None]).clamp_(min=0)
            visited.append(state)
        return answers[torch.stack(visited, dim=1)]

    # -- the sampler ---------------------------------------------------------------------------------------------------

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        """From the left: a stack holds what is to come, tokens as negative numbers and phrases as their sizes.

        All shapes are fixed, so that a CUDA graph can hold it.
        """
        n, minus, opening = self.n, self.n + 2, self.n + 1 + len(self.operators)
        digits = 1 + rng.child("digit").integers(width, n).T.contiguous()
        operators = n + 1 + rng.child("operator").integers(width, len(self.operators)).T.contiguous()
        places = rng.child("left").uniform(width).T.contiguous()
        pending = lengths.new_full((len(lengths), width + 5), -1)  # at 0 a token, which stays at the bottom
        pending[:, 1] = lengths
        top, slots = torch.ones_like(lengths), torch.arange(4, device=lengths.device)
        closing, tokens = torch.full_like(lengths, -opening - 1), []
        for digit, operator, place in zip(digits, operators, places, strict=True):
            size = pending.gather(1, top[:, None])[:, 0]
            first = torch.where(size == 1, digit, torch.where(size == 2, minus, opening))
            tokens.append(torch.where(size < 0, -size, first))
            # -d, (phrase), or (left operator right); what comes first is on top, and what is above that is never read.
            left = 1 + (place * (size - 4)).long()
            inside = torch.where(size > 4, size - 3 - left, size - 2)
            rest = torch.stack([torch.where(size == 2, 1, closing), inside, -operator, left], dim=1)
            pending.scatter_(1, top[:, None] + slots, rest)
            more = (size > 1).long() + (size > 2).long() + 2 * (size > 4).long()
            top = (top - 1 + more).clamp_(min=0)
        return torch.stack(tokens, dim=1)

    @cached_property
    def _log_counts(self) -> list[float]:
        """The logarithm of the number of random expressions of each length, as far as it was needed."""
        return [-math.inf, *[math.log(self.n)] * 4]

    def log2_inputs(self, length: int) -> float:
        """Of long inputs a lower bound, the number of those of about `COUNTED` tokens: counting takes long."""
        counts, length = self._log_counts, min(length, COUNTED + length % 4)
        while len(counts) <= length:
            known = torch.tensor(counts[1 : len(counts) - 3], dtype=torch.float64)
            splits = float((known + known.flip(0)).logsumexp(0))
            counts.append(math.log(len(self.operators)) + splits)
        return counts[length] / math.log(2)

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        """Expressions as deep as possible, to the left or to the right.

        All digits but one leave the value as it is; or all are equal, and the value depends on how many there are.
        """
        left, right = [], []
        for depth in powers((longest - 1) // 4):
            for operator in self.operators:
                neutral, others = ("1", {"0", str(self.n - 1)}) if operator == "*" else ("0", {"1"})
                places = sorted({0, depth // 2, depth})
                digits = [neutral * i + d + neutral * (depth - i) for d in sorted(others - {neutral}) for i in places]
                for d in [*digits, max(others) * (depth + 1)]:
                    left.append("(" * depth + d[0] + "".join(f"{operator}{x})" for x in d[1:]))
                    right.append("".join(f"({x}{operator}" for x in d[:-1]) + d[-1] + ")" * depth)
        named = {"deep to the left": left, "deep to the right": right}
        return [Probe(name, rows_of(self.encode(text)[0].tolist() for text in texts)) for name, texts in named.items()]
