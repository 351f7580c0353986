"""One run while it is trained in a population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Literal, NamedTuple

from torch import Tensor

from assay.lab.member_state import MemberState, SavedState
from assay.record import Point
from assay.spec import RunSpec

OWN_STATES = ("best", "stopped", "averaged")  # which a run that has stopped keeps as they were
StopReason = Literal["solved", "steps", "diverged"]


@dataclass(frozen=True)
class RoundReport:
    """The outcome of one round for one slot: training loss and validation accuracies by bin."""

    step: int
    diverged: bool
    loss: float  # the sum over the round
    sequences: dict[str, float]
    answers: dict[str, float]
    first_perfect: int | None = None  # of the watched state


class Progress(NamedTuple):
    """How far a member was at some moment."""

    step: int
    points: int  # of its curve
    perfect: int
    solved_at: int | None
    seconds: float
    first_perfect: int | None
    trained: int
    saved: dict[str, SavedState]


@dataclass
class Member:
    """A run in training: its curve so far, and its state while it waits for a slot."""

    spec: RunSpec
    step: int = 0
    curve: list[Point] = field(default_factory=list)
    perfect: int = 0  # consecutive checks with perfect validation
    solved_at: int | None = None
    seconds: float = 0.0  # its share of the population's time
    first_perfect: int | None = None  # the first step at which the watched state made no mistake
    trained: int = 0  # steps, of which `step` are the run's own: the others were for the watched state alone
    saved: dict[str, SavedState] = field(default_factory=dict)  # best: by validation; stopped: when the run had stopped
    state: MemberState | None = None
    started: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # for the record: how it was trained

    @property
    def progress(self) -> Progress:
        numbers = self.step, len(self.curve), self.perfect, self.solved_at, self.seconds
        return Progress(*numbers, self.first_perfect, self.trained, dict(self.saved))

    @property
    def accuracy(self) -> float:
        """Accuracy on the worst validation bin at the last check."""
        return min(self.curve[-1].sequences.values()) if self.curve else 0.0

    def rewind(self, progress: Progress, state: MemberState) -> None:
        """Return to an earlier moment, with the state of that moment."""
        self.step, points, self.perfect, self.solved_at, self.seconds, self.first_perfect, self.trained, saved = (
            progress
        )
        self.curve, self.saved = self.curve[:points], dict(saved)
        self.state = state._replace(saved={**state.saved, **saved})

    def plain(self, progress: Progress) -> dict[str, Any]:
        """Digest, progress and curve at some moment as JSON data, for a checkpoint."""
        numbers = {name: value for name, value in progress._asdict().items() if name != "saved"}
        curve = [point.plain() for point in self.curve[: progress.points]]
        return {"digest": self.spec.digest, **numbers, "curve": curve}

    def resume(self, plain: dict[str, Any], state: MemberState) -> None:
        """Continue from a checkpoint: the counterpart of `plain`."""
        self.curve = [Point(**point) for point in plain["curve"]]
        numbers = {name: plain[name] for name in Progress._fields if name != "saved"}
        names = OWN_STATES if "stopped" in state.saved else ("best",)
        own = {name: saved for name, saved in state.saved.items() if name in names}
        self.rewind(Progress(**numbers, saved=own), state)
        self.notes["resumed"] = self.trained

    @property
    def stopped(self) -> bool:
        """Whether the run has stopped, and is trained only for its watched state."""
        return "stopped" in self.saved

    def receive(
        self, report: RoundReport, current_state: Callable[[], tuple[Tensor, dict[str, Tensor]]]
    ) -> StopReason | None:
        """Take in the outcome of a round; returns why the run has ended, or None while training goes on.

        `current_state` gives parameters and buffers; it is called only when they are to be saved.
        """
        watching = "watched" in self.spec.testing.states and report.first_perfect is None
        self.trained, self.first_perfect = report.step, report.first_perfect
        if self.stopped:
            goes_on = watching and not report.diverged and report.step < self.spec.training.steps
            return None if goes_on else "solved"
        reason = self._receive(report, current_state)
        if reason == "solved" and watching and report.step < self.spec.training.steps:
            self.saved["stopped"] = SavedState(self.step, 1.0, *current_state())
            return None
        return reason

    def _receive(
        self, report: RoundReport, current_state: Callable[[], tuple[Tensor, dict[str, Tensor]]]
    ) -> StopReason | None:
        """The run's own rule, which nothing watched can influence."""
        training, steps = self.spec.training, report.step - self.step
        self.step = report.step
        if report.diverged:
            return "diverged"
        accuracies = {"sequences": report.sequences, "answers": report.answers}
        self.curve.append(Point(step=self.step, loss=report.loss / max(1, steps), **accuracies))
        score, best = mean(report.sequences.values()), self.saved.get("best")
        if self._keeps_best and (best is None or score >= best.score):
            self.saved["best"] = SavedState(self.step, score, *current_state())
        self.perfect = self.perfect + 1 if self.accuracy == 1 else 0
        if self.perfect == training.patience and self.solved_at is None:
            self.solved_at = self.curve[-training.patience].step
            if training.stop == "solved":
                return "solved"
        return "steps" if self.step >= training.steps else None

    @property
    def _keeps_best(self) -> bool:
        return self.spec.training.keep == "best" or "best" in self.spec.testing.states

    @property
    def tested(self) -> SavedState | None:
        """The saved state that the run's verdict is about; None: its last state."""
        return self.saved.get("best" if self.spec.training.keep == "best" else "stopped")
