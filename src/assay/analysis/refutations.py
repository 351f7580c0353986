"""What probes find in networks that are right on every random test input."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from statistics import median

from assay.analysis.cells import Cell
from assay.record import Record

GENERAL_FORM = "In a probe, ^n repeats what stands before it, and dots stand for what follows."


@dataclass(frozen=True)
class Refutations:
    """The runs of a cell: how many are right on random inputs, and how many of these on every probe."""

    runs: int
    right_on_random: int
    solved: int
    within_training: int  # refuted by an input that is no longer than those of training
    median_length: float | None  # of the shortest wrong inputs
    commonest_word: str  # in its general form

    @property
    def refuted(self) -> int:
        return self.right_on_random - self.solved


def refutations(cell: Cell) -> Refutations:
    refuted = [record for record in cell.records if record.verdict == "refuted"]
    lengths = [record.first_failing_length for record in refuted if record.first_failing_length]
    words = Counter(general_form(record.wrong_word) for record in refuted)
    return Refutations(
        len(cell.records),
        len(cell.right_on_random),
        len(cell.solved),
        sum(_within_training(record) for record in refuted),
        median(lengths) if lengths else None,
        words.most_common(1)[0][0] if words else "",
    )


def _within_training(record: Record) -> bool:
    return (record.first_failing_length or 0) <= int(record.spec["training"]["lengths"][1])


def general_form(word: str) -> str:
    """A word without the number of its last repetition, and without what follows.

    >>> general_form("1 0^25"), general_form("r s -^146"), general_form("2 0 (1 0)^7 1")
    ('1 0^n', 'r s -^n', '2 0 (1 0)^n ...')
    """
    return re.sub(r"\^\d+(?!.*\^\d)(.*)$", lambda found: f"^n{' ...' if found[1] else ''}", word)
