"""Repair: short training of a network with its state rounded after every step, so that its closure ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.certify.methods import by_exhaustion
from assay.certify.runs import Candidate
from assay.certify.search import Limits, OnStatus, SearchStatus
from assay.certify.table import TaskTable
from assay.errors import BadInput
from assay.lab.execute import one_thread, tested_record
from assay.models import read_model
from assay.models.skeleton import Architecture, Stack, StateChange
from assay.numbers import Fixed, read_format
from assay.rng import Rng
from assay.spec import RunSpec
from assay.tasks.probes import rows_of
from assay.tasks.task import IGNORE, Task

STEPS = 1000  # of training, unless a proof is found before
ROWS = 32  # of each kind in a batch: random inputs, and lassos
TRY_EVERY = 50  # steps between two attempts to close
ATTRACTION = 0.1  # the weight of the distance between disturbed and undisturbed states, in units of the disturbance


class Repaired(Architecture):
    """A model with a rounded state, trained on from the weights of another run (`parent`, a digest).

    Only `assay certify --repair` makes one: `assay run` would begin with random weights.
    """

    kind: ClassVar[str] = "assay.certify.repair:Repaired"
    parent: str
    model: Annotated[SerializeAsAny[Architecture], BeforeValidator(read_model)]
    steps: Annotated[int, Field(ge=0)]
    longest: Annotated[int, Field(ge=1)] = 32  # tokens of a training input
    lr: Annotated[float, Field(gt=0)] = 1e-3

    def build(self, vocab: int, features: int, answers: int, rng: Rng) -> nn.Module:
        return self.model.build(vocab, features, answers, rng)

    def check_length(self, longest: int) -> None:
        self.model.check_length(longest)


def repair(
    candidate: Candidate,
    table: TaskTable,
    numbers: str,
    steps: int,
    limits: Limits,
    on_status: OnStatus = lambda _: None,
) -> Candidate:
    """A run of its own: the same network, trained on with a rounded state until it is proved or the steps are over."""
    if candidate.record is None or not isinstance(candidate.architecture, Stack):
        raise BadInput("only a stored run of one of Assay's models can be repaired")
    noise = _noise(numbers)
    change = {"name": f"{candidate.architecture.name}-repaired", "state": StateChange(numbers=numbers)}
    stack = candidate.architecture.model_copy(update=change)
    description = Repaired(name=stack.name, parent=candidate.record.digest, model=stack, steps=steps)
    module: Any = description.build(*candidate.task.shape, Rng.seeded(0))
    module.load_state_dict(candidate.model.state_dict())
    begin, count = time.perf_counter(), 0
    batch = _batches(candidate.task, table, description.longest)
    optimizer = torch.optim.AdamW(module.parameters(), lr=description.lr, weight_decay=0.0)
    with one_thread():
        for count in range(TRY_EVERY, steps + TRY_EVERY, TRY_EVERY):
            module.train()
            for step in range(count - TRY_EVERY, count):
                optimizer.zero_grad()
                _loss(module, *batch(step), noise).backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
            on_status(SearchStatus(0, 0, steps - count, time.perf_counter() - begin, "repair"))
            result = by_exhaustion(module.eval(), table, limits, on_status=on_status)  # the model rounds by itself
            if result.outcome == "proved" and result.length is None:
                break
        seconds = time.perf_counter() - begin
        model = description.model_copy(update={"steps": count}).plain()
        spec = RunSpec(**candidate.record.spec | {"model": model})
        record = tested_record(spec, module, count, seconds, torch.device("cpu"))
    return Candidate(module.eval(), stack, candidate.task, record, candidate.store)


def _noise(numbers: str) -> float:
    """Two units of a fixed-point format."""
    format = read_format(numbers)
    if not isinstance(format, Fixed):
        raise BadInput(f"a network is repaired for a fixed-point format, as fixed:6.4; not for {numbers}")
    return 2.0 ** (1 - format.fraction)


def _loss(module: Any, inputs: Tensor, targets: Tensor, noise: float) -> Tensor:
    """The cross-entropy of a run and of one whose state is disturbed at every step, and how far they are apart.

    A map that brings disturbed states together again reaches few of them, so that its closure ends.
    """
    rows, logits, distance = len(inputs), [], inputs.new_zeros((), dtype=torch.float32)
    state = module.initial_state(2 * rows)
    for position, token in enumerate(inputs.T):
        rng = Rng.seeded(position, "repair", "noise").rows(rows)
        output, state = module.step(token.repeat(2), state)
        logits.append(output)
        leaves = [_real(leaf) for leaf in pytree.tree_leaves(state) if _is_number(leaf)]
        distance = distance + sum(((x[rows:] - x[:rows]) / noise).square().mean() for x in leaves) / len(leaves)
        state = pytree.tree_map(lambda x, rng=rng: _disturbed(x, rng, noise) if _is_number(x) else x, state)
    loss = nn.functional.cross_entropy(torch.cat(logits), targets.T.repeat(1, 2).flatten(), ignore_index=IGNORE)
    return loss + ATTRACTION * distance / len(logits)


def _is_number(x: Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def _disturbed(x: Tensor, rng: Rng, noise: float) -> Tensor:
    """Uniform noise on the second half of the rows."""
    if x.is_complex():
        return torch.view_as_complex(_disturbed(_real(x), rng, noise))
    half = len(x) // 2
    uniform = rng.uniform(x[0].numel()).float().view_as(x[half:])
    return torch.cat([x[:half], x[half:] + noise * (2 * uniform - 1)])


def _batches(task: Task, table: TaskTable, longest: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    """Inputs and targets of a step: random inputs of all lengths to `longest`, and lassos."""
    lengths = torch.tensor(task.lengths(1, longest))
    lassos = rows_of(lasso.word(int(lengths[-1])) for lasso in table.lassos())

    def batch(step: int) -> tuple[Tensor, Tensor]:
        rng = Rng.seeded(0, "repair", step)
        row_lengths = lengths[rng.child("lengths").rows(ROWS).integers(1, len(lengths))[:, 0]]
        inputs = task.inputs(row_lengths, rng.child("inputs").rows(ROWS), int(lengths[-1]))
        if len(lassos):
            inputs = torch.cat([inputs, lassos[rng.child("lassos").rows(ROWS).integers(1, len(lassos))[:, 0]]])
        return inputs, task.solve(inputs)

    return batch
