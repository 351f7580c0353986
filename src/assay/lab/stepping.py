"""Models that compute step by step, on a GPU: one step is captured as a CUDA graph and replayed over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from assay.lab.cuda_graphs import GraphedFunction
from assay.models.causal import Causal
from assay.models.skeleton import Model

STATE_FLOATS = 1 << 28  # of all rows of a pass: a gigabyte


def is_stepwise(model: nn.Module) -> TypeGuard[Model]:
    """Whether a model computes step by step, with a state that does not grow."""
    return isinstance(model, Model) and bool(model.state_change) and model.state_floats(1) == model.state_floats(2)


def rows_stepped_at_once(model: Causal) -> int:
    return max(1, STATE_FLOATS // max(1, model.state_floats(1)))


def answers_by_step(model: Causal, inputs: Tensor, answers_of: Callable[[Tensor], Tensor]) -> Int[Tensor, "rows time"]:
    """The answers at every position; the host launches all steps and waits for none."""
    rows, length = inputs.shape[:2]
    initial = pytree.tree_leaves(model.initial_state(rows))
    state = pytree.tree_map(torch.clone, model.initial_state(rows))
    current = pytree.tree_leaves(state)
    answers = torch.empty(rows, length, dtype=torch.int64, device=inputs.device)
    time = torch.zeros(1, dtype=torch.int64, device=inputs.device)

    def step() -> None:
        logits, after = model.step(inputs.index_select(1, time)[:, 0], state)
        answers.index_copy_(1, time, answers_of(logits)[:, None])
        new = [leaf.clone() for leaf in pytree.tree_leaves(after)]  # it may be a view of the old one
        for leaf, value in zip(current, new, strict=True):
            leaf.copy_(value)
        time.add_(1).clamp_(max=length - 1)

    graphed = GraphedFunction(step)
    if inputs.is_cuda:
        graphed.capture(torch.cuda.graph_pool_handle())  # where this fails, steps are launched one by one
    for leaf, value in zip((*current, time), (*initial, torch.zeros_like(time)), strict=True):
        leaf.copy_(value)
    for _ in range(length):
        graphed()
    return answers
