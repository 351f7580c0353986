"""Machines that compute in number formats of few bits."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from assay.errors import BadInput
from assay.models.causal import Causal, State
from assay.models.mixer import MixerLayer
from assay.numbers import Format

# Functions that move numbers without computing. Attributes such as x.mT arrive as `__get__`.
VIEWS = {
    "__get__", "__getitem__", "view", "reshape", "transpose", "permute", "flatten", "unflatten", "squeeze", "unsqueeze",
    "expand", "expand_as", "chunk", "split", "unbind", "detach", "view_as_complex", "view_as_real",
}  # fmt: skip
COPIES = {
    "__setitem__", "cat", "stack", "gather", "scatter", "repeat_interleave", "masked_fill", "where", "pad", "clone",
    "contiguous", "to", "float", "double", "complex",
}  # fmt: skip
MOVES = VIEWS | COPIES


class _Rounding(TorchFunctionMode):
    """Rounds the result of every torch function that computes."""

    def __init__(self, format: Format) -> None:
        super().__init__()
        self.format = format

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in MOVES:
            return result
        if args and result is args[0] and isinstance(result, Tensor):  # in place, so round in place
            return result.copy_(self.format.round(result))
        return rounded(self.format, result)


def rounded(format: Format, tree: Any) -> Any:
    """Round all tensors of a state. Position counters are integers and stay."""
    return pytree.tree_map(lambda x: format.round(x) if isinstance(x, Tensor) else x, tree)


class Rounded(Causal):
    """A copy of a model that computes in a number format.

    `weights` rounds the parameters. `activations` rounds the result of every torch function; sums inside a matrix
    product, a norm or a softmax are formed in the model's own dtype and rounded once, like a wide accumulator, and a
    recurrence runs step by step, since the inside of a kernel cannot be rounded. Masks and real-valued inputs are not
    rounded. `state` rounds the state between two steps. All other numbers keep the model's own dtype.
    """

    def __init__(
        self, model: Causal, format: Format, weights: bool = True, activations: bool = True, state: bool = True
    ) -> None:
        super().__init__()
        self.model, self.format = copy.deepcopy(model).requires_grad_(requires_grad=False), format
        self.activations, self.state = activations, state
        if weights:
            for p in self.model.parameters():
                p.data = format.round(p.data)
        for layer in self.model.modules():
            if isinstance(layer, MixerLayer) and activations:
                layer.forward = partial(_plain_steps, layer)  # type: ignore[method-assign]

    def initial_state(self, batch: int) -> State:
        return self._carried(self.model.initial_state(batch))

    def _carried(self, state: State) -> State:
        return rounded(self.format, state) if self.state else state

    def _computing(self) -> AbstractContextManager[Any]:
        return _Rounding(self.format) if self.activations else nullcontext()

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        with torch.no_grad(), self._computing():
            y, state = self.model.step(x, state)
        return y, self._carried(state)

    def forward(self, x: Tensor, state: State = None) -> tuple[Tensor, State]:
        if self.activations and x.is_cuda:
            raise BadInput("the numbers inside a GPU kernel cannot be rounded; move the rounded machine to the CPU")
        x = x.to(self.zeros().dtype) if x.is_floating_point() else x
        state = self.initial_state(len(x)) if state is None else state
        if self.state and not self.activations:
            return super().forward(x, state)
        with torch.no_grad(), self._computing():  # rounding activations has rounded the state too
            return self.model(x, state)  # type: ignore[no-any-return]

    def state_floats(self, length: int) -> int:
        return self.model.state_floats(length)


def _plain_steps(layer: MixerLayer, x: Tensor, state: State = None) -> tuple[Tensor, State]:
    return layer.mix(x, layer.initial_state(len(x)) if state is None else state, "reference")
