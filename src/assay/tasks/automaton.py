"""Finite automata: the oracle of every regular task, and a uniform sampler for any regular language."""

from __future__ import annotations

import math
import re
import threading
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from assay.rng import Rng, kernels
from assay.tasks.task import DEAD, Task, on_device


@dataclass(frozen=True, eq=False)
class Machine:
    """A Moore machine: `moves[state, symbol]` is the next state, `outputs[state]` the answer in a state."""

    moves: Int[Tensor, "states symbols"]
    outputs: Int[Tensor, "states"]
    start: int = 0

    @cached_property
    def _table(self) -> Int[Tensor, "entries"]:
        """The flattened moves, with a first column for padding."""
        stay = torch.arange(len(self.moves))[:, None]
        return torch.cat([stay, self.moves], dim=1).flatten()

    def states(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """The state after every token; padding does not change the state."""
        symbols = self.moves.shape[1]
        table = on_device(self._table, inputs.device)
        if gpu := kernels(inputs):
            return cast(Tensor, gpu.states(table, inputs, symbols + 1, self.start))
        state = torch.full_like(inputs[:, 0], self.start)
        visited = []
        for token in inputs.T.contiguous():
            state = table[state * (symbols + 1) + token]
            visited.append(state)
        return torch.stack(visited, dim=1)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return on_device(self.outputs, inputs.device)[self.states(inputs)]


_counting = threading.Lock()  # groups that share a GPU may share a task


class Walks:
    """Uniform draws from the words of a given length that lead a machine from its start to a final state."""

    def __init__(self, machine: Machine, final: Bool[Tensor, "states"]) -> None:
        self.machine = machine
        # log_counts[l][state]: logarithm of the number of words of length l from the state to a final one.
        self.log_counts = [final.double().log()]
        # By length and device; none is ever replaced, since a captured CUDA graph may read it.
        self._choices: dict[tuple[int, torch.device], Float[Tensor, "lengths states symbols"]] = {}

    def _count_to(self, length: int) -> None:
        if len(self.log_counts) <= length:
            with _counting:
                while len(self.log_counts) <= length:
                    self.log_counts.append(self.log_counts[-1][self.machine.moves].logsumexp(-1))

    def log2_count(self, length: int) -> float:
        """The logarithm of the number of words of this length; minus infinity if there are none."""
        self._count_to(length)
        return float(self.log_counts[length][self.machine.start]) / math.log(2)

    def choices(self, length: int, device: torch.device) -> Float[Tensor, "lengths states symbols"]:
        """Cumulative probabilities of the next symbol, indexed by the number of symbols after it."""
        if (length, device) not in self._choices:
            self._count_to(length)
            self._choices[length, device] = self._cumulative(length).to(device)
        return self._choices[length, device]

    def _cumulative(self, length: int) -> Float[Tensor, "lengths states symbols"]:
        logs = torch.stack([counts[self.machine.moves] for counts in self.log_counts[:length]])
        weights = logs.softmax(-1).nan_to_num(0.0)
        total = weights.cumsum(-1)
        # Despite rounding, a draw must never fall behind the last possible symbol.
        possible_later = weights.flip(-1).cumsum(-1).flip(-1) - weights > 0
        return torch.where(possible_later, total, 1.0)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        count, symbols = self.machine.moves.shape
        choices, moves = self.choices(width, lengths.device), on_device(self.machine.moves, lengths.device)
        uniform = rng.uniform(width)
        if gpu := kernels(lengths):
            return cast(Tensor, gpu.walk(choices, moves, uniform, lengths, self.machine.start))
        choices, moves, uniform = choices.flatten(0, 1), moves.flatten(), uniform.T.contiguous()
        state = torch.full_like(lengths, self.machine.start)
        tokens = []
        for t in range(width):
            remaining = (lengths - (t + 1)).clamp(min=0)
            symbol = (uniform[t, :, None] >= choices[remaining * count + state]).sum(-1).clamp_(max=symbols - 1)
            state = moves[state * symbols + symbol]
            tokens.append(symbol + 1)
        return torch.stack(tokens, dim=1)


class RegularTask(Task):
    """Membership of every prefix in a regular language: 0, 1 or dead.

    Inputs are words of the language; all words of a length are equally likely.
    """

    @property
    @abstractmethod
    def moves(self) -> tuple[tuple[int, ...], ...]:
        """The complete transition table; the start is state 0."""

    @property
    @abstractmethod
    def accepting(self) -> tuple[int, ...]: ...

    @property
    def answers(self) -> tuple[str, ...]:
        return ("0", "1", DEAD) if (self.machine.outputs == 2).any() else ("0", "1")

    @cached_property
    def machine(self) -> Machine:
        moves = torch.tensor(self.moves)
        accepts = torch.zeros(len(moves), dtype=torch.bool)
        accepts[list(self.accepting)] = True
        alive = accepts.clone()
        for _ in range(len(moves)):
            alive |= alive[moves].any(-1)
        return Machine(moves, torch.where(alive, accepts.long(), 2))

    @cached_property
    def words(self) -> Walks:
        return Walks(self.machine, self.machine.outputs == 1)

    def answer(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        return self.machine.answer(inputs)

    def draw(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int) -> Int[Tensor, "rows time"]:
        return self.words.draw(lengths, rng, width)

    def fits(self, length: int) -> bool:
        return length >= 1 and self.words.log2_count(length) > -math.inf

    def log2_inputs(self, length: int) -> float:
        return self.words.log2_count(length)


class Dfa(RegularTask):
    """Any finite automaton, from its table.

    `table[state][symbol]` is the next state and the start is state 0. Here: an odd number of b.

    >>> Dfa(alphabet="ab", table=((0, 1), (1, 0)), accept=(1,)).explain("abaab")
    '01110'
    """

    kind: ClassVar[str] = "dfa"
    example: ClassVar[dict[str, Any]] = {"alphabet": "ab", "table": ((0, 1), (1, 0)), "accept": (1,)}
    alphabet: Annotated[str, Field(min_length=1, description="the symbols, one letter each")]
    table: Annotated[tuple[tuple[int, ...], ...], Field(description="the next state, by state and symbol")]
    accept: Annotated[tuple[int, ...], Field(description="the states whose answer is 1")]

    @model_validator(mode="after")
    def _complete(self) -> Dfa:
        count = len(self.table)
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError(f"dfa: alphabet '{self.alphabet}' names a symbol twice")
        for state, row in enumerate(self.table):
            if len(row) != len(self.alphabet):
                raise ValueError(f"dfa: state {state} has {len(row)} moves for {len(self.alphabet)} symbols")
        wrong = [state for row in (*self.table, self.accept) for state in row if state not in range(count)]
        if wrong or not self.accept:
            problem = f"there is no state {wrong[0]}" if wrong else "no state accepts"
            raise ValueError(f"dfa: {problem}; the states are 0 to {count - 1}")
        return self

    @property
    def symbols(self) -> tuple[str, ...]:
        return tuple(self.alphabet)

    @property
    def moves(self) -> tuple[tuple[int, ...], ...]:
        return self.table

    @property
    def accepting(self) -> tuple[int, ...]:
        return self.accept


class Regex(RegularTask):
    """Any regular expression (`|`, `*`, `+`, `?`, `{n}`, brackets), through its minimal automaton.

    >>> Regex(pattern="(ab)*").explain("ababb")
    '0101!'
    """

    kind: ClassVar[str] = "regex"
    example: ClassVar[dict[str, Any]] = {"pattern": "(a|b)*abb"}
    pattern: Annotated[str, Field(min_length=1, description="the regular expression")]
    alphabet: Annotated[str, Field(description="symbols in addition to those of the pattern")] = ""

    @model_validator(mode="after")
    def _compiles(self) -> Regex:
        _ = self._compiled
        return self

    @cached_property
    def _compiled(self) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
        from automata.base.exceptions import AutomatonException, RegexException
        from automata.fa.dfa import DFA
        from automata.fa.nfa import NFA

        without_counts = re.sub(r"\{[^}]*\}", "", self.pattern)
        letters = {c for c in without_counts if c.isalnum() or c == "#"} | set(self.alphabet)
        if not all(c.isalnum() or c == "#" for c in letters):
            raise ValueError(f"regex: alphabet {self.alphabet!r} may have letters, digits and # only")
        try:
            nfa = NFA.from_regex(self.pattern, input_symbols=letters)
        except (AutomatonException, RegexException) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"regex: {self.pattern!r} is not a regular expression: {reason}") from None
        dfa = DFA.from_nfa(nfa, minify=True).to_complete()
        if not dfa.final_states or not letters:
            raise ValueError(f"regex: {self.pattern!r} has no words")
        alphabet = tuple(sorted(letters))
        moves = dfa.transitions
        order = [dfa.initial_state]  # breadth first: the order depends only on the language
        for state in order:
            order += dict.fromkeys(moves[state][c] for c in alphabet if moves[state][c] not in order)
        number = {state: i for i, state in enumerate(order)}
        table = tuple(tuple(number[moves[state][c]] for c in alphabet) for state in order)
        return alphabet, table, tuple(number[state] for state in order if state in dfa.final_states)

    @property
    def symbols(self) -> tuple[str, ...]:
        return self._compiled[0]

    @property
    def moves(self) -> tuple[tuple[int, ...], ...]:
        return self._compiled[1]

    @property
    def accepting(self) -> tuple[int, ...]:
        return self._compiled[2]
