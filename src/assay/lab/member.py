"""One run on its way through a population."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, Literal, NamedTuple

from torch import Tensor

from assay.lab.population import Report
from assay.lab.saved import Best, Saved
from assay.record import Point
from assay.spec import RunSpec

Stopped = Literal["solved", "steps", "diverged"]


class Mark(NamedTuple):
    """How far a member was at some moment."""

    step: int
    points: int  # of its curve
    perfect: int
    solved_at: int | None
    seconds: float
    best: Best | None


@dataclass
class Member:
    """A run on its way: what has been seen of it, and what it has learned while it is in no slot."""

    spec: RunSpec
    step: int = 0
    curve: list[Point] = field(default_factory=list)
    perfect: int = 0  # checks in a row
    solved_at: int | None = None
    seconds: float = 0.0  # its share of the population's time
    best: Best | None = None  # where that is what will be tested
    saved: Saved | None = None
    started: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # for the record: how it was trained

    def mark(self) -> Mark:
        return Mark(self.step, len(self.curve), self.perfect, self.solved_at, self.seconds, self.best)

    def rewind(self, mark: Mark, saved: Saved) -> None:
        """Back to where it was; what it had learned then is given."""
        self.step, points, self.perfect, self.solved_at, self.seconds, self.best = mark
        self.curve, self.saved = self.curve[:points], saved._replace(best=mark.best)

    def facts(self, mark: Mark) -> dict[str, Any]:
        """What was known of it at a moment, as plain data."""
        known = {name: value for name, value in mark._asdict().items() if name != "best"}
        return {"digest": self.spec.digest, **known, "curve": [point.plain() for point in self.curve[: mark.points]]}

    def resume(self, facts: dict[str, Any], saved: Saved) -> None:
        """Take up what another process has left."""
        self.curve = [Point(**point) for point in facts["curve"]]
        self.rewind(Mark(**{name: facts[name] for name in Mark._fields if name != "best"}, best=saved.best), saved)
        self.notes["resumed"] = self.step

    def hear(self, report: Report, learned: Callable[[], tuple[Tensor, dict[str, Tensor]]]) -> Stopped | None:
        """Take note of a round; says how the run has ended, if it has. What it has `learned` is asked for if needed."""
        how, made = self.spec.training, report.step - self.step
        self.step = report.step
        if report.diverged:
            return "diverged"
        checked = {"sequences": report.sequences, "answers": report.answers}
        self.curve.append(Point(step=self.step, loss=report.loss / max(1, made), **checked))
        score = mean(report.sequences.values())
        if how.keep == "best" and (self.best is None or score >= self.best.score):
            self.best = Best(self.step, score, *learned())
        self.perfect = self.perfect + 1 if self.accuracy == 1 else 0
        if self.perfect == how.patience and self.solved_at is None:
            self.solved_at = self.curve[-how.patience].step
            if how.stop == "solved":
                return "solved"
        return "steps" if self.step >= how.steps else None

    @property
    def accuracy(self) -> float:
        """Of the worse validation bin, at the last check."""
        return min(self.curve[-1].sequences.values()) if self.curve else 0.0
