"""Testing: how many answers of a model are right on held-out sequences, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay import ops
from assay.lab.data import HeldOut, held_out
from assay.models.attention import AttentionLayer
from assay.models.causal import Causal
from assay.record import LengthScore, Probing, Score, Verdict
from assay.spec import RunSpec
from assay.tasks.task import IGNORE

# Tokens per forward pass; for a model that may hold a number for every pair of tokens, pairs of tokens.
CHUNK_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 18}
CHUNK_PAIRS = {"cpu": 1 << 23, "cuda": 1 << 26}
COLLAPSED = 0.999  # the share of one answer from which a model counts as collapsed

OnRows = Callable[[int], None]  # receives the number of rows that have just been tested
OnProgress = Callable[[int, int], None]  # receives the rows tested so far, and all rows


def logits_of(model: Callable[[Tensor], Any], inputs: Tensor) -> Tensor:
    """The logits of a model that returns them alone or together with a state."""
    output = model(inputs)
    logits: Tensor = output[0] if isinstance(output, tuple) else output
    return logits


def answers_of(logits: Float[Tensor, "*rows answers"]) -> Int[Tensor, "*rows"]:
    """The most likely answer at every position, -1 where a logit is NaN or infinite."""
    return logits.argmax(-1).where(logits.isfinite().all(-1), -1)


@torch.no_grad()
def predict(model: nn.Module, inputs: Tensor, on_rows: OnRows = lambda _: None) -> Int[Tensor, "rows time"]:
    """The model's answer at every position."""
    length, device = inputs.shape[1], inputs.device
    pairs = _may_hold_pairs(model, length, device)
    rows = max(1, CHUNK_PAIRS[device.type] // length**2 if pairs else CHUNK_TOKENS[device.type] // length)
    answers = []
    model.eval()
    try:
        for chunk in inputs.split(rows):
            answers.append(answers_of(logits_of(model, chunk)))
            on_rows(len(chunk))
    finally:
        model.train()
    return torch.cat(answers)


def _may_hold_pairs(model: nn.Module, length: int, device: torch.device) -> bool:
    """Whether a forward pass may hold a number for every pair of tokens: if a state grows, but for fused attention."""
    if not isinstance(model, Causal):
        return True
    layers = [layer for layer in model.modules() if isinstance(layer, AttentionLayer)]
    fused = [ops.backend_for(layer.operator, "auto", device, layer.dim, length) != "reference" for layer in layers]
    return model.state_floats(2) > model.state_floats(1) and not (layers and all(fused))


@dataclass(frozen=True)
class Marks:
    """The number of answers that each row of a held-out set asks for, and the number that are right."""

    held_out: HeldOut
    total: Int[Tensor, "rows"]
    right: Int[Tensor, "rows"]
    favourite: float

    @classmethod
    def of(cls, model: nn.Module, held_out: HeldOut, on_rows: OnRows = lambda _: None) -> Marks:
        """Counted on the device, so that few numbers are copied to the host."""
        answers, targets = predict(model, held_out.batch.inputs, on_rows), held_out.batch.targets
        has_target = targets != IGNORE
        right = (answers == targets) & has_target
        return cls(held_out, has_target.sum(1).cpu(), right.sum(1).cpu(), favourite(answers.where(has_target, -1)))

    def sequences(self) -> float:
        """The share of rows without a wrong answer."""
        return float((self.right == self.total).double().mean())

    def answers(self) -> float:
        """The share of right answers."""
        return float(self.right.sum() / self.total.sum().clamp(min=1))

    def by_length(self) -> tuple[LengthScore, ...]:
        """Both shares for the rows of each length."""
        lengths, index, rows = self.held_out.lengths.cpu().unique(return_inverse=True, return_counts=True)

        def summed(per_row: Tensor) -> Int[Tensor, "lengths"]:
            return torch.zeros_like(lengths).index_add(0, index, per_row)

        right_rows = summed((self.right == self.total).long())
        shares = right_rows.double() / rows, summed(self.right) / summed(self.total).clamp(min=1)
        table = zip(*(column.tolist() for column in (lengths, rows, *shares)), strict=True)
        return tuple(LengthScore(length=n, rows=r, sequences=s, answers=a) for n, r, s, a in table)

    def score(self, name: str) -> Score:
        return Score(
            bin=name,
            rows=len(self.held_out.lengths),
            shared=self.held_out.shared,
            sequences=self.sequences(),
            answers=self.answers(),
            favourite=self.favourite,
            lengths=self.by_length(),
        )


def favourite(answers: Int[Tensor, "*n"]) -> float:
    """The share of the most common answer; negative values are ignored."""
    counts = (answers.clamp(min=-1) + 1).flatten().bincount(minlength=1)[1:].cpu()
    return float(counts.max() / counts.sum()) if len(counts) else math.nan


def evaluate(
    model: nn.Module, spec: RunSpec, device: torch.device, on_progress: OnProgress = lambda tested, total: None
) -> tuple[tuple[Score, ...], bool]:
    """The scores of every test bin, and whether the model gives one answer to nearly everything in Bin0."""
    sets = {
        bin_.name: held_out(spec.task, bin_, spec.training.lengths, spec.testing.rows, "test", device)
        for bin_ in spec.testing.bins
    }
    tested, total = 0, sum(len(rows.lengths) for rows in sets.values())

    def on_rows(rows: int) -> None:
        nonlocal tested
        tested += rows
        on_progress(tested, total)

    scores = tuple(Marks.of(model, rows, on_rows).score(name) for name, rows in sets.items())
    targets = next(iter(sets.values())).batch.targets
    return scores, scores[0].favourite >= COLLAPSED > favourite(targets)


def random_verdict(scores: tuple[Score, ...], collapsed: bool) -> Verdict:
    """The verdict on a run that did not diverge, before it is probed.

    Solved: every sequence of every bin is right. Partly solved: every sequence of the first bin, whose lengths were
    trained on. Otherwise collapsed to one answer, or censored: the steps ran out before the task was learned.
    """
    if all(score.sequences == 1 for score in scores):
        return "solved"
    if scores[0].sequences == 1:
        return "partly solved"
    return "collapsed" if collapsed else "censored"


def probed_verdict(verdict: Verdict, probing: Probing | None) -> Verdict:
    """A run that is right on every test sequence is refuted by a wrong probe."""
    return "refuted" if verdict == "solved" and probing and probing.shortest_wrong else verdict


def first_failing_length(scores: tuple[Score, ...], probing: Probing | None) -> int | None:
    """The length of the shortest wrong input, of test bins and probes."""
    wrong = [row.length for score in scores for row in score.lengths if row.sequences < 1]
    if probing and (probe := probing.shortest_wrong) and probe.length:
        wrong.append(probe.length)
    return min(wrong, default=None)
