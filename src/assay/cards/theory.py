"""What theory says of a battery: the bits that a recurrent state needs, and the best accuracy with fewer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from assay.studies.card import Question
from assay.tasks import named_task
from assay.tasks.index_lookup import IndexLookup
from assay.tasks.recall import Recall
from assay.tasks.task import Task
from assay.theory.bounds.information import best_accuracy
from assay.theory.bounds.sizes import needed


@dataclass(frozen=True)
class Bound:
    """The bits that any recurrent machine must carry to solve a task at its longest tested inputs."""

    task: str
    length: int  # of the longest tested input, in tokens
    bits: int | None
    source: str
    ceiling: float | None  # for index lookup: the best share of right answers with half of these bits

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def bounds(question: Question) -> Bound:
    """The bound for a task of the battery."""
    task = named_task(question.task, **question.options)
    last = question.bins()[-1]
    length = task.lengths(last["low"], last["high"])[-1]
    need = needed(task, _size(task, length))
    if need is None:
        return Bound(question.task, length, None, "no bound is known", None)
    bits = max(need.bits, need.invariant)
    ceiling = best_accuracy(_size(task, length), task.alphabet, bits / 2) if isinstance(task, IndexLookup) else None
    return Bound(question.task, length, bits, f"{need.inputs} ({need.source})", ceiling)


def _size(task: Task, tokens: int) -> int:
    """The length N as the bounds count it: symbols before the index, pairs to recall, or tokens."""
    if isinstance(task, IndexLookup):
        return tokens - 1
    return tokens // 2 if isinstance(task, Recall) else tokens
