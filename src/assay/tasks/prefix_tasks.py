"""Tasks that answer every prefix, or the whole input alone."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from assay.rng import Rng
from assay.tasks.probes import Probe
from assay.tasks.task import IGNORE, PAD, Task, columns, unpadded

Questions = Literal["everywhere", "at the end"]


class PrefixTask(Task):
    """A task that answers every prefix, or the whole input alone."""

    added: ClassVar[tuple[str, ...]] = ("questions",)
    questions: Annotated[
        Questions, Field(description="everywhere: every prefix has an answer; at the end: only the whole input")
    ] = "everywhere"

    @property
    def answer_positions(self) -> Questions:  # type: ignore[override]
        return self.questions

    def probes(self, trained: tuple[int, int], longest: int) -> list[Probe]:
        return self.lasso_probes(longest) + self.run_probes(trained[1], longest)

    def _probe(self, name: str, rows: Int[Tensor, "rows time"]) -> list[Probe]:
        if self.questions == "at the end":
            # Beginnings of every order of length, each as far as its last answer.
            lengths = [rows.shape[1] >> i for i in range(rows.shape[1].bit_length())]
            rows = torch.cat([rows.masked_fill(columns(rows) >= length, PAD) for length in lengths])
            ends = ((self.answer(rows) != IGNORE) & unpadded(rows)).long() * (columns(rows) + 1)
            end = ends.amax(1, keepdim=True)
            rows = rows.masked_fill(columns(rows) >= end, PAD)[end[:, 0] > 0]
        return super()._probe(name, rows)


class FreeTask(PrefixTask):
    """A task whose inputs are all strings over its symbols.

    With `runs`, training shows a memory what it must keep for long.
    """

    added: ClassVar[tuple[str, ...]] = ("questions", "runs")
    runs: Annotated[
        float,
        Field(ge=0, le=1, description="the share of inputs in which a random stretch becomes a run of one symbol"),
    ] = 0.0

    def inputs(self, lengths: Int[Tensor, "rows"], rng: Rng, width: int | None = None) -> Tensor:
        drawn = super().inputs(lengths, rng, width)
        if not self.runs:
            return drawn
        chosen = rng.child("runs").uniform(1) < self.runs
        ends = rng.child("stretch").integers(2, (lengths + 1)[:, None]).sort(dim=1).values
        time = columns(drawn)
        symbol = rng.child("symbol").integers(1, len(self.symbols)) + 1
        return torch.where(chosen & (time >= ends[:, :1]) & (time < ends[:, 1:]), symbol, drawn)
