"""The programs of an SRWM as one automaton, and a sentence that says how far it is the network's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from assay.extract.machines import Word, named
from assay.tasks.automaton import Machine
from assay.tasks.minimal import minimal
from assay.tasks.task import IGNORE, Task
from assay.tasks.words import readable

PARTS = ("W_y", "W_q", "W_k", "w_b")
UNSEEN = -2  # the answer of the automaton after a move that was not seen


@dataclass(frozen=True)
class Program:
    """One program: what it answers to each symbol, and which program it then becomes (None: not seen)."""

    word: Word  # the shortest string that leads to it
    strings: int  # strings that lead to it, of those clustered
    answers: tuple[int | None, ...]
    moves: tuple[int | None, ...]
    changed: dict[str, float]  # by part: the distance from the initial matrix, as a share of its norm
    spread: float  # the mean distance of its matrices from their mean


@dataclass(frozen=True)
class SelfModifying:
    """The automaton of the programs of one SRWM, and how far it agrees with the network."""

    task: Task
    domain: str
    programs: tuple[Program, ...]
    threshold: float  # matrices at most this far apart are one program
    gap: float  # the distance of the two nearest programs; infinite for a single one
    distances: Float[Tensor, "programs programs"]  # of the programs' mean matrices
    clustered_to: int  # the matrices of all strings up to this length were clustered
    matrices: int
    right_to: int  # the network answers all of these strings rightly up to this length
    every_to: int  # automaton and network were compared on every string up to this length
    strings: int
    disagreement: Word | None  # the shortest string on which they differ, or for which the automaton has no move
    followed: float  # the share of longer strings whose matrix is nearest to the program that the automaton is in
    growth: tuple[tuple[int, int, int], ...]  # (length, strings up to it, programs for these alone)

    @property
    def statement(self) -> str:
        count, noun = len(self.programs), "program" if len(self.programs) == 1 else "programs"
        if self.disagreement is None:
            note = " (their matrices make the programs)" if self.every_to <= self.clustered_to else ""
            return (
                f"{count} {noun}; the automaton agrees with the network on every one of {self.strings:,} strings up to "
                f"length {self.every_to}{note}"
            )
        word = readable(self.disagreement, self.task.symbols)
        shorter = len(self.disagreement) - 1
        return f"{count} {noun}; the automaton agrees with the network up to length {shorter}, not on {word}"

    @property
    def machine(self) -> Machine:
        return moore_of(self.programs)

    @property
    def behaviours(self) -> int | None:
        """The programs that some string tells apart: the states of the minimal automaton; None if moves are missing."""
        complete = all(move is not None for program in self.programs for move in program.moves)
        return len(minimal(self.machine).moves) if complete else None

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        symbols, task = self.task.symbols, self.task
        return {
            "statement": self.statement,
            "domain": self.domain,
            "programs": [
                {
                    "program": number,
                    "shortest_string": readable(program.word, symbols),
                    "strings": program.strings,
                    "answers": {s: a if a is None else named(a, task) for s, a in _by(symbols, program.answers)},
                    "moves": dict(_by(symbols, program.moves)),
                    "changed": {part: round(share, 4) for part, share in program.changed.items()},
                    "spread": round(program.spread, 4),
                }
                for number, program in enumerate(self.programs)
            ],
            "behaviours": self.behaviours,
            "threshold": round(self.threshold, 4),
            "gap": round(self.gap, 4) if math.isfinite(self.gap) else None,
            "distances": [[round(x, 4) for x in row] for row in self.distances.tolist()],
            "clustered_to": self.clustered_to,
            "matrices": self.matrices,
            "right_to": self.right_to,
            "every_string_to": self.every_to,
            "strings": self.strings,
            "disagreement": self.disagreement and readable(self.disagreement, symbols),
            "followed": round(self.followed, 4),
            "growth": [{"length": n, "strings": s, "programs": p} for n, s, p in self.growth],
        }


def _by(symbols: tuple[str, ...], values: tuple[int | None, ...]) -> list[tuple[str, int | None]]:
    return list(zip(symbols, values, strict=True))


def moore_of(programs: tuple[Program, ...]) -> Machine:
    """The automaton of programs as a Moore machine: a state for each pair of a program and the answer on the way to it.

    A move that was not seen leads to a state of its own, whose answer no network gives.
    """
    unseen, symbols = len(programs), range(len(programs[0].moves))
    states: list[tuple[int, int]] = [(0, IGNORE)]
    number, moves = {states[0]: 0}, []
    for program, _ in states:
        row = []
        for symbol in symbols:
            move, answer = (
                (programs[program].moves[symbol], programs[program].answers[symbol])
                if program < unseen
                else (None, None)
            )
            pair = unseen if move is None else move, UNSEEN if answer is None else answer
            if pair not in number:
                number[pair] = len(number)
                states.append(pair)
            row.append(number[pair])
        moves.append(row)
    return Machine(torch.tensor(moves), torch.tensor([answer for _, answer in states]))
