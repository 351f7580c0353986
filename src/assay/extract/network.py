"""A network as a system whose answers can be asked for, word by word or in batches, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from aalpy.base import SUL
from jaxtyping import Int
from torch import Tensor

from assay.extract.machines import Word
from assay.extract.questions import Questions, shortest_wrong
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE

AnswersOf = Callable[[Int[Tensor, "rows time"]], Int[Tensor, "rows time"]]  # the network's answer to every prefix
OnProgress = Callable[[int, int], None]  # receives the words asked so far, and the states found so far

CHUNK = 4_096  # words that are asked at once


class Limit(Exception):
    """A limit of time or states was reached."""


class Network(SUL):  # type: ignore[misc]
    """The network as `aalpy` sees it. Answers are kept, and words are asked in batches."""

    def __init__(
        self, answers_of: AnswersOf, questions: Questions, deadline: float, on_progress: OnProgress = lambda *_: None
    ) -> None:
        super().__init__()
        self.answers_of, self.questions, self.deadline, self.on_progress = answers_of, questions, deadline, on_progress
        self.cache: dict[Word, int] = {}  # the answer to each word that was asked, and to its prefixes
        self.wrong_word: Word | None = None  # the shortest one so far
        self.queries, self.states = 0, 0

    def ask(self, words: Iterable[Word]) -> None:
        """Learn the answers to all prefixes of these words."""
        unknown = sorted({word for word in words if word and word not in self.cache})
        # A prefix of the next word needs no row of its own.
        successors = [*unknown[1:], ()]
        rows = [word for word, successor in zip(unknown, successors, strict=False) if word != successor[: len(word)]]
        for first in range(0, len(rows), CHUNK):
            chunk = rows[first : first + CHUNK]
            answers = self.answers(rows_of(chunk)).tolist()
            for word, row in zip(chunk, answers, strict=True):
                self.cache.update((word[: n + 1], row[n]) for n in range(len(word)))

    def answers(self, inputs: Int[Tensor, "rows time"]) -> Int[Tensor, "rows time"]:
        """The answers to every prefix, IGNORE where there is no question; not kept, but compared with the task."""
        if time.monotonic() > self.deadline:
            raise Limit("the time ran out")
        targets = self.questions.targets(inputs)
        answers = self.answers_of(inputs).where(targets != IGNORE, IGNORE)
        self.queries += len(inputs)
        word = shortest_wrong(inputs, answers, targets)
        if word is not None and (self.wrong_word is None or len(word) < len(self.wrong_word)):
            self.wrong_word = word
        self.on_progress(self.queries, self.states)
        return answers

    def query(self, word: Word) -> list[int]:
        self.ask([word])
        return [self.cache[word[: n + 1]] for n in range(len(word))]

    # `aalpy` asks word by word through `query`; these are for oracles that step, and ours does not.
    def pre(self) -> None: ...

    def post(self) -> None: ...

    def step(self, letter: Any) -> Any:
        raise NotImplementedError


def shorten_wrong_word(network: Network) -> None:
    """Leave out parts of the shortest wrong word as long as what remains is wrong too."""
    previous: Word = ()
    while (word := network.wrong_word) and word != previous and len(word) > 1:
        previous = word
        sizes = [2**i for i in range(len(word).bit_length())]
        shorter = {word[:i] + word[i + size :] for size in sizes for i in range(len(word) - size + 1)}
        network.answers(rows_of(sorted(shorter - {()})))
