"""The base classes of mixers: a frozen description, and a layer that runs in parallel or step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from assay import ops
from assay.description import Description
from assay.models.causal import Causal, State
from assay.models.dense import Linear, linear
from assay.rng import Rng


class MixerLayer(Causal):
    """Mixes tokens [batch, time, width] along time. A subclass defines `mix` for all backends of its operator."""

    operator: ClassVar[str] = ""  # the name of its operator in `assay.ops`, if any
    starts_at_zero: ClassVar[bool] = False  # whether `mix` takes None for the initial state
    dim: int = 1  # the head size of that operator, which a kernel may limit

    def mix(self, x: Tensor, state: State, backend: ops.Backend) -> tuple[Tensor, State]:
        raise NotImplementedError

    def step(self, x: Float[Tensor, "batch width"], state: State) -> tuple[Tensor, State]:
        y, state = self.mix(x[:, None], state, "reference")
        return y[:, 0], state

    def forward(self, x: Float[Tensor, "batch time width"], state: State = None) -> tuple[Tensor, State]:
        if state is None and not self.starts_at_zero:
            state = self.initial_state(len(x))
        return self.mix(x, state, "auto")


def operator_of(layer: nn.Module) -> str:
    """The name of the operator that a layer runs, if any: attention with another weighting than softmax runs none."""
    runs_none = isinstance(layer, MixerLayer) and getattr(layer, "weighting", None) is not None
    return "" if runs_none else str(getattr(layer, "operator", ""))


class Mixer(Description, ABC):
    """The description of a mixer; `build` makes its layer."""

    @abstractmethod
    def build(self, width: int, rng: Rng) -> MixerLayer: ...

    def check(self, width: int) -> None:
        """Raise ValueError if this mixer cannot have this width."""


class HeadedMixer(Mixer):
    """A mixer with heads, each on an equal slice of the width."""

    heads: Annotated[int, Field(ge=1)] = 4

    @property
    def rotates(self) -> bool:
        """Whether queries and keys are rotated in pairs, which needs an even head size."""
        return False

    def check(self, width: int) -> None:
        heads = self.heads
        if width % heads:
            lower = width - width % heads
            nearest = " or ".join(str(w) for w in (lower, lower + heads) if w > 0)
            raise ValueError(f"a width of {width} is not divisible by {heads} heads; {nearest} would be")
        if self.rotates and width // heads % 2:
            raise ValueError(f"rotary positions need an even head size; {width} / {heads} = {width // heads} is odd")


def split_heads(x: Float[Tensor, "batch time width"], heads: int) -> Float[Tensor, "batch heads time dim"]:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Float[Tensor, "batch heads time dim"]) -> Float[Tensor, "batch time width"]:
    return x.transpose(1, 2).flatten(2)


def project(x: Float[Tensor, "batch time width"], *maps: Linear) -> Float[Tensor, "batch time outputs"]:
    """The outputs of several maps without bias side by side, from one product."""
    return linear(x, torch.cat([layer.weight for layer in maps]), None)


def positions_from(start: Int[Tensor, ""], time: int) -> Int[Tensor, "time"]:
    """The positions start, start + 1, ..."""
    return start + torch.arange(time, device=start.device)
