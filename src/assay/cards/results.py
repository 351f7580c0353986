"""The numbers of a card: for each architecture and task, the seeds at the rate that validation chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assay.analysis.cells import Cell, bins, cells
from assay.analysis.settings import validation_rank
from assay.analysis.titles import row_title, task_title
from assay.cards.cost import Cost
from assay.cards.examination import Examination
from assay.cards.subject import Subject
from assay.cards.theory import Bound, bounds
from assay.record import Record
from assay.studies.card import FACTORS, Question, Scale


@dataclass(frozen=True)
class Entry:
    """One architecture on one task: its seeds at the chosen rate, and what is right up to each test length."""

    architecture: str
    question: Question
    cell: Cell

    @property
    def seeds(self) -> int:
        return len(self.cell.records)

    @property
    def bins(self) -> list[str]:
        return bins([self.cell])

    @property
    def is_shortened(self) -> bool:
        """Whether it was tested on shorter inputs than the references, because it can read no longer ones."""
        return len(self.bins) < len(self.question.bins())

    @property
    def rate(self) -> float:
        return self.cell.records[0].rate

    def right(self, bin_: str) -> int:
        """The seeds that are right on every random input up to this bin."""
        return len(self.cell.perfect(bin_))

    def longest(self, bin_: str) -> int:
        """The longest input of a bin."""
        tested = self.cell.records[0].spec["testing"]["bins"]
        return next(int(data["high"]) for data in tested if data["name"] == bin_)

    @property
    def word(self) -> str:
        """The shortest wrong input that is known, or its length."""
        if self.cell.wrong_word:
            return self.cell.wrong_word
        length = self.cell.first_failing_length
        return f"(length {length:,})" if length else ""

    def plain(self) -> dict[str, Any]:
        names = self.bins
        return {
            "architecture": self.architecture,
            "task": self.question.task,
            "stands for": self.question.stands_for,
            "rate": self.rate,
            "seeds": self.seeds,
            "tested up to": self.longest(self.bins[-1]),
            **{f"right up to {name}": self.right(name) for name in names},
            **{f"accuracy {name}": self.cell.accuracy(name) for name in names},
            "right on random": len(self.cell.right_on_random),
            "solved": len(self.cell.solved),
            "verdicts": self.cell.verdicts,
            "shortest wrong": self.cell.wrong_word,
            "first wrong length": self.cell.first_failing_length,
            "steps": self.cell.steps_to_solve,
        }


@dataclass(frozen=True)
class Card:
    """All that a card says: the subject and the references on every task, what was examined, bounds and costs."""

    subject: Subject
    scale_name: str
    scale: Scale
    examination: Examination
    records: Mapping[str, Sequence[Record]]  # by architecture, the subject first
    missing: tuple[str, ...]  # references without records
    costs: tuple[Cost, ...] = ()

    @cached_property
    def entries(self) -> dict[tuple[str, str], Entry]:
        """By architecture and task, for the tasks whose runs have all finished."""
        found = {}
        for name, records in self.records.items():
            for question in self.scale.questions:
                runs = [record for record in records if record.task == question.task]
                if runs and all(record.finished for record in runs):
                    chosen = max(cells(runs), key=lambda cell: validation_rank(cell.records))
                    cell = Cell(question.task, name, "", chosen.records)
                    found[name, question.task] = Entry(name, question, cell)
        return found

    @property
    def architectures(self) -> list[str]:
        return list(self.records)

    @property
    def columns(self) -> list[str]:
        """The names of the test bins."""
        return [f"{factor}x" for factor in FACTORS]

    @cached_property
    def bounds(self) -> list[Bound]:
        return [bounds(question) for question in self.scale.questions]

    @cached_property
    def titles(self) -> dict[str, str]:
        """The names of the tasks on the page."""
        return {question.task: task_title(question.plain_task()) for question in self.scale.questions}

    def title(self, architecture: str) -> str:
        return self.subject.title if architecture == self.subject.name else row_title(architecture)

    def entry(self, architecture: str, task: str) -> Entry | None:
        return self.entries.get((architecture, task))

    @property
    def own(self) -> list[Entry]:
        """The entries of the subject, task by task."""
        found = (self.entry(self.subject.name, question.task) for question in self.scale.questions)
        return [entry for entry in found if entry]

    def tasks_of(self, architecture: str) -> list[str]:
        """The tasks on which all runs of an architecture have ended."""
        return [task for name, task in self.entries if name == architecture]

    def solved_by(self, architecture: str) -> list[str]:
        """The tasks that at least one seed solves, probes included."""
        return [task for (name, task), entry in self.entries.items() if name == architecture and entry.cell.solved]

    @cached_property
    def without_result(self) -> dict[str, str]:
        """Of the battery's tasks those on which the subject has no result, with the reason: no failure to learn."""
        reasons = dict(self.examination.left_out)
        for question in self.scale.questions:
            runs = [record for record in self.records[self.subject.name] if record.task == question.task]
            errors = [record.error or "" for record in runs if not record.finished]
            if errors:
                reasons[question.task] = f"{len(errors)} of {len(runs)} runs failed, the first with {errors[0]}"
        return {q.task: reasons[q.task] for q in self.scale.questions if q.task in reasons}

    @property
    def failures(self) -> list[Record]:
        return [record for records in self.records.values() for record in records if not record.finished]


def sizes(records: Sequence[Record]) -> dict[str, int | None]:
    """The largest number of parameters, and the bits of the largest state, over the tasks; None if unknown."""
    finished = [record for record in records if record.finished]
    known = [record.state_bits for record in finished if record.state_bits is not None]
    parameters = max((record.parameters for record in finished), default=None)
    return {"parameters": parameters, "state_bits": max(known, default=None)}
