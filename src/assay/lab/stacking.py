"""Modules of one architecture, stacked: what of them is learned, as rows of numbers, and one call for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from assay.description import BadInput, in_one_line
from assay.lab.data import blank
from assay.lab.evaluate import logits_of
from assay.models.skeleton import Foreign
from assay.rng import Rng
from assay.spec import RunSpec


def built(spec: RunSpec, device: torch.device, dtype: torch.dtype | None = None, seed: int | None = None) -> nn.Module:
    """The module of a run at its beginning; its real numbers of one type, or as it has them."""
    made = spec.model.build(*spec.task.shape, Rng.seeded(spec.seed if seed is None else seed, "initial"))
    made._apply(lambda x: x.to(device, dtype if x.is_floating_point() else None))
    return made


def learned(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def fixed(module: nn.Module) -> dict[str, Tensor]:
    """What a member has of its own and does not learn: buffers, and parameters that need no gradient."""
    frozen = {name: p.detach() for name, p in module.named_parameters() if not p.requires_grad}
    return frozen | dict(module.named_buffers())


def member_logits(
    template: nn.Module, params: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor
) -> Float[Tensor, "slots rows time answers"]:
    """Each slot's logits for its own inputs: a module with stacked parameters, mapped over the slots."""

    def one(params: dict[str, Tensor], buffers: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return logits_of(lambda x: functional_call(template, (params, buffers), (x,)), inputs)

    with _with_rules_for_vmap():
        made: Tensor = vmap(one)(params, buffers, inputs)
    return made


@contextmanager
def _with_rules_for_vmap() -> Iterator[None]:
    """Attention of torch's own by its plain form: its fused ones have no such rules."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def unmappable(like: RunSpec, device: torch.device) -> str:
    """Why a module of somebody's own cannot be mapped over slots; empty where it can. Ours all can."""
    if not isinstance(like.model, Foreign):
        return ""
    template, other = (built(like, device, seed=seed) for seed in (0, 1))
    inputs = blank(like.task, 2, 2, 3, device=device)
    functorch: Any = torch._C._functorch
    loops = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)  # an operation without a rule would be a silent loop
    try:
        params, own = (
            {name: torch.stack([x.detach().clone()] * 2) for name, x in named.items()}
            for named in (learned(template), fixed(template))
        )
        trained = [p.requires_grad_() for p in params.values()]
        logits = member_logits(template, params, own, inputs)
        torch.autograd.grad(logits.sum(), trained, allow_unused=True)
        with torch.no_grad():
            said, again = (member_logits(module.eval(), params, own, inputs) for module in (template, other))
    except Exception as error:
        return in_one_line(error)
    finally:
        functorch._set_vmap_fallback_enabled(loops)
    if not torch.equal(said, again):
        return "it has numbers that depend on its seed and are neither parameters nor buffers"
    return _replaced(template.train(), inputs[0])


def _replaced(module: nn.Module, inputs: Tensor) -> str:
    """Which buffer a call puts another tensor in place of: stacked, that would be lost."""
    before = dict(module.named_buffers())
    with torch.no_grad(), suppress(Exception):  # what is wrong with it otherwise will be seen
        module(inputs)
    changed = [name for name, buffer in module.named_buffers() if buffer is not before[name]]
    return f"it replaces its buffer '{changed[0]}' instead of writing to it" if changed else ""


class Layout:
    """Where every learned parameter of a module stands in one row of numbers."""

    ALIGNED = 16  # each begins at a multiple: no slot's memory lies differently from another's

    def __init__(self, module: nn.Module) -> None:
        self.shapes = {name: p.shape for name, p in learned(module).items()}
        if any(p.is_complex() for p in learned(module).values()):
            raise BadInput("complex parameters are not trained; hold them as real ones (torch.view_as_real)")
        self.starts, self.size = {}, 0
        for name, shape in self.shapes.items():
            self.starts[name] = self.size
            self.size += -(-shape.numel() // self.ALIGNED) * self.ALIGNED

    def views(self, rows: Float[Tensor, "slots size"]) -> dict[str, Tensor]:
        """The parameters in rows of them, sharing memory."""
        return {
            name: rows[:, start : start + self.shapes[name].numel()].unflatten(1, self.shapes[name])
            if self.shapes[name]
            else rows[:, start]
            for name, start in self.starts.items()
        }

    def rows(self, parts: Sequence[Tensor | None], like: Float[Tensor, "slots size"]) -> Float[Tensor, "slots size"]:
        """Rows made of one tensor [slots, ...] per parameter, zero where there is None."""
        made = []
        for part, shape in zip(parts, self.shapes.values(), strict=True):
            made.append(like.new_zeros(len(like), shape.numel()) if part is None else part.reshape(len(like), -1))
            if gap := -shape.numel() % self.ALIGNED:
                made.append(like.new_zeros(len(like), gap))
        return torch.cat(made, dim=1)
