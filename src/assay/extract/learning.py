"""The automaton that a network computes, by active learning: L* with a Wp-method oracle, from `aalpy`.

The network is asked for its answers to words and is not looked into, so this works for every model. The result is
conditional: the Wp-method finds every difference from a network with at most m states, and nothing is said beyond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any

import torch
from aalpy.base import SUL, Oracle
from aalpy.learning_algs import run_Lstar
from aalpy.oracles.WpMethodEqOracle import state_characterization_set
from jaxtyping import Int
from torch import Tensor

from assay.description import BadInput
from assay.extract.machines import Questions, Word, difference, minimal, outside_state
from assay.rng import Rng
from assay.tasks.automaton import Machine
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE, Task
from assay.tasks.words import readable

AnswersOf = Callable[[Int[Tensor, "rows time"]], Int[Tensor, "rows time"]]  # the network's answer to every prefix
OnProgress = Callable[[int, int], None]  # receives the words asked so far, and the states found so far

TESTS = 20_000  # words of one Wp-method test suite, where the number of extra states is not given
SHORT = 4_096  # all strings of a length are asked first: at most as many as this
LONGEST = 100  # but no longer than this; it matters for a single symbol
CHUNK = 4_096  # words that are asked at once
DRAWN = 256  # words that the task draws, which are tested beside the Wp-method, as are the task's probes
LONGER = 4  # when the machine is learned, the network is compared with the task on words this many times as long


class Limit(Exception):
    """A limit of time or states was reached."""


@dataclass(frozen=True)
class Difference:
    """A word that the network answers differently from the task, with both answers to the whole word."""

    word: Word
    network: str
    task: str


@dataclass(frozen=True)
class Learned:
    """What was learned about a network: a machine, and how far it is known to be the network's.

    The machine has the same answers as the network on every word that was asked while learning, unless `unexplained` is
    one where it has not. `states` counts the classes of prefixes that later answers tell apart.
    """

    task: Task
    machine: Machine  # minimal
    target: Machine | None  # the task's own automaton on the same words, minimal; None if it has none
    domain: str
    states: int
    bound: int | None  # m: no network with at most m states differs from the machine; None if a limit was reached
    every_to: int  # every word of the domain up to this length was asked
    queries: int  # words that were asked
    seconds: float
    limit: str  # the limit that ended the search early, or nothing
    difference: Difference | None
    unexplained: Word | None  # a word that the network answers differently from the machine

    @property
    def equal(self) -> bool:
        """Whether the machine is the task's own automaton and no word was answered wrongly."""
        return self.difference is None and self.target is not None and difference(self.machine, self.target) is None

    @property
    def statement(self) -> str:
        """One sentence with numbers; it never says that anything is proved."""
        symbols, asked = self.task.symbols, f"{self.queries:,} words asked, every word up to length {self.every_to}"
        if self.difference is not None:
            word, wrong = readable(self.difference.word, symbols), self.difference
            shortest = "shortest" if len(wrong.word) <= self.every_to + 1 else "shortest known"
            answers = f"answer {wrong.network}, right is {wrong.task}"
            return f"differs from {self.task.kind}: the {shortest} wrong word is {word} ({answers})"
        if self.bound is None:
            return f"open: {self.limit}; no wrong word ({asked})"
        if self.target is None:
            return f"no wrong word; {self.states} states if the network has at most {self.bound} ({asked})"
        return f"equal to {self.task.kind} if the network has at most {self.bound} states ({asked})"

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        symbols, wrong = self.task.symbols, self.difference
        return {
            "task": self.task.plain(),
            "domain": self.domain,
            "statement": self.statement,
            "equal_if_at_most": self.bound if self.equal else None,
            "states": self.states,
            "bound": self.bound,
            "every_word_to": self.every_to,
            "queries": self.queries,
            "limit": self.limit,
            "difference": wrong
            and {"word": readable(wrong.word, symbols), "network": wrong.network, "task": wrong.task},
            "unexplained": self.unexplained and readable(self.unexplained, symbols),
            "machine": table(self.machine, self.task),
            "target": self.target and table(self.target, self.task),
        }


