"""Probing a model: a task's probes, and the shortest input that the model gets wrong."""

from __future__ import annotations

import time
from functools import lru_cache

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.lab.cuda_graphs import wait_for_device
from assay.lab.evaluate import predict_sets, to_host
from assay.lab.locks import one_at_a_time
from assay.lab.replays import Replays
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


@torch.no_grad()
def probe(model: nn.Module, spec: RunSpec, device: torch.device, replays: Replays | None = None) -> Probing:
    """The score of a model on every probe of its task."""
    start, batches = time.perf_counter(), probes_of(spec, device)
    answers = predict_sets(model, [batch.inputs for batch in batches.values()], replays=replays)
    wrong = [_shortest_wrong(spec.task, *pair) for pair in zip(batches.values(), answers, strict=True)]
    scores = [
        _score(spec.task, name, len(batch.inputs), numbers.tolist())
        for (name, batch), numbers in zip(batches.items(), to_host(wrong), strict=True)
    ]
    return Probing(probes=VERSION, scores=tuple(scores), seconds=time.perf_counter() - start)


def _shortest_wrong(task: Task, batch: Batch, answers: Int[Tensor, "rows time"]) -> Int[Tensor, "numbers"]:
    """The number of wrong rows, the length of the shortest wrong input, and the tokens of its row.

    A wrong answer refutes the input that ends there; of all such inputs the shortest is kept.
    """
    wrong = (answers != batch.targets) & (batch.targets != IGNORE)
    rows = wrong.any(1)
    ends = torch.where(rows, wrong.long().argmax(1), wrong.shape[1]) + 1
    if task.answer_positions == "at the end":
        ends = torch.where(rows, unpadded(batch.inputs).sum(1), wrong.shape[1] + 1)
    length, row = ends.min(0)
    tokens = batch.inputs.new_empty(0) if task.features else batch.inputs.index_select(0, row[None])[0]
    return torch.cat([rows.sum()[None], length[None], tokens.long()])


def _score(task: Task, name: str, rows: int, numbers: list[int]) -> ProbeScore:
    wrong, length, *tokens = numbers
    if not wrong:
        return ProbeScore(name=name, rows=rows, wrong=0)
    word = "" if task.features else readable(tokens[:length], task.symbols)
    return ProbeScore(name=name, rows=rows, wrong=wrong, length=length, word=word)
