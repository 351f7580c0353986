"""Probing a model: a task's probes, and the shortest input that the model gets wrong."""

from __future__ import annotations

import time
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.lab.cuda_graphs import wait_for_device
from assay.lab.evaluate import OnRows, predict
from assay.lab.locks import one_at_a_time
from assay.record import ProbeScore, Probing
from assay.spec import RunSpec
from assay.tasks.probes import VERSION, Probe
from assay.tasks.task import IGNORE, Batch, Task, unpadded
from assay.tasks.words import readable


@one_at_a_time
@lru_cache(maxsize=32)
def probe_batches(task: Task, trained: tuple[int, int], longest: int, device: torch.device) -> dict[str, Batch]:
    """The inputs of each probe with their targets, the same for every run."""

    def with_targets(probe: Probe) -> Batch:
        inputs = probe.inputs.to(device)
        return Batch(inputs, task.solve(inputs))

    batches = {probe.name: with_targets(probe) for probe in task.probes(trained, longest) if probe.inputs.numel()}
    wait_for_device(device)  # the next user may be on another stream
    return batches


def probes_of(spec: RunSpec, device: torch.device) -> dict[str, Batch]:
    """The probes of a run: from its shortest training length to its longest test length."""
    return probe_batches(spec.task, spec.training.lengths, max(bin_.high for bin_ in spec.testing.bins), device)


def probe(model: nn.Module, spec: RunSpec, device: torch.device, on_rows: OnRows = lambda _: None) -> Probing:
    """The score of a model on every probe of its task."""
    start, batches = time.perf_counter(), probes_of(spec, device)
    answers = _answers(model, batches, on_rows)
    scores = [_score(spec.task, name, batch, answers[name]) for name, batch in batches.items()]
    return Probing(probes=VERSION, scores=tuple(scores), seconds=time.perf_counter() - start)


def _answers(model: nn.Module, batches: dict[str, Batch], on_rows: OnRows) -> dict[str, Int[Tensor, "rows time"]]:
    """The answers to each probe. Probes of one width are one call: a GPU needs as long for few rows as for many."""
    by_width: dict[int, list[str]] = {}
    for name, batch in batches.items():
        by_width.setdefault(batch.inputs.shape[1], []).append(name)
    answers = dict[str, Tensor]()
    for names in by_width.values():
        inputs = [batches[name].inputs for name in names]
        parts = predict(model, torch.cat(inputs), on_rows).split([len(rows) for rows in inputs])
        answers |= dict(zip(names, parts, strict=True))
    return answers


def _score(task: Task, name: str, batch: Batch, answers: Int[Tensor, "rows time"]) -> ProbeScore:
    """A wrong answer refutes the input that ends there; of all such inputs the shortest is kept."""
    wrong = (answers != batch.targets) & (batch.targets != IGNORE)
    rows = wrong.any(1)
    result = ProbeScore(name=name, rows=len(wrong), wrong=int(rows.sum()))
    if not result.wrong:
        return result
    ends = torch.where(rows, wrong.long().argmax(1), wrong.shape[1]) + 1
    if task.answer_positions == "at the end":
        ends = torch.where(rows, unpadded(batch.inputs).sum(1), wrong.shape[1] + 1)
    length, row = (int(number) for number in ends.min(0))
    word = "" if task.features else readable(batch.inputs[row, :length].tolist(), task.symbols)
    return result.model_copy(update={"length": length, "word": word})
