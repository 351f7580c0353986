"""How far training and testing are, for progress displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from assay.lab.member import Member
from assay.spec import RunSpec
from assay.tasks.task import Task


class Status(NamedTuple):
    """A group at the end of a round."""

    model: str
    tasks: tuple[str, ...]
    slots: int
    alive: int
    waiting: int
    solved: int
    diverged: int
    ended: int
    best: float
    median: float
    step: int  # of the member with the most steps
    steps: int  # its limit
    loss: float
    steps_per_second: float
    seconds_left: float  # upper bound


class EvaluationStatus(NamedTuple):
    """A run that is being tested."""

    model: str
    task: str
    seed: int
    rows: int  # tested so far
    total: int


def group_status(
    tasks: Sequence[Task],
    slots: int,
    members: Sequence[Member],
    waiting: Sequence[RunSpec],
    ended: Mapping[str, int],
    spec: RunSpec,
    round_seconds: float,
) -> Status:
    """The status of a group whose last round took so many seconds."""
    steps_left = sum(m.spec.training.steps - m.trained for m in members) + sum(s.training.steps for s in waiting)
    steps_per_second = spec.training.validate_every / round_seconds
    accuracies = [m.accuracy for m in members] or [0.0]
    losses = [m.curve[-1].loss for m in members if m.curve] or [float("nan")]
    front = max(members, key=lambda m: m.trained, default=None)
    return Status(
        model=spec.model.name,
        tasks=tuple(task.kind for task in tasks),
        slots=slots,
        alive=len(members),
        waiting=len(waiting),
        solved=ended["solved"],
        diverged=ended["diverged"],
        ended=sum(ended.values()),
        best=max(accuracies),
        median=median(accuracies),
        step=front.trained if front else 0,
        steps=front.spec.training.steps if front else 0,
        loss=median(losses),
        steps_per_second=steps_per_second,
        seconds_left=steps_left / slots / steps_per_second,
    )


def plain_status(status: Status | EvaluationStatus) -> list[Any]:
    """A status as JSON data."""
    return [type(status).__name__, *status]


def read_status(plain: list[Any]) -> Status | EvaluationStatus:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in plain]
    kind, *fields = values
    return Status(*fields) if kind == "Status" else EvaluationStatus(*fields)
