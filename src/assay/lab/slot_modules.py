"""The modules behind the slots of a population: one stacked module for many slots, or the module itself for one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.lab.evaluate import logits_of
from assay.lab.slots import ParameterCopy
from assay.lab.stacking import Layout, frozen, member_logits, trainable


class SlotModules(ABC):
    """Parameters (`leaves`, views into the rows `theta`) and buffers of every slot, and the call that runs them all."""

    template: nn.Module
    leaves: dict[str, Tensor]
    buffers: dict[str, Tensor]  # [slots, ...]
    copy: ParameterCopy | None = None  # what the parameters are views into, if not the rows

    @abstractmethod
    def logits(self, leaves: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """Logits [slots, rows, time, answers] for inputs [slots, rows, time, ...]."""

    @abstractmethod
    def module(self, slot: int) -> nn.Module:
        """The member of a slot as a module; valid until the next call or the next step."""

    @abstractmethod
    def refresh(self) -> None:
        """Copy the rows `theta` to the parameters, where these are not views into them."""

    @abstractmethod
    def collect_buffers(self) -> None:
        """Copy buffers that a call has replaced back to where `buffers` expects them."""


class StackedModules(SlotModules):
    """Many slots: one module whose call is mapped over stacked parameters and buffers.

    Kernels need a parameter of all slots in one piece. Rather than gather it from the rows in every pass, the update
    writes a copy, if it can.
    """

    def __init__(
        self, template: nn.Module, layout: Layout, theta: Float[Tensor, "slots size"], copied: bool = False
    ) -> None:
        slots, views = len(theta), layout.views(theta)
        self.template, self.rows = template, views
        if copied:
            self.copy = ParameterCopy(torch.zeros_like(theta).flatten(), layout.table(theta.device))
            views = layout.contiguous_views(self.copy.flat)
        self.leaves = {name: p.detach().requires_grad_() for name, p in views.items()}
        self.refresh()
        self.buffers = {name: x.expand(slots, *x.shape).clone() for name, x in frozen(template).items()}

    def logits(self, leaves: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return member_logits(self.template, leaves, self.buffers, inputs)

    def module(self, slot: int) -> nn.Module:
        with torch.no_grad():
            for name, p in trainable(self.template).items():
                p.copy_(self.leaves[name][slot])
            for name, tensor in frozen(self.template).items():
                tensor.copy_(self.buffers[name][slot])
        return self.template

    def refresh(self) -> None:
        if self.copy:
            for name, leaf in self.leaves.items():
                leaf.detach().copy_(self.rows[name])

    def collect_buffers(self) -> None:
        """A module that replaces buffers is not mapped, so there are none."""


class SingleModule(SlotModules):
    """One slot: the member's module itself; its parameters are views into the row of `theta`."""

    def __init__(self, template: nn.Module, layout: Layout, theta: Float[Tensor, "1 size"]) -> None:
        self.layout, self.theta = layout, theta
        self.install(template)

    def install(self, module: nn.Module) -> None:
        """Use this module itself: its constructor may store random values outside of parameters and buffers."""
        self.template, self.leaves = module, {**trainable(module)}
        for name, row in self.layout.views(self.theta).items():
            self.leaves[name].data = row[0]
        self.buffers = {name: x[None] for name, x in frozen(module).items()}

    def logits(self, leaves: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return logits_of(self.template, inputs[0])[None]

    def module(self, slot: int) -> nn.Module:
        return self.template

    def refresh(self) -> None:
        """The parameters are views into the row."""

    def collect_buffers(self) -> None:
        for name, buffer in self.buffers.items():
            owner, _, leaf = name.rpartition(".")
            buffers = self.template.get_submodule(owner)._buffers
            current = buffers.get(leaf)
            if current is not None and current.data_ptr() != buffer.data_ptr():
                buffer.copy_(current[None])
                buffers[leaf] = buffer[0]
