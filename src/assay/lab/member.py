"""One run on its way through a population."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from assay.lab.population import Report, Saved
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


@dataclass
class Member:
    """A run on its way: what has been seen of it, and what it has learned while it is in no slot."""

    spec: RunSpec
    step: int = 0
    curve: list[Point] = field(default_factory=list)
    perfect: int = 0  # checks in a row
    solved_at: int | None = None
    seconds: float = 0.0  # its share of the population's time
    saved: Saved | None = None
    started: str = ""
    notes: dict[str, Any] = field(default_factory=dict)  # for the record: how it was trained

    def mark(self) -> Mark:
        return Mark(self.step, len(self.curve), self.perfect, self.solved_at, self.seconds)

    def rewind(self, mark: Mark, saved: Saved) -> None:
        """Back to where it was; what it had learned then is given."""
        self.step, points, self.perfect, self.solved_at, self.seconds = mark
        self.curve, self.saved = self.curve[:points], saved

    def facts(self, mark: Mark) -> dict[str, Any]:
        """What was known of it at a moment, as plain data."""
        known = mark._asdict() | {"curve": [point.plain() for point in self.curve[: mark.points]]}
        return {"digest": self.spec.digest, **known}

    def resume(self, facts: dict[str, Any], saved: Saved) -> None:
        """Take up what another process has left."""
        self.curve = [Point(**point) for point in facts["curve"]]
        self.rewind(Mark(*(facts[name] for name in Mark._fields)), saved)
        self.notes["resumed"] = self.step

    def hear(self, report: Report) -> Stopped | None:
        """Take note of a round; says how the run has ended, if it has."""
        how, made = self.spec.training, report.step - self.step
        self.step = report.step
        if report.diverged:
            return "diverged"
        checked = {"sequences": report.sequences, "answers": report.answers}
        self.curve.append(Point(step=self.step, loss=report.loss / max(1, made), **checked))
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