def table(machine: Machine, task: Task) -> dict[str, Any]:
    """A machine as JSON data: moves by state and symbol, answers by state (none: no question)."""
    return {
        "symbols": list(task.symbols),
        "start": machine.start,
        "moves": machine.moves.tolist(),
        "answers": [named(answer, task) for answer in machine.outputs.tolist()],
        "outside": outside_state(machine),
    }


def named(answer: int, task: Task) -> str:
    """The name of an answer; empty where there is no question."""
    return "" if answer == IGNORE else "NaN" if answer < 0 else task.answers[answer]


class Network(SUL):  # type: ignore[misc]
    """The network as `aalpy` sees it. Answers are kept, and words are asked in batches."""

    def __init__(
        self, answers_of: AnswersOf, questions: Questions, deadline: float, on_progress: OnProgress = lambda *_: None
    ) -> None:
        super().__init__()
        self.answers_of, self.questions, self.deadline, self.on_progress = answers_of, questions, deadline, on_progress
        self.known: dict[Word, int] = {}
        self.wrong: Word | None = None  # the shortest wrong word so far
        self.asked, self.states = 0, 0

    def ask(self, words: Iterable[Word]) -> None:
        """Learn the answers to all prefixes of these words."""
        unknown = sorted({word for word in words if word and word not in self.known})
        # A prefix of the next word needs no row of its own.
        following = [*unknown[1:], ()]
        rows = [w for i, w in enumerate(unknown) if w != following[i][: len(w)]]
        for first in range(0, len(rows), CHUNK):
            chunk = rows[first : first + CHUNK]
            answers = self.answers(rows_of(chunk)).tolist()
            for word, row in zip(chunk, answers, strict=True):
                self.known.update((word[: n + 1], row[n]) for n in range(len(word)))

    def answers(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """The answers to every prefix, IGNORE where there is no question; not kept, but compared with the task."""
        if time.monotonic() > self.deadline:
            raise Limit("the time ran out")
        targets = self.questions.targets(inputs)
        answers = self.answers_of(inputs).where(targets != IGNORE, IGNORE)
        self.asked += len(inputs)
        wrong = shortest_wrong(inputs, answers, targets)
        if wrong is not None and (self.wrong is None or len(wrong) < len(self.wrong)):
            self.wrong = wrong
        self.on_progress(self.asked, self.states)
        return answers

    def query(self, word: Word) -> list[int]:
        self.ask([word])
        return [self.known[word[: n + 1]] for n in range(len(word))]

    # `aalpy` asks word by word through `query`; these are for oracles that step, and ours does not.
    def pre(self) -> None: ...

    def post(self) -> None: ...

    def step(self, letter: Any) -> Any:
        raise NotImplementedError


def shortest_wrong(
    inputs: Int[Tensor, "rows time"], answers: Int[Tensor, "rows time"], targets: Int[Tensor, "rows time"]
) -> Word | None:
    """The shortest prefix whose answer is not the target."""
    wrong = (answers != targets) & (targets != IGNORE)
    if not wrong.any():
        return None
    length = int(wrong.any(0).long().argmax()) + 1
    row = int(wrong[:, length - 1].long().argmax())
    return tuple(inputs[row, :length].tolist())


class WpOracle(Oracle):  # type: ignore[misc]
    """Looks for a word that the network and a hypothesis answer differently; tests are asked in batches.

    The words that are already known come first, then where hypothesis and task differ, then words that the task draws
    and its probes, then the test suite of the Wp-method. `bound` is the m of the last complete suite.
    """

    def __init__(
        self, network: Network, extra_states: int | None, max_states: int, further: Int[Tensor, "rows time"]
    ) -> None:
        super().__init__(list(range(1, len(network.questions.task.symbols) + 1)), network)
        self.network, self.extra_states, self.max_states, self.further = network, extra_states, max_states, further
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
        found = self._first_difference(machine, self.network.known)
        if found is not None:
            return found
        target = self.network.questions.machine
        if target is not None:
            apart = difference(machine, target)
            if apart is not None and self.network.query(apart)[-1] != _answer(machine, apart):
                return apart
        if len(self.further):
            answers = self.network.answers(self.further)
            found = shortest_wrong(self.further, machine.answer(self.further), answers)
            if found is not None:
                return found
        suite, bound = self._suite(hypothesis)
        while chunk := list(islice(suite, CHUNK)):
            self.network.ask(chunk)
            found = self._first_difference(machine, chunk)
            if found is not None:
                return found
        self.bound = bound
        return None

    def _first_difference(self, machine: Machine, words: Iterable[Word]) -> Word | None:
        """The shortest prefix of these words on which the machine and what is known of the network differ."""
        words = [word for word in words if word]
        shortest: Word | None = None
        for first in range(0, len(words), CHUNK):
            chunk = words[first : first + CHUNK]
            inputs = rows_of(chunk)
            known = [[self.network.known[word[: n + 1]] for n in range(len(word))] for word in chunk]
            answers = torch.tensor([[*row, *[IGNORE] * (inputs.shape[1] - len(row))] for row in known])
            found = shortest_wrong(inputs, machine.answer(inputs), answers)
            if found is not None and (shortest is None or len(found) < len(shortest)):
                shortest = found
        return shortest

    def _suite(self, hypothesis: Any) -> tuple[Iterator[Word], int]:
        """The words of the Wp-method, and its m. Both phases of `aalpy` leave out the tests of a single state, which
        no word tells from another; here the empty word stands for them."""
        states, symbols = hypothesis.states, self.alphabet
        everywhere = hypothesis.compute_characterization_set() or [()]
        apart = {state.state_id: state_characterization_set(hypothesis, symbols, state) or [()] for state in states}
        cover = [tuple(state.prefix) for state in states]
        moves = [(*prefix, symbol) for prefix in cover for symbol in symbols]
        moves = [move for move in moves if move not in set(cover)]
        per_middle = len(cover) * len(everywhere) + sum(len(apart[_after(hypothesis, move).state_id]) for move in moves)
        extra = self.extra_states
        if extra is None:
            extra = 0
            while per_middle * sum(len(symbols) ** n for n in range(extra + 2)) <= TESTS and extra < LONGEST:
                extra += 1

        def tests() -> Iterator[Word]:
            for middle in chain.from_iterable(product(symbols, repeat=n) for n in range(extra + 1)):
                for prefix in cover:
                    yield from (prefix + middle + suffix for suffix in everywhere)
                for move in moves:
                    reached = _after(hypothesis, move + middle)
                    yield from (move + middle + suffix for suffix in apart[reached.state_id])

        return tests(), len(states) + extra


def _after(hypothesis: Any, word: Word) -> Any:
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
            after, answer = state.transitions[symbol], state.output_fun[symbol]
            pair = after.state_id, answer
            if pair not in number:
                number[pair] = len(number)
                states.append(after)
                outputs.append(answer)
            row.append(number[pair])
        moves.append(row)
    return Machine(torch.tensor(moves), torch.tensor(outputs))


def learn_automaton(
    answers_of: AnswersOf,
    task: Task,
    *,
    extra_states: int | None = None,
    trained: tuple[int, int] | None = None,
    longest: int | None = None,
    seed: int = 0,
    seconds: float = 60.0,
    max_states: int = 64,
    on_progress: OnProgress = lambda asked, states: None,
) -> Learned:
    """Learn the automaton that a network computes on the questions of a task.

    `answers_of` gives the network's answer to every prefix of every row of tokens. `extra_states`: m is the number of
    learned states plus this; by default as many as 20,000 tests allow. `trained` is the shortest and the longest length
    of training, by default the task's own; in the end, words up to `longest` are compared with the task, by default
    four times as long. `seed` is of the words that the task draws.
    """
    check_symbols(task)
    trained = task.train_lengths if trained is None else trained
    longest = max(trained[1], LONGER * trained[1] if longest is None else longest)
    begin, questions = time.monotonic(), Questions(task)
    network = Network(answers_of, questions, begin + seconds, on_progress)
    oracle = WpOracle(network, extra_states, max_states, further_words(task, trained, seed))
    limit, every_to = "", 1
    while len(task.symbols) ** (every_to + 1) <= SHORT and every_to < LONGEST:
        every_to += 1
    try:
        network.ask(product(oracle.alphabet, repeat=every_to))
        run_Lstar(oracle.alphabet, network, oracle, "mealy", cache_and_non_det_check=False, print_level=0)
        network.answers(further_words(task, (trained[0], longest), seed))
    except Limit as reached:
        limit = str(reached)
    try:
        network.deadline = max(network.deadline, time.monotonic() + seconds / 4)
        shorten_wrong_word(network)
    except Limit:
        pass  # a wrong word is wrong, if not the shortest
    target = questions.machine
    preferred = None if target is None else int(target.outputs[target.start])
    hypothesis = oracle.hypothesis
    if hypothesis is None:
        raise BadInput(f"{seconds:g} seconds are too few to learn an automaton of {task.kind}; give more")
    return Learned(
        task=task,
        machine=minimal(moore(hypothesis), preferred),
        target=target,
        domain=questions.domain,
        states=len(hypothesis.states),
        bound=oracle.bound,
        every_to=every_to,
        queries=network.asked,
        seconds=time.monotonic() - begin,
        limit=limit,
        difference=_verified(network.wrong, answers_of, questions),
        unexplained=oracle.unexplained,
    )


def _verified(word: Word | None, answers_of: AnswersOf, questions: Questions) -> Difference | None:
    """The wrong word, asked again on its own: its answer must not depend on the batch around it."""
    if word is None:
        return None
    inputs, task = rows_of([word]), questions.task
    network, right = int(answers_of(inputs)[0, -1]), int(questions.targets(inputs)[0, -1])
    if network == right:
        raise BadInput(
            f"the network's answer to {readable(word, task.symbols)} depends on the other words of the batch; "
            "an automaton answers each word on its own"
        )
    return Difference(word, named(network, task), named(right, task))


def shorten_wrong_word(network: Network) -> None:
    """Leave out parts of the shortest wrong word as long as what remains is wrong too."""
    word: Word = ()
    while network.wrong is not None and network.wrong != word and len(network.wrong) > 1:
        word = network.wrong
        sizes = [2**i for i in range(len(word).bit_length())]
        shorter = {word[:i] + word[i + size :] for size in sizes for i in range(len(word) - size + 1)}
        network.answers(rows_of(sorted(shorter - {()})))


def check_symbols(task: Task) -> None:
    """Raise BadInput for a task whose inputs are not strings."""
    if not task.symbols:
        raise BadInput(f"{task.kind} has real-valued inputs; an automaton needs a task with symbols, such as parity")


def further_words(task: Task, lengths: tuple[int, int], seed: int) -> Int[Tensor, "rows time"]:
    """Words of these lengths that the task draws, and its probes, such as lassos and long runs of one symbol."""
    rng, fitting = Rng.seeded(seed, "extract").rows(DRAWN), torch.tensor(task.lengths(*lengths))
    drawn = task.inputs(fitting[rng.child("lengths").integers(1, len(fitting))[:, 0]], rng.child("inputs"))
    parts = [drawn, *(probe.inputs for probe in task.probes(lengths, lengths[1]))]
    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])
