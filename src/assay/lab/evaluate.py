"""Testing: how many answers of a model are right on held-out sequences, and the verdict that follows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay import ops
from assay.lab.data import HeldOut, held_out
from assay.lab.replays import Replays
from assay.lab.stepping import answers_by_step, is_stepwise, rows_stepped_at_once
from assay.models.causal import Causal
from assay.models.foreign import output_of
from assay.models.mixer import MixerLayer, operator_of
from assay.models.skeleton import Model
from assay.record import LengthScore, Probing, Score, Verdict
from assay.spec import RunSpec
from assay.tasks.task import IGNORE, PAD

# Tokens per forward pass; for a model that may hold a number for every pair of tokens, pairs of tokens.
CHUNK_TOKENS = {"cpu": 1 << 15, "cuda": 1 << 18}
CHUNK_PAIRS = {"cpu": 1 << 23, "cuda": 1 << 26}
BYTES_OF_A_NUMBER = 8192  # of all memory for each number of a layer's output; a pass uses about a percent of it
COLLAPSED = 0.999  # the share of one answer from which a model counts as collapsed

OnRows = Callable[[int], None]  # receives the number of rows that have just been tested
OnProgress = Callable[[int, int], None]  # receives the rows tested so far, and all rows


def logits_of(model: Callable[[Tensor], Any], inputs: Tensor) -> Tensor:
    """The logits of a model that returns them alone, together with a state, or in a Hugging Face style output."""
    logits: Tensor = output_of(model(inputs))
    return logits


def answers_of(logits: Float[Tensor, "*rows answers"]) -> Int[Tensor, "*rows"]:
    """The most likely answer at every position, -1 where a logit is NaN or infinite."""
    return logits.argmax(-1).where(logits.isfinite().all(-1), -1)


def answers_in_parallel(model: nn.Module, inputs: Tensor) -> Int[Tensor, "rows time"]:
    """The answers from one call of the model."""
    return answers_of(logits_of(model, inputs))


@torch.no_grad()
def predict(
    model: nn.Module, inputs: Tensor, on_rows: OnRows = lambda _: None, replays: Replays | None = None
) -> Int[Tensor, "rows time"]:
    """The model's answer at every position, by `replays` of its `answers_in_parallel` if there are some.

    Nothing waits for the device here.
    """
    answers, in_parallel = [], replays or partial(answers_in_parallel, model)
    model.eval()
    try:
        for chunk in inputs.split(rows_per_pass(model, inputs.shape[1], inputs.device)):
            if inputs.is_cuda and is_stepwise(model):
                answers.append(answers_by_step(model, chunk, answers_of))
            else:
                answers.append(in_parallel(chunk))
            on_rows(len(chunk))
    finally:
        model.train()
    return torch.cat(answers)


def rows_per_pass(model: nn.Module, length: int, device: torch.device) -> int:
    """How many rows of a length are tested at once."""
    if device.type == "cuda" and is_stepwise(model):
        return rows_stepped_at_once(model)
    pairs = _may_hold_pairs(model, length, device)
    return max(1, CHUNK_PAIRS[device.type] // length**2 if pairs else _tokens_of_a_pass(model, device) // length)


def _tokens_of_a_pass(model: nn.Module, device: torch.device) -> int:
    """More on a GPU with much memory: the host, which launches the kernels of a pass, is what testing waits for."""
    least = CHUNK_TOKENS[device.type]
    if device.type != "cuda" or not isinstance(model, Model):
        return least
    memory = torch.cuda.get_device_properties(device).total_memory
    return max(least, memory // (BYTES_OF_A_NUMBER * model.read_out.in_features))


def _may_hold_pairs(model: nn.Module, length: int, device: torch.device) -> bool:
    """Whether a forward pass may hold a number for every pair of tokens: if a state grows, but for fused attention."""
    if not isinstance(model, Causal) or not _grows(model):
        return not isinstance(model, Causal)
    layers = [layer for layer in model.modules() if isinstance(layer, MixerLayer) and _grows(layer)]
    return not layers or not all(_is_fused(layer, length, device) for layer in layers)


def _grows(model: Causal) -> bool:
    return model.state_floats(2) > model.state_floats(1)


def _is_fused(layer: MixerLayer, length: int, device: torch.device) -> bool:
    name = operator_of(layer)
    return bool(name) and ops.backend_for(name, "auto", device, layer.dim, length) != "reference"


def predict_sets(
    model: nn.Module, sets: Sequence[Tensor], on_rows: OnRows = lambda _: None, replays: Replays | None = None
) -> list[Int[Tensor, "rows time"]]:
    """The answers to several sets of inputs. Sets that take as long together as alone are one call.

    On a GPU few rows take as long as many. So sets of one width are one call; and for a model that computes step by
    step all sets are, padded at the end to the longest, which does not change earlier answers.
    """
    together: dict[int, list[int]] = {}
    for number, inputs in enumerate(sets):
        width = 0 if inputs.is_cuda and is_stepwise(model) else inputs.shape[1]
        together.setdefault(width, []).append(number)
    answers = dict[int, Tensor]()
    for numbers in together.values():
        width = max(sets[number].shape[1] for number in numbers)
        parts = predict(model, torch.cat([padded(sets[number], width) for number in numbers]), on_rows, replays)
        for number, part in zip(numbers, parts.split([len(sets[number]) for number in numbers]), strict=True):
            answers[number] = part[:, : sets[number].shape[1]]
    return [answers[number] for number in range(len(sets))]


def padded(inputs: Tensor, width: int) -> Tensor:
    """Inputs [rows, time, ...] with padding after their last positions."""
    if inputs.shape[1] == width:
        return inputs
    return torch.cat([inputs, inputs.new_full((len(inputs), width - inputs.shape[1], *inputs.shape[2:]), PAD)], dim=1)


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Whole numbers on the CPU: all are copied at once, since each copy waits for the device."""
    if not tensors:
        return []
    host = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    parts = host.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


