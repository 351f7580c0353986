"""The one interface of mixers and whole models: a machine that reads its input once, with an explicit state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

State = Any  # a tensor, or tuples of states


class Causal(nn.Module):
    """A causal sequence machine. `forward` equals folding `step` over time; a faster one must equal it too."""

    def initial_state(self, batch: int) -> State:
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One moment: x [batch, ...] without a time axis."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """A stretch of time: x [batch, time, ...]."""
        state = self.initial_state(len(x)) if state is None else state
        outputs = []
        for moment in x.unbind(1):
            output, state = self.step(moment, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def state_floats(self, length: int) -> int:
        """How many real numbers the machine carries after `length` tokens of one sequence.

        Counters of the position are not counted: the lower bounds for recurrent machines allow time-dependent updates.
        """
        return sum(
            leaf.numel() * (2 if leaf.is_complex() else 1)
            for leaf in pytree.tree_leaves(self.initial_state(1))
            if leaf.is_floating_point() or leaf.is_complex()
        )

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the parameters' type, where they are."""
        return next(self.parameters()).new_zeros(shape)


def state_bits(model: Causal, length: int, precision: int = 32) -> int:
    """The bits of state that a model carries after `length` tokens, at `precision` bits a number."""
    return model.state_floats(length) * precision
