"""The tests of one member after another, on a GPU: passes over inputs of the same shape are replayed from CUDA graphs.

A pass of a test is short for the device and long for the host, which launches every kernel of it; for an LSTM that is
computed step by step, two kernels for each symbol.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.lab.cuda_graphs import GraphedFunction

Forward = Callable[[Tensor], Tensor]


class Replays:
    """A function of inputs, called directly the first time that inputs have a shape, and then replayed.

    What it reads beside the inputs (the parameters of a module) must stay where it is, and may change there. Its calls
    must be made one after the other, on one stream.
    """

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.passes: dict[tuple[torch.Size, torch.dtype], Pass | None] = {}  # None: called once
        self.pool: torch.cuda._POOL_HANDLE | None = None

    def __call__(self, inputs: Tensor) -> Tensor:
        key = inputs.shape, inputs.dtype
        if key not in self.passes:
            self.passes[key] = None
            return self.forward(inputs)
        replay = self.passes[key] = self.passes[key] or self._capture(inputs)
        return replay(inputs)

    def _capture(self, inputs: Tensor) -> Pass:
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        return Pass(self.forward, inputs, self.pool)


class Pass:
    """A function of inputs of one shape, replayed from a graph; called directly where it cannot be captured."""

    def __init__(self, forward: Forward, inputs: Tensor, pool: torch.cuda._POOL_HANDLE) -> None:
        self.forward, self.inputs, self.outputs = forward, inputs.clone(), inputs
        self.graphed = GraphedFunction(self._run)
        self.graphed.capture(pool)

    def _run(self) -> None:
        self.outputs = self.forward(self.inputs)

    def __call__(self, inputs: Tensor) -> Tensor:
        self.inputs.copy_(inputs)
        self.graphed()
        return self.outputs.clone()  # the next replay writes to the same memory