class Marks(NamedTuple):
    """How the answers to a held-out set are marked."""

    lengths: Int[Tensor, "rows"]
    total: Int[Tensor, "rows"]  # the number of answers that each row asks for
    right: Int[Tensor, "rows"]  # and the number that are right
    counts: Int[Tensor, "counts"]  # how often each answer is given

    @classmethod
    def of(cls, held_out: HeldOut, answers: Int[Tensor, "rows time"], classes: int) -> Marks:
        """Counted on the device, so that few numbers are copied to the host."""
        targets = held_out.batch.targets
        has_target = targets != IGNORE
        right = (answers == targets) & has_target
        counts = answer_counts(answers.where(has_target, -1), classes)
        return cls(held_out.lengths, has_target.sum(1), right.sum(1), counts)

    def sequences(self) -> float:
        """The share of rows without a wrong answer."""
        return float((self.right == self.total).double().mean())

    def answers(self) -> float:
        """The share of right answers."""
        return float(self.right.sum() / self.total.sum().clamp(min=1))

    def by_length(self) -> tuple[LengthScore, ...]:
        """Both shares for the rows of each length."""
        lengths, index, rows = self.lengths.unique(return_inverse=True, return_counts=True)

        def summed(per_row: Tensor) -> Int[Tensor, "lengths"]:
            return torch.zeros_like(lengths).index_add(0, index, per_row)

        right_rows = summed((self.right == self.total).long())
        shares = right_rows.double() / rows, summed(self.right) / summed(self.total).clamp(min=1)
        table = zip(*(column.tolist() for column in (lengths, rows, *shares)), strict=True)
        return tuple(LengthScore(length=n, rows=r, sequences=s, answers=a) for n, r, s, a in table)

    def score(self, name: str, shared: int) -> Score:
        return Score(
            bin=name,
            rows=len(self.lengths),
            shared=shared,
            sequences=self.sequences(),
            answers=self.answers(),
            favourite=favourite(self.counts),
            lengths=self.by_length(),
        )


def answer_counts(answers: Int[Tensor, "*n"], classes: int) -> Int[Tensor, "counts"]:
    """How often each answer occurs, and last any other number; negative numbers are ignored.

    Unlike bincount, this does not wait for the device.
    """
    index = answers.clamp(-1, classes).flatten() + 1
    counts = torch.zeros(classes + 2, dtype=torch.int64, device=answers.device)
    return counts.index_add(0, index, torch.ones_like(index))[1:]


def favourite(counts: Int[Tensor, "counts"]) -> float:
    """The share of the most common answer; NaN without any."""
    return float(counts.max() / counts.sum()) if counts.any() else math.nan


def evaluate(
    model: nn.Module,
    spec: RunSpec,
    device: torch.device,
    on_progress: OnProgress = lambda tested, total: None,
    replays: Replays | None = None,
) -> tuple[tuple[Score, ...], bool]:
    """The scores of every test bin, and whether the model gives one answer to nearly everything in Bin0."""
    classes, testing, trained = spec.task.shape.answers, spec.testing, spec.training.lengths
    every = testing.every_length
    sets = [held_out(spec.task, bin_, trained, testing.rows, "test", device, every) for bin_ in testing.bins]
    tested, total = 0, sum(len(rows.lengths) for rows in sets)

    def on_rows(rows: int) -> None:
        nonlocal tested
        tested += rows
        on_progress(tested, total)

    answers = predict_sets(model, [rows.batch.inputs for rows in sets], on_rows, replays)
    marks = [Marks.of(rows, row_answers, classes) for rows, row_answers in zip(sets, answers, strict=True)]
    *columns, right_answers = to_host([*chain(*marks), answer_counts(sets[0].batch.targets, classes)])
    each = len(Marks._fields)
    scores = tuple(
        Marks(*columns[number * each :][:each]).score(bin_.name, rows.shared)
        for number, (bin_, rows) in enumerate(zip(spec.testing.bins, sets, strict=True))
    )
    return scores, scores[0].favourite >= COLLAPSED > favourite(right_answers)


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
