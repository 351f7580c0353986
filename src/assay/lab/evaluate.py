"""How right a model is on a set of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.lab.data import HeldOut, held_out
from assay.models.causal import Causal
from assay.record import LengthScore, Score, Verdict
from assay.spec import RunSpec
from assay.tasks.task import IGNORE

# Tokens read at once; of a model whose state grows with its input, pairs of tokens.
CHUNK_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 18}
CHUNK_PAIRS = {"cpu": 1 << 23, "cuda": 1 << 26}


def logits_of(model: Callable[[Tensor], Any], inputs: Tensor) -> Float[Tensor, "rows time answers"]:
    """A model's logits; a state that it may return beside them is left out."""
    output = model(inputs)
    logits: Tensor = output[0] if isinstance(output, tuple) else output
    return logits


def answers_of(logits: Float[Tensor, "*rows answers"]) -> Int[Tensor, "*rows"]:
    """The most likely answer everywhere, -1 where the logits are not numbers."""
    return logits.argmax(-1).where(logits.isfinite().all(-1), -1)


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor) -> Int[Tensor, "rows time"]:
    """What a model answers everywhere."""
    length, where = inputs.shape[1], inputs.device.type
    grows = not isinstance(model, Causal) or model.state_floats(2) > model.state_floats(1)
    rows = max(1, CHUNK_PAIRS[where] // length**2 if grows else CHUNK_TOKENS[where] // length)
    model.eval()
    said = []
    for chunk in inputs.split(rows):
        said.append(answers_of(logits_of(model, chunk)))
    model.train()
    return torch.cat(said)


@dataclass(frozen=True)
class Marks:
    """How many answers each row of a held-out set asked for, and how many were right."""

    held: HeldOut
    asked: Int[Tensor, "rows"]
    right: Int[Tensor, "rows"]
    favourite: float

    @classmethod
    def of(cls, model: nn.Module, held: HeldOut) -> Marks:
        """Counted where the answers are: few numbers come to the host."""
        said, targets = predict(model, held.batch.inputs), held.batch.targets
        asked = targets != IGNORE
        right = (said == targets) & asked
        return cls(held, asked.sum(1).cpu(), right.sum(1).cpu(), favourite(said.where(asked, -1)))

    def sequences(self) -> float:
        """The share of rows that are right wherever they are asked."""
        return float((self.right == self.asked).double().mean())

    def answers(self) -> float:
        """The share of right answers."""
        return float(self.right.sum() / self.asked.sum().clamp(min=1))

    def by_length(self) -> tuple[LengthScore, ...]:
        """The same for the rows of each length."""
        lengths, which, rows = self.held.lengths.cpu().unique(return_inverse=True, return_counts=True)

        def counted(each: Tensor) -> Int[Tensor, "lengths"]:
            return torch.zeros_like(lengths).index_add(0, which, each)

        whole = counted((self.right == self.asked).long())
        shares = whole.double() / rows, counted(self.right) / counted(self.asked).clamp(min=1)
        table = zip(*(column.tolist() for column in (lengths, rows, *shares)), strict=True)
        return tuple(LengthScore(length=n, rows=r, sequences=s, answers=a) for n, r, s, a in table)

    def score(self, name: str, probe: str = "") -> Score:
        return Score(
            bin=name,
            probe=probe,
            rows=len(self.held.lengths),
            shared=self.held.shared,
            sequences=self.sequences(),
            answers=self.answers(),
            favourite=self.favourite,
            lengths=self.by_length(),
        )


def favourite(answers: Int[Tensor, "*n"]) -> float:
    """The share of the commonest answer; what is not an answer (below 0) is left out."""
    counts = (answers.clamp(min=-1) + 1).flatten().bincount(minlength=1)[1:].cpu()
    return float(counts.max() / counts.sum()) if len(counts) else math.nan


def examine(model: nn.Module, spec: RunSpec, device: torch.device) -> tuple[tuple[Score, ...], bool]:
    """The scores of every test bin and probe, and whether the model gives one answer to nearly everything in Bin0."""
    scores, collapsed = [], False
    for probe, task in {"": spec.task, **spec.task.probes()}.items():
        for window in spec.testing.bins:
            held = held_out(task, window, spec.training.lengths, spec.testing.rows, "test", device)
            scores.append(Marks.of(model, held).score(window.name, probe))
            if not probe and window == spec.testing.bins[0]:
                collapsed = scores[-1].favourite >= 0.999 > favourite(held.batch.targets)
    return tuple(scores), collapsed


def verdict(scores: tuple[Score, ...], collapsed: bool) -> tuple[Verdict, int | None]:
    """What the scores amount to, and the first length at which a sequence was wrong.

    Solved: every sequence of every bin is right. Partly solved: every one of the first bin, whose lengths were trained
    on. Else collapsed to one answer, or censored: the steps ran out before it was learned.
    """
    wrong = [row.length for score in scores for row in score.lengths if row.sequences < 1]
    if not wrong:
        return "solved", None
    if all(score.sequences == 1 for score in scores if score.bin == scores[0].bin):
        return "partly solved", min(wrong)
    return "collapsed" if collapsed else "censored", min(wrong)
