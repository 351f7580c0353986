"""The kernels as PyTorch operators: assay::delta_rule_cpu, assay::delta_rule_gpu and so on, from the table of rules.

A kernel is a module `assay.ops.<backend>.<rule>`, imported when it first runs, with three functions:
`outputs(*inputs)` allocates what the forward pass returns (the rule's outputs, then what the backward pass needs),
`forward(outputs, *inputs)` fills it, and `backward(outputs, grads, *inputs)` returns the gradient of every input; a
state's gradient is None where nothing asks for it. Each gets contiguous tensors, and the rule's flags by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import custom_op

from assay.description import BadInput
from assay.ops.rules import RULES, Rule

Tensors = tuple[Tensor, ...]


class Fused:
    """One rule on one backend: the operator, its gradient and its rule for vmap."""

    def __init__(self, rule: Rule, backend: str) -> None:
        self.rule, self.backend = rule, backend
        name = f"assay::{rule.name}_{backend}"
        count = len(rule.outputs) + rule.saved[backend]
        inputs = [f"Tensor {name}" for name in rule.inputs] + [f"bool {flag}" for flag in rule.flags]
        schema = f"({', '.join(inputs)}) -> ({', '.join(['Tensor'] * count)})"
        self.op = custom_op(name, self._forward, mutates_args=(), schema=schema)
        self.op.register_fake(self._fake)
        self.op.register_autograd(self._gradient, setup_context=self._keep)
        self.op.register_vmap(self._vmap)

        flags = "".join(f", bool {flag}" for flag in rule.flags)
        schema = f"(Tensor[] outputs, Tensor?[] grads, Tensor[] inputs{flags}) -> Tensor[]"
        self.backward = custom_op(f"{name}_backward", self._owned, mutates_args=(), schema=schema)
        self.backward.register_fake(lambda outputs, grads, inputs, *flags: [x.new_empty(x.shape) for x in inputs])
        self.backward.register_autograd(self._refuse_second)
        self.backward.register_vmap(self._refuse_batched)

    def __call__(self, given: dict[str, Tensor], **flags: bool) -> Tensors:
        """The rule's outputs."""
        arguments = *(x.contiguous() for x in given.values()), *(flags[f] for f in self.rule.flags)
        if _plain():
            return _Direct.apply(self, *arguments)  # type: ignore[no-any-return, no-untyped-call]
        if not torch.compiler.is_compiling():  # what is compiled goes through _fake
            self._refuse_transforms(given)
        made = self.op(*arguments)
        return tuple(made[: len(self.rule.outputs)]) if isinstance(made, tuple | list) else (made,)

    # -- what PyTorch calls --------------------------------------------------------------------------------------------

    @cached_property
    def _kernel(self) -> ModuleType:
        return importlib.import_module(f"assay.ops.{self.backend}.{self.rule.name}")

    def _split(self, arguments: Sequence[Any]) -> tuple[Tensors, dict[str, bool]]:
        count = len(self.rule.inputs)
        return tuple(arguments[:count]), dict(zip(self.rule.flags, arguments[count:], strict=True))

    def _fake(self, *arguments: Any) -> Tensors | Tensor:
        if forward_ad._current_level >= 0:
            self._refuse_derivatives()
        inputs, flags = self._split([_contiguous(x) for x in arguments])
        made: Tensors = self._kernel.outputs(*inputs, **flags)
        return made if len(made) > 1 else made[0]

    def _forward(self, *arguments: Any) -> Tensors | Tensor:
        inputs, flags = self._split([_contiguous(x) for x in arguments])
        made: Tensors = self._kernel.outputs(*inputs, **flags)
        if len(inputs[0]):
            self._kernel.forward(made, *inputs, **flags)
        return made if len(made) > 1 else made[0]

    def _backward(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor | None], inputs: Sequence[Tensor], *flags: bool
    ) -> Sequence[Tensor]:
        if not len(inputs[0]):
            return [torch.zeros_like(x) for x in inputs]
        by_name = dict(zip(self.rule.flags, flags, strict=True))
        arriving = [x if x is None else x.contiguous() for x in grads]
        return self._kernel.backward(outputs, arriving, *inputs, **by_name)  # type: ignore[no-any-return]

    def _owned(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor | None], inputs: Sequence[Tensor], *flags: bool
    ) -> list[Tensor]:
        """Gradients in memory of their own: an operator may not return parts of one tensor."""
        whole = ([x.contiguous() for x in some] for some in (outputs, inputs))
        made_of, given = whole
        return [_own(grad.contiguous()) for grad in self._backward(made_of, grads, given, *flags)]

    def _keep(self, ctx: Any, inputs: Sequence[Any], output: Tensors | Tensor) -> None:
        tensors, flags = self._split(inputs)
        outputs = output if isinstance(output, tuple | list) else (output,)
        ctx.set_materialize_grads(False)  # what was only saved has no gradient; zeros for it would be a waste
        ctx.flags = tuple(flags.values())
        ctx.save_for_backward(*outputs, *tensors)

    def _gradient(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if any(grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad) for grad in grads):
            self._refuse_batched(None, None)  # is_grads_batched has a vmap of its own
        kept = list(ctx.saved_tensors)
        outputs, inputs = kept[: -len(self.rule.inputs)], kept[-len(self.rule.inputs) :]
        of_output, *of_states = grads[: len(self.rule.outputs)]
        arriving = [torch.zeros_like(outputs[0]) if of_output is None else of_output, *of_states]
        run = self._backward if _plain() and not torch.is_grad_enabled() else self.backward
        return *run(outputs, arriving, inputs, *ctx.flags), *(None for _ in ctx.flags)

    def _vmap(self, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """Fold the mapped axis into the batch; and into the groups, unless one group's weight serves all."""
        members = info.batch_size
        inputs, flags = self._split(arguments)
        dims = dict(zip(self.rule.inputs, in_dims, strict=False))
        given = dict(zip(self.rule.inputs, inputs, strict=True))
        one_for_all = all(dims[name] is None and len(given[name]) == 1 for name in self.rule.weights)
        folded = [
            x if one_for_all and name in self.rule.weights else _fold(x, dims[name], members)
            for name, x in given.items()
        ]
        made = self.op(*folded, *flags.values())
        made = made if isinstance(made, tuple | list) else (made,)
        count = len(self.rule.outputs)
        outputs = *(o.unflatten(0, (members, -1)) for o in made[:count]), *made[count:]
        out_dims = *(0 for _ in made[:count]), *(None for _ in made[count:])
        return (outputs, out_dims) if len(outputs) > 1 else (outputs[0], 0)

    # -- what is refused, in one line ----------------------------------------------------------------------------------

    def _refuse_transforms(self, given: dict[str, Tensor]) -> None:
        """torch.func.grad would fail obscurely, and forward-mode derivatives would silently be zero."""
        if any(_transformed(x) for x in given.values()):
            self._refuse_derivatives()

    def _refuse_derivatives(self) -> None:
        raise BadInput(
            f"{self.rule.name}: torch.func's grad, vjp, jvp and forward-mode derivatives do not pass through the "
            f"{self.backend} kernel; use .backward() or torch.autograd.grad, or backend='reference'"
        )

    def _refuse_second(self, ctx: Any, *grads: Any) -> Any:
        raise BadInput(f"{self.rule.name}: the {self.backend} kernel has no second derivative; use backend='reference'")

    def _refuse_batched(self, info: Any, in_dims: Any, *arguments: Any) -> Any:
        raise BadInput(
            f"{self.rule.name}: the backward pass of the {self.backend} kernel runs outside of vmap; "
            "map the forward pass and call .backward() on the sum, or use backend='reference'"
        )


class _Direct(torch.autograd.Function):
    """The operator without PyTorch's dispatcher, which takes longer than a small kernel; for plain tensors."""

    @staticmethod
    def forward(ctx: Any, fused: Fused, *arguments: Any) -> Tensors:
        made = fused._forward(*arguments)
        ctx.fused = fused
        fused._keep(ctx, arguments, made)
        return made[: len(fused.rule.outputs)] if isinstance(made, tuple) else (made,)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return None, *ctx.fused._gradient(ctx, *grads)


def _plain() -> bool:
    """Whether nothing watches but autograd: no vmap, no tracing, no mode, no forward derivatives."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
    )


def _contiguous(x: Any) -> Any:
    return x.contiguous() if isinstance(x, Tensor) else x


def _own(grad: Tensor) -> Tensor:
    whole = grad.is_contiguous() and grad.untyped_storage().nbytes() == grad.numel() * grad.element_size()
    return grad if whole else grad.clone(memory_format=torch.contiguous_format)


def _fold(x: Tensor, dim: int | None, members: int) -> Tensor:
    mapped = x.expand(members, *x.shape) if dim is None else x.movedim(dim, 0)
    return mapped.reshape(members * mapped.shape[1], *mapped.shape[2:]).contiguous()


def _transformed(x: Tensor) -> bool:
    """Whether torch.func.grad or jvp, or a forward-mode derivative, watches a tensor."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_gradtrackingtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None


FUSED: dict[tuple[str, str], Callable[..., Tensors]] = {
    (rule.name, backend): Fused(rule, backend) for rule in RULES.values() for backend in rule.saved
}
