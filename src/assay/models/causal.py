"""The interface of mixers and whole models: a module that reads its input once, with an explicit state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

State = Any  # a tensor, or tuples of states


class Causal(nn.Module):
    """A causal sequence model. `forward` folds `step` over time; a faster `forward` must give the same result."""

    def initial_state(self, batch: int) -> State:
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One time step: x [batch, ...] without a time axis."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Several time steps: x [batch, time, ...]."""
        state = self.initial_state(len(x)) if state is None else state
        outputs = []
        for x_t in x.unbind(1):
            output, state = self.step(x_t, state)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def state_floats(self, length: int) -> int:
        """The number of real numbers in the state after `length` tokens of one sequence.

        The position is not counted: the lower bounds for recurrent models allow time-dependent updates.
        """
        return sum(
            leaf.numel() * (2 if leaf.is_complex() else 1)
            for leaf in pytree.tree_leaves(self.initial_state(1))
            if leaf.is_floating_point() or leaf.is_complex()
        )

    def zeros(self, *shape: int) -> Tensor:
        """Zeros of the dtype and on the device of the parameters."""
        return next(self.parameters()).new_zeros(shape)


def state_bits(model: Causal, length: int, precision: int = 32) -> int:
    """The size of a model's state after `length` tokens in bits, at `precision` bits per number."""
    return model.state_floats(length) * precision
