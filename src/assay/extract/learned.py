"""What was learned about a network: a machine, and a sentence that says how far it is the network's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.extract.machines import Word, difference, table
from assay.tasks.automaton import Machine
from assay.tasks.task import Task
from assay.tasks.words import readable


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
        extent = f"{self.queries:,} words asked, every word up to length {self.every_to}"
        if self.difference is not None:
            word, example = readable(self.difference.word, self.task.symbols), self.difference
            shortest = "shortest" if len(example.word) <= self.every_to + 1 else "shortest known"
            answers = f"answer {example.network}, right is {example.task}"
            return f"differs from {self.task.kind}: the {shortest} wrong word is {word} ({answers})"
        if self.bound is None:
            return f"open: {self.limit}; no wrong word ({extent})"
        if self.target is None:
            return f"no wrong word; {self.states} states if the network has at most {self.bound} ({extent})"
        return f"equal to {self.task.kind} if the network has at most {self.bound} states ({extent})"

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        symbols, example = self.task.symbols, self.difference
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
            "difference": example
            and {
                "word": readable(example.word, symbols),
                "network": example.network,
                "task": example.task,
            },
            "unexplained": self.unexplained and readable(self.unexplained, symbols),
            "machine": table(self.machine, self.task),
            "target": self.target and table(self.target, self.task),
        }
