"""Small machines whose behaviour is known exactly, as users' modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay.models.causal import Causal, State


class Sign(Causal):
    """Parity as the sign of one number: token 1 multiplies it by `decay`, token 2 by -1; it starts at 1.

    The answer is even where the number is above `threshold`. With decay 1/2 and threshold 0.1 the shortest wrong word
    is 0^4: 1/2, 1/4, 1/8, 1/16.
    """

    def __init__(self, vocab: int, features: int, answers: int, decay: float = 1.0, threshold: float = 0.1) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor([0.0, decay, -1.0]))
        self.threshold = nn.Parameter(torch.tensor(threshold))

    def initial_state(self, batch: int) -> State:
        return self.factors.new_ones(batch, 1)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        state = state * self.factors[x][:, None]
        return torch.cat([self.threshold - state, state - self.threshold], dim=1), state


class BatchSign(Sign):
    """The same, but its rows influence each other."""

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        logits, state = super().step(x, state)
        return logits - 0.01 * logits.mean(0), state


class Future(Sign):
    """The same, but every answer depends on the last token."""

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        logits, state = super().forward(x, state)
        return logits + 0.01 * logits[:, -1:], state


class Counting(Sign):
    """The same, but it counts tokens in a number that all rows share."""

    def initial_state(self, batch: int) -> State:
        return super().initial_state(batch), torch.zeros((), dtype=torch.int64)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        logits, sign = super().step(x, state[0])
        return logits, (sign, state[1] + 1)
