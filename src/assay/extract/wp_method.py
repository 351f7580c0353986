"""The equivalence test of active learning: the Wp-method, for the Mealy machines of `aalpy`.

It finds every difference between a hypothesis with n states and a network with at most m states, and says nothing about
larger networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, product
from typing import Any

import torch
from aalpy.base import Oracle
from aalpy.oracles.WpMethodEqOracle import state_characterization_set
from jaxtyping import Int
from torch import Tensor

from assay.extract.machines import Word, difference
from assay.extract.network import CHUNK, Limit, Network
from assay.extract.questions import shortest_wrong
from assay.tasks.automaton import Machine
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE

TESTS = 20_000  # words of one test suite, where the number of extra states is not given
LONGEST = 100  # extra states; it matters for a single symbol


class WpOracle(Oracle):  # type: ignore[misc]
    """Looks for a word that the network and a hypothesis answer differently; tests are asked in batches.

    The words that are already known come first, then where hypothesis and task differ, then words that the task draws
    and its probes, then the test suite of the Wp-method. `bound` is the m of the last complete suite.
    """

    def __init__(
        self, network: Network, extra_states: int | None, max_states: int, words: Int[Tensor, "rows time"]
    ) -> None:
        super().__init__(list(range(1, len(network.questions.task.symbols) + 1)), network)
        self.network, self.extra_states, self.max_states, self.words = network, extra_states, max_states, words
        self.hypothesis: Any = None
        self.bound: int | None = None
        self.unexplained: Word | None = None

    def find_cex(self, hypothesis: Any) -> Word | None:
        if self.hypothesis is not None and len(hypothesis.states) > self.max_states:
            raise Limit(f"more than {self.max_states} states")
        self.hypothesis, self.bound, self.unexplained = hypothesis, None, None
        self.network.states = len(hypothesis.states)
        self.unexplained = self._search(hypothesis)
        return self.unexplained

    def _search(self, hypothesis: Any) -> Word | None:
        machine = moore(hypothesis)
        word = self._first_difference(machine, self.network.cache)
        if word is not None:
            return word
        target = self.network.questions.machine
        if target is not None:
            word = difference(machine, target)
            if word is not None and self.network.query(word)[-1] != _answer(machine, word):
                return word
        if len(self.words):
            word = shortest_wrong(self.words, machine.answer(self.words), self.network.answers(self.words))
            if word is not None:
                return word
        suite, bound = self._suite(hypothesis)
        while chunk := list(islice(suite, CHUNK)):
            self.network.ask(chunk)
            word = self._first_difference(machine, chunk)
            if word is not None:
                return word
        self.bound = bound
        return None

    def _first_difference(self, machine: Machine, words: Iterable[Word]) -> Word | None:
        """The shortest prefix of these words on which the machine and the network differ, from its kept answers."""
        words = [word for word in words if word]
        shortest: Word | None = None
        for first in range(0, len(words), CHUNK):
            chunk = words[first : first + CHUNK]
            inputs = rows_of(chunk)
            rows = [self.network.query(word) for word in chunk]
            answers = torch.tensor([[*row, *[IGNORE] * (inputs.shape[1] - len(row))] for row in rows])
            word = shortest_wrong(inputs, machine.answer(inputs), answers)
            if word is not None and (shortest is None or len(word) < len(shortest)):
                shortest = word
        return shortest

    def _suite(self, hypothesis: Any) -> tuple[Iterator[Word], int]:
        """The words of the Wp-method, and its m. Both phases of `aalpy` leave out the tests of a single state, which
        no word tells from another; here the empty word stands for them."""
        states, symbols = hypothesis.states, self.alphabet
        suffixes = hypothesis.compute_characterization_set() or [()]
        suffixes_of = {
            state.state_id: state_characterization_set(hypothesis, symbols, state) or [()] for state in states
        }
        cover = [tuple(state.prefix) for state in states]
        moves = [(*prefix, symbol) for prefix in cover for symbol in symbols]
        moves = [move for move in moves if move not in set(cover)]
        per_middle = len(cover) * len(suffixes)
        per_middle += sum(len(suffixes_of[_state_after(hypothesis, move).state_id]) for move in moves)
        extra = self.extra_states
        if extra is None:
            extra = 0
            while per_middle * sum(len(symbols) ** n for n in range(extra + 2)) <= TESTS and extra < LONGEST:
                extra += 1

        def tests() -> Iterator[Word]:
            for middle in chain.from_iterable(product(symbols, repeat=n) for n in range(extra + 1)):
                for prefix in cover:
                    yield from (prefix + middle + suffix for suffix in suffixes)
                for move in moves:
                    state = _state_after(hypothesis, move + middle)
                    yield from (move + middle + suffix for suffix in suffixes_of[state.state_id])

        return tests(), len(states) + extra


def _state_after(hypothesis: Any, word: Word) -> Any:
    """The state after a word."""
    state = hypothesis.initial_state
    for letter in word:
        state = state.transitions[letter]
    return state


def _answer(machine: Machine, word: Word) -> int:
    return int(machine.answer(rows_of([word]))[0, -1])


def moore(mealy: Any) -> Machine:
    """A Mealy machine of `aalpy` as a Moore machine: a state for each pair of a state and the answer on the way to it.

    The start has no answer, and is one more state.
    """
    number: dict[tuple[Any, int], int] = {(mealy.initial_state.state_id, IGNORE - 1): 0}
    states, moves, outputs = [mealy.initial_state], [], [IGNORE]
    symbols = sorted(mealy.initial_state.transitions)
    for state in states:
        row = []
        for symbol in symbols:
            successor, answer = state.transitions[symbol], state.output_fun[symbol]
            pair = successor.state_id, answer
            if pair not in number:
                number[pair] = len(number)
                states.append(successor)
                outputs.append(answer)
            row.append(number[pair])
        moves.append(row)
    return Machine(torch.tensor(moves), torch.tensor(outputs))
