"""One run while it is trained in a population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Literal, NamedTuple

from torch import Tensor

from assay.lab.member_state import BestState, MemberState
from assay.record import Point
from assay.spec import RunSpec

StopReason = Literal["solved", "steps", "diverged"]


@dataclass(frozen=True)
class RoundReport:
    """The outcome of one round for one slot: training loss and validation accuracies by bin."""

    step: int
    diverged: bool
    loss: float  # the sum over the round
    sequences: dict[str, float]
    answers: dict[str, float]


class Progress(NamedTuple):
    """How far a member was at some moment."""

    step: int
    points: int  # of its curve
    perfect: int
    solved_at: int | None
    seconds: float
    best: BestState | None


@dataclass
class Member:
    """A run in training: its curve so far, and its state while it waits for a slot."""

    spec: RunSpec
    step: int = 0
    curve: list[Point] = field(default_factory=list)
    perfect: int = 0  # consecutive checks with perfect validation
    solved_at: int | None = None
    seconds: float = 0.0  # its share of the population's time
    best: BestState | None = None  # only with training.keep = "best"
    state: MemberState | None = None
    started: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # for the record: how it was trained

    @property
    def progress(self) -> Progress:
        return Progress(self.step, len(self.curve), self.perfect, self.solved_at, self.seconds, self.best)

    @property
    def accuracy(self) -> float:
        """Accuracy on the worst validation bin at the last check."""
        return min(self.curve[-1].sequences.values()) if self.curve else 0.0

    def rewind(self, progress: Progress, state: MemberState) -> None:
        """Return to an earlier moment, with the state of that moment."""
        self.step, points, self.perfect, self.solved_at, self.seconds, self.best = progress
        self.curve, self.state = self.curve[:points], state._replace(best=progress.best)

    def plain(self, progress: Progress) -> dict[str, Any]:
        """Digest, progress and curve at some moment as JSON data, for a checkpoint."""
        numbers = {name: value for name, value in progress._asdict().items() if name != "best"}
        curve = [point.plain() for point in self.curve[: progress.points]]
        return {"digest": self.spec.digest, **numbers, "curve": curve}

    def resume(self, plain: dict[str, Any], state: MemberState) -> None:
        """Continue from a checkpoint: the counterpart of `plain`."""
        self.curve = [Point(**point) for point in plain["curve"]]
        numbers = {name: plain[name] for name in Progress._fields if name != "best"}
        self.rewind(Progress(**numbers, best=state.best), state)
        self.notes["resumed"] = self.step

    def receive(
        self, report: RoundReport, current_state: Callable[[], tuple[Tensor, dict[str, Tensor]]]
    ) -> StopReason | None:
        """Take in the outcome of a round; returns why the run has ended, or None while it goes on.

        `current_state` gives parameters and buffers; it is called only when they are to be kept as the best state.
        """
        training, steps = self.spec.training, report.step - self.step
        self.step = report.step
        if report.diverged:
            return "diverged"
        accuracies = {"sequences": report.sequences, "answers": report.answers}
        self.curve.append(Point(step=self.step, loss=report.loss / max(1, steps), **accuracies))
        score = mean(report.sequences.values())
        if training.keep == "best" and (self.best is None or score >= self.best.score):
            self.best = BestState(self.step, score, *current_state())
        self.perfect = self.perfect + 1 if self.accuracy == 1 else 0
        if self.perfect == training.patience and self.solved_at is None:
            self.solved_at = self.curve[-training.patience].step
            if training.stop == "solved":
                return "solved"
        return "steps" if self.step >= training.steps else None
