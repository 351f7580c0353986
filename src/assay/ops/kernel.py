"""The kernels as PyTorch operators (assay::delta_rule_cpu, assay::delta_rule_gpu and so on), from the definitions.

A kernel is a module `assay.ops.<backend>.<operator>`, imported when it first runs, with three functions:
`outputs(*inputs)` allocates what the forward pass returns (the operator's outputs, then the tensors it saves),
`forward(outputs, *inputs)` fills it, and `backward(outputs, grads, *inputs)` returns the gradient of every input; the
gradient of a final state is None where the loss does not use it. Each gets contiguous tensors, and the flags by name.
Inputs that hold integers have no gradient, and `backward` returns none for them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import custom_op

from assay.errors import BadInput
from assay.ops.operator import Flag, Operator, Tensors

# By the name of a PyTorch operator: allocates what a call returns, without computing it.
BLANK_OUTPUTS: dict[str, Callable[..., Any]] = {}


class Kernel:
    """One operator on one backend: the PyTorch operator, its gradient and its vmap rule."""

    def __init__(self, operator: Operator, backend: str) -> None:
        self.operator, self.backend = operator, backend
        name = f"assay::{operator.name}_{backend}"
        tensors = ", ".join(f"Tensor {name}" for name in operator.inputs)
        flags = "".join(f", {type(default).__name__} {flag}" for flag, default in operator.flags.items())
        results = ", ".join(["Tensor"] * (len(operator.outputs) + operator.kernels[backend]))
        self.op = custom_op(name, self._forward, mutates_args=(), schema=f"({tensors}{flags}) -> ({results})")
        self.op.register_fake(self._fake)
        BLANK_OUTPUTS[self.op._opoverload._opname] = self._fake
        self.op.register_autograd(self._gradient, setup_context=self._save)
        self.op.register_vmap(self._vmap)

        schema = f"(Tensor[] outputs, Tensor?[] grads, Tensor[] inputs{flags}) -> Tensor[]"
        self.backward = custom_op(f"{name}_backward", self._separate_gradients, mutates_args=(), schema=schema)
        self.backward.register_fake(self._fake_gradients)
        BLANK_OUTPUTS[self.backward._opoverload._opname] = self._fake_gradients
        self.backward.register_autograd(self._refuse_second)
        self.backward.register_vmap(self._refuse_batched)
        for op, function in ((self.op, self._forward), (self.backward, self._separate_gradients)):
            _import_no_compiler(op, function)

    def __call__(self, inputs: dict[str, Tensor], **flags: Flag) -> Tensors:
        """The operator's outputs."""
        arguments = *(x.contiguous() for x in inputs.values()), *(flags[flag] for flag in self.operator.flags)
        if _only_autograd():
            return _Direct.apply(self, *arguments)  # type: ignore[no-any-return, no-untyped-call]
        if not torch.compiler.is_compiling():  # compiled code is refused in _fake
            self._refuse_transforms(inputs)
        return _as_tuple(self.op(*arguments))[: len(self.operator.outputs)]

    # -- called by PyTorch ---------------------------------------------------------------------------------------------

    @cached_property
    def _module(self) -> ModuleType:
        return importlib.import_module(f"assay.ops.{self.backend}.{self.operator.name}")

    def _split(self, arguments: Sequence[Any]) -> tuple[Tensors, dict[str, Flag]]:
        """The inputs, and the flags by name."""
        count = len(self.operator.inputs)
        return tuple(arguments[:count]), dict(zip(self.operator.flags, arguments[count:], strict=True))

    def _floats(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The inputs that have a gradient."""
        integers = self.operator.integers
        return [x for name, x in zip(self.operator.inputs, inputs, strict=True) if name not in integers]

    def _fake(self, *arguments: Any) -> Tensors | Tensor:
        if forward_ad._current_level >= 0:
            self._refuse_derivatives()
        inputs, flags = self._split([_contiguous(x) for x in arguments])
        outputs: Tensors = self._module.outputs(*inputs, **flags)
        return outputs if len(outputs) > 1 else outputs[0]

    def _fake_gradients(self, outputs: Any, grads: Any, inputs: Sequence[Tensor], *flags: Flag) -> list[Tensor]:
        return [x.new_empty(x.shape) for x in self._floats(inputs)]

    def _forward(self, *arguments: Any) -> Tensors | Tensor:
        inputs, flags = self._split([_contiguous(x) for x in arguments])
        outputs: Tensors = self._module.outputs(*inputs, **flags)
        if len(inputs[0]):
            self._module.forward(outputs, *inputs, **flags)
        return outputs if len(outputs) > 1 else outputs[0]

    def _backward(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor | None], inputs: Sequence[Tensor], *flags: Flag
    ) -> Sequence[Tensor]:
        if not len(inputs[0]):
            return [torch.zeros_like(x) for x in self._floats(inputs)]
        by_name = dict(zip(self.operator.flags, flags, strict=True))
        contiguous = [grad if grad is None else grad.contiguous() for grad in grads]
        return self._module.backward(outputs, contiguous, *inputs, **by_name)  # type: ignore[no-any-return]

    def _separate_gradients(
        self, outputs: Sequence[Tensor], grads: Sequence[Tensor | None], inputs: Sequence[Tensor], *flags: Flag
    ) -> list[Tensor]:
        """Gradients in memory of their own: an operator may not return parts of one tensor."""
        outputs, inputs = ([x.contiguous() for x in tensors] for tensors in (outputs, inputs))
        gradients = [grad.contiguous() for grad in self._backward(outputs, grads, inputs, *flags)]
        repeated = [any(grad is other for other in gradients[:i]) for i, grad in enumerate(gradients)]
        return [grad.clone() if again else _separate(grad) for grad, again in zip(gradients, repeated, strict=True)]

    def _save(self, ctx: Any, inputs: Sequence[Any], output: Tensors | Tensor) -> None:
        tensors, flags = self._split(inputs)
        ctx.set_materialize_grads(False)  # saved tensors have no gradient; zeros for them would be a waste
        ctx.flags = tuple(flags.values())
        ctx.save_for_backward(*_as_tuple(output), *tensors)

    def _gradient(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if any(grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad) for grad in grads):
            self._refuse_batched(None, None)  # is_grads_batched has a vmap of its own
        saved, count = list(ctx.saved_tensors), len(self.operator.inputs)
        outputs, inputs = saved[:-count], saved[-count:]
        output_grad, *state_grads = grads[: len(self.operator.outputs)]
        known = [torch.zeros_like(outputs[0]) if output_grad is None else output_grad, *state_grads]
        run = self._backward if _only_autograd() and not torch.is_grad_enabled() else self.backward
        gradients = iter(run(outputs, known, inputs, *ctx.flags))
        by_input = (None if name in self.operator.integers else next(gradients) for name in self.operator.inputs)
        return *by_input, *(None for _ in ctx.flags)

    def _vmap(self, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """Fold the mapped axis into the batch; and into the groups, unless all members share one group's weights."""
        members = info.batch_size
        tensors, flags = self._split(arguments)
        inputs = dict(zip(self.operator.inputs, tensors, strict=True))
        dims = dict(zip(self.operator.inputs, in_dims, strict=False))
        shared = all(dims[name] is None and len(inputs[name]) == 1 for name in self.operator.weights)
        folded = [
            x if shared and name in self.operator.weights else _fold(x, dims[name], members)
            for name, x in inputs.items()
        ]
        results = _as_tuple(self.op(*folded, *flags.values()))
        count = len(self.operator.outputs)
        outputs = *(x.unflatten(0, (members, -1)) for x in results[:count]), *results[count:]
        out_dims = *(0 for _ in results[:count]), *(None for _ in results[count:])
        return (outputs, out_dims) if len(outputs) > 1 else (outputs[0], 0)

    # -- refused with a message of one line ----------------------------------------------------------------------------

    def _refuse_transforms(self, inputs: dict[str, Tensor]) -> None:
        """torch.func.grad would fail obscurely, and forward-mode derivatives would silently be zero."""
        if any(_transformed(x) for x in inputs.values()):
            self._refuse_derivatives()

    def _refuse_derivatives(self) -> None:
        raise BadInput(
            f"{self.operator.name}: torch.func's grad, vjp, jvp and forward-mode derivatives do not pass through the "
            f"{self.backend} kernel; use .backward() or torch.autograd.grad, or backend='reference'"
        )

    def _refuse_second(self, ctx: Any, *grads: Any) -> Any:
        raise BadInput(
            f"{self.operator.name}: the {self.backend} kernel has no second derivative; use backend='reference'"
        )

    def _refuse_batched(self, info: Any, in_dims: Any, *arguments: Any) -> Any:
        raise BadInput(
            f"{self.operator.name}: the backward pass of the {self.backend} kernel runs outside of vmap; "
            "map the forward pass and call .backward() on the sum, or use backend='reference'"
        )


class _Direct(torch.autograd.Function):
    """The operator without PyTorch's dispatcher, which takes longer than a small kernel; for plain tensors."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, *arguments: Any) -> Tensors:
        results = kernel._forward(*arguments)
        ctx.kernel = kernel
        kernel._save(ctx, arguments, results)
        return _as_tuple(results)[: len(kernel.operator.outputs)]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return None, *ctx.kernel._gradient(ctx, *grads)


def _import_no_compiler(op: Any, function: Callable[..., Any]) -> None:
    """Call a function without PyTorch's wrapper, which imports torch.compile (for seconds) to disable it in there.

    Where torch.compile has not been imported, there is nothing to disable.
    """
    functions = op._backend_fns
    wrapped = functions[None]

    def run(*arguments: Any) -> Any:
        return wrapped(*arguments) if "torch._dynamo" in sys.modules else function(*arguments)

    functions[None] = run


def _only_autograd() -> bool:
    """Whether nothing but autograd watches: no vmap, no tracing, no mode, no forward derivatives."""
    return (
        not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._len_torch_dispatch_stack() == 0
        and forward_ad._current_level < 0
    )


def _as_tuple(results: Any) -> Tensors:
    """PyTorch returns a tensor where an operator has one result."""
    return tuple(results) if isinstance(results, tuple | list) else (results,)


def _contiguous(x: Any) -> Any:
    return x.contiguous() if isinstance(x, Tensor) else x


def _separate(grad: Tensor) -> Tensor:
    """The same gradient, copied if it is a part of a larger tensor."""
    alone = grad.is_contiguous() and grad.untyped_storage().nbytes() == grad.numel() * grad.element_size()
    return grad if alone else grad.clone(memory_format=torch.contiguous_format)


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
