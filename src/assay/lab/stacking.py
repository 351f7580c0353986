"""Many modules of one architecture: their parameters as rows of one matrix, and one call that runs them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from assay import ops
from assay.errors import BadInput, in_one_line
from assay.lab.data import blank
from assay.lab.evaluate import logits_of
from assay.lab.locks import EXCLUSIVE
from assay.models.skeleton import Foreign
from assay.rng import Rng
from assay.spec import RunSpec


def build_module(
    spec: RunSpec, device: torch.device, dtype: torch.dtype | None = None, seed: int | None = None
) -> nn.Module:
    """The module of a run before training; `dtype` replaces the type of its floating-point tensors."""
    with EXCLUSIVE if isinstance(spec.model, Foreign) else nullcontext():  # it draws from PyTorch's random generator
        module = spec.model.build(*spec.task.shape, Rng.seeded(spec.seed if seed is None else seed, "initial"))
    module._apply(lambda x: x.to(device, dtype if x.is_floating_point() else None))
    return module


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that receive gradients."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def frozen(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module that are not trained: buffers, and parameters that need no gradient."""
    parameters = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return parameters | dict(module.named_buffers())


def member_losses(
    logits: Float[Tensor, "members rows time answers"], targets: Int[Tensor, "members rows time"]
) -> Float[Tensor, "members"]:
    """Each member's mean cross-entropy over its targets; 0 where all targets are IGNORE."""
    return ops.cross_entropy(logits.flatten(1, 2), targets.flatten(1))


class SumOfLosses(torch.autograd.Function):
    """A number whose gradient by every loss is 1; the number itself is not computed.

    torch.autograd.grad with a gradient for each loss would import SymPy, which takes a second.
    """

    @staticmethod
    def forward(ctx: Any, losses: Float[Tensor, "members"], ones: Float[Tensor, "members"]) -> Float[Tensor, ""]:
        ctx.ones = ones
        return losses.new_empty(())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return ctx.ones, None


def member_logits(
    template: nn.Module, parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor
) -> Tensor:
    """Logits [slots, rows, time, answers] of every slot for its own inputs: one call mapped over the slots."""

    def logits(parameters: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return logits_of(lambda x: functional_call(template, (parameters, buffers), (x,)), inputs)

    with _attention_for_vmap():
        stacked: Tensor = vmap(logits)(parameters, buffers, inputs)
    return stacked


@contextmanager
def _attention_for_vmap() -> Iterator[None]:
    """PyTorch's attention in its plain form: the fused forms have no vmap rule."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def why_unmappable(spec: RunSpec, device: torch.device) -> str:
    """Why a user's own module cannot be mapped over slots, or an empty string. The built-in models all can."""
    if not isinstance(spec.model, Foreign):
        return ""
    with EXCLUSIVE:
        return _why_foreign_unmappable(spec, device)


def _why_foreign_unmappable(spec: RunSpec, device: torch.device) -> str:
    module, other = (build_module(spec, device, seed=seed) for seed in (0, 1))
    inputs = blank(spec.task, 2, 2, 3, device=device)
    functorch: Any = torch._C._functorch
    fallback = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)  # it would loop over an operation without a vmap rule, silently
    try:
        parameters, buffers = (
            {name: torch.stack([x.detach().clone()] * 2) for name, x in tensors.items()}
            for tensors in (trainable(module), frozen(module))
        )
        leaves = [p.requires_grad_() for p in parameters.values()]
        logits = member_logits(module, parameters, buffers, inputs)
        torch.autograd.grad(logits.sum(), leaves, allow_unused=True)
        with torch.no_grad():
            first, second = (member_logits(m.eval(), parameters, buffers, inputs) for m in (module, other))
    except Exception as error:
        return in_one_line(error)
    finally:
        functorch._set_vmap_fallback_enabled(fallback)
    if not torch.equal(first, second):
        return "its output depends on random values that are neither parameters nor buffers"
    return _why_buffers_are_lost(module.train(), inputs[0])


def _why_buffers_are_lost(module: nn.Module, inputs: Tensor) -> str:
    """A call that assigns a new tensor to a buffer loses it when the buffers are stacked."""
    buffers = dict(module.named_buffers())
    with torch.no_grad(), suppress(Exception):  # training will report any other error of the module
        module(inputs)
    replaced = [name for name, buffer in module.named_buffers() if buffer is not buffers[name]]
    return f"it replaces its buffer '{replaced[0]}' instead of writing to it" if replaced else ""


class Layout:
    """Where each trainable parameter of a module lies in a row of numbers."""

    ALIGNMENT = 16  # every parameter starts at a multiple, so that all slots have the same memory alignment

    def __init__(self, module: nn.Module) -> None:
        self.shapes = {name: p.shape for name, p in trainable(module).items()}
        if any(p.is_complex() for p in trainable(module).values()):
            raise BadInput("complex parameters are not trained; hold them as real ones (torch.view_as_real)")
        self.starts, self.size = {}, 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.size
            self.size += -(-shape.numel() // self.ALIGNMENT) * self.ALIGNMENT

    def views(self, rows: Float[Tensor, "slots size"]) -> dict[str, Tensor]:
        """Each parameter as a view [slots, ...] into the rows."""
        return {
            name: rows[:, start : start + self.shapes[name].numel()].unflatten(1, self.shapes[name])
            if self.shapes[name]
            else rows[:, start]
            for name, start in self.starts.items()
        }

    def contiguous_views(self, flat: Float[Tensor, "numbers"]) -> dict[str, Tensor]:
        """Each parameter as a contiguous view [slots, ...] into a copy of all rows."""
        slots = len(flat) // self.size
        return {
            name: flat[slots * start :][: slots * self.shapes[name].numel()].view(slots, *self.shapes[name])
            for name, start in self.starts.items()
        }

    def table(self, device: torch.device) -> Int[Tensor, "groups 2"]:
        """Of every ALIGNMENT numbers of a row: where their parameter starts, and how many numbers it has."""
        places = [(start, self.shapes[name].numel()) for name, start in self.starts.items()]
        counts = [-(-count // self.ALIGNMENT) for _, count in places]
        return torch.tensor(places, device=device).repeat_interleave(torch.tensor(counts, device=device), dim=0)

    def rows(self, tensors: Sequence[Tensor | None], like: Float[Tensor, "slots *any"]) -> Float[Tensor, "slots size"]:
        """Rows from one tensor [slots, ...] per parameter, of the type of `like`; None stands for zeros."""
        columns, slots = [], len(like)
        for tensor, shape in zip(tensors, self.shapes.values(), strict=True):
            size = shape.numel()
            columns.append(like.new_zeros(slots, size) if tensor is None else tensor.reshape(slots, -1))
            if gap := -size % self.ALIGNMENT:
                columns.append(like.new_zeros(slots, gap))
        return torch.cat(columns, dim=1)

    def row(self, module: nn.Module) -> Float[Tensor, "size"]:
        """The trainable parameters of one module."""
        tensors = [p.detach()[None] for p in trainable(module).values()]
        return self.rows(tensors, tensors[0])[0]
