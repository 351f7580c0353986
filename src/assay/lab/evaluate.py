"""How right a model is on a set of sequences."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
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
    """Which answers of a held-out set were right."""

    held: HeldOut
    said: Int[Tensor, "rows time"]
    asked: Bool[Tensor, "rows time"]
    right: Bool[Tensor, "rows time"]

    @classmethod
    def of(cls, model: nn.Module, held: HeldOut) -> Marks:
        """Counted on the host: what follows is many small questions."""
        said, targets = predict(model, held.batch.inputs).cpu(), held.batch.targets.cpu()
        asked = targets != IGNORE
        return cls(held, said, asked, (said == targets) & asked)

    def sequences(self, rows: Tensor | slice = slice(None)) -> float:
        """The share of rows that are right wherever they are asked."""
        return float((self.right == self.asked)[rows].all(1).double().mean())

    def answers(self, rows: Tensor | slice = slice(None)) -> float:
        """The share of right answers."""
        return float(self.right[rows].sum() / self.asked[rows].sum().clamp(min=1))

    def score(self, name: str, probe: str = "") -> Score:
        by_length, lengths = [], self.held.lengths.cpu()
        for length in lengths.unique().tolist():
            rows = lengths == length
            by_length.append(
                LengthScore(
                    length=length, rows=int(rows.sum()), sequences=self.sequences(rows), answers=self.answers(rows)
                )
            )
        return Score(
            bin=name,
            probe=probe,
            rows=len(self.held.lengths),
            shared=self.held.shared,
            sequences=self.sequences(),
            answers=self.answers(),
            favourite=favourite(self.said[self.asked]),
            lengths=tuple(by_length),
        )


def favourite(answers: Int[Tensor, "n"]) -> float:
    """The share of the commonest answer; what is not an answer (-1) is left out."""
    answers = answers[answers >= 0]
    return float(answers.unique(return_counts=True)[1].max() / len(answers)) if len(answers) else math.nan


def examine(model: nn.Module, spec: RunSpec, device: torch.device) -> tuple[tuple[Score, ...], bool]:
    """The scores of every test bin and probe, and whether the model gives one answer to nearly everything in Bin0."""
    scores, collapsed = [], False
    for probe, task in {"": spec.task, **spec.task.probes()}.items():
        for window in spec.testing.bins:
            held = held_out(task, window, spec.training.lengths, spec.testing.rows, "test", device)
            marks = Marks.of(model, held)
            scores.append(marks.score(window.name, probe))
            if not probe and window == spec.testing.bins[0]:
                truth = favourite(held.batch.targets.cpu()[marks.asked])
                collapsed = scores[-1].favourite >= 0.999 > truth
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
