"""What the operators are measured against: a contender is one way to compute a case.

Ours with any backend; flash-linear-attention (`fla`), in its own layout [batch, time, heads, dim]; torch.nn's recurrent
networks (cuDNN on a GPU), one member after the other.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from assay import ops

Tensors = dict[str, Tensor]
Forward = Callable[[], tuple[Tensor, ...]]
NETWORKS = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
FLA = {"delta_rule": "delta_rule", "linear_attention": "linear_attn", "retention": "retention"}


def fla_decay(decay: Tensor) -> Tensor:
    """The decay that flash-linear-attention's retention has, which is fixed."""
    return (1 - 2.0 ** (-5 - torch.arange(decay.shape[-1], device=decay.device))).expand_as(decay)


FIXED = {"retention": {"decay": fla_decay}}  # inputs that a peer does not let us choose


def same(x: Tensor) -> Tensor:
    return x


def turned(x: Tensor) -> Tensor:
    """From [batch, heads, time, ...] to [batch, time, heads, ...], or back."""
    return x.transpose(1, 2).contiguous()


@dataclass(frozen=True)
class Contender:
    """`start` returns a forward pass and the tensors that it is differentiated by; `turn` converts between layouts."""

    name: str
    start: Callable[[Tensors], tuple[Forward, Tensors]]
    turn: Callable[[Tensor], Tensor] | None = same  # None: computes something else, which is not compared
    precision: str = "highest"  # of float32 products, as torch.set_float32_matmul_precision takes it


def leaves(inputs: Tensors, turn: Callable[[Tensor], Tensor] = same) -> Tensors:
    return {name: turn(x).detach().requires_grad_() for name, x in inputs.items()}


# -- ours ----------------------------------------------------------------------------------------------------------


def call(op: str, inputs: Tensors, backend: str) -> Tensor:
    result = getattr(ops, op)(*ops.OPERATORS[op].pack(inputs), backend=backend)
    return result if isinstance(result, Tensor) else result[0]


def ours(op: str, backend: str) -> Contender:
    def start(inputs: Tensors) -> tuple[Forward, Tensors]:
        parameters = leaves(inputs)
        return lambda: (call(op, parameters, backend),), parameters

    return Contender(backend, start)


def in_tf32(op: str) -> Contender:
    """The GPU's kernel with one pass of the matrix units per product instead of three, as fla's chunks do it."""
    return replace(ours(op, "gpu"), name="gpu tf32", precision="high")


def with_input(op: str, backend: str) -> Contender:
    """A recurrent network whose inputs are first multiplied by a weight, as torch.nn's are."""

    def start(inputs: Tensors) -> tuple[Forward, Tensors]:
        a, members, size = inputs["a"], len(inputs["R"]), inputs["R"].shape[-1]
        W = torch.randn(members, size, a.shape[-1], device=a.device) * size**-0.5
        x = torch.randn(members, a[..., 0].numel() // members, size, device=a.device)
        parameters = leaves({"x": x, "W": W, **{name: x for name, x in inputs.items() if name != "a"}})

        def forward() -> tuple[Tensor, ...]:
            x, W, *weights = parameters.values()
            return (getattr(ops, op)((x @ W).view_as(a), *weights, backend=backend)[0],)

        return forward, parameters

    return Contender(f"{backend}+input", start, None)


# -- theirs --------------------------------------------------------------------------------------------------------


def fla(op: str, dtype: torch.dtype) -> list[Contender]:
    """The forms of flash-linear-attention that take a dtype; none where it is not installed."""
    if importlib.util.find_spec("fla") is None or op not in (*FLA, "dplr"):
        return []
    if op == "dplr":
        return [_fla_dplr()]
    forms = ["fused_recurrent", "chunk"]
    if op == "delta_rule" and dtype == torch.float32:
        forms.remove("chunk")  # it refuses float32
    return [_fla(op, form) for form in forms]


def _fla(op: str, form: str) -> Contender:
    def start(inputs: Tensors) -> tuple[Forward, Tensors]:
        function = getattr(importlib.import_module(f"fla.ops.{FLA[op]}"), f"{form}_{FLA[op]}")
        options = {"normalize": False} if op == "linear_attention" else {}
        parameters = leaves({name: x for name, x in inputs.items() if name != "decay"}, turned)  # its decay is fixed
        return lambda: (function(*parameters.values(), scale=1.0, **options)[0],), parameters

    return Contender(f"fla {form.removeprefix('fused_')}", start, turned)


def _fla_dplr() -> Contender:
    """One write per token, and the decay as its logarithm; its other form has no gradient."""

    def start(inputs: Tensors) -> tuple[Forward, Tensors]:
        function = importlib.import_module("fla.ops.generalized_delta_rule").chunk_dplr_delta_rule
        by_name = {name: inputs[name].squeeze(3) for name in ("k", "v", "a", "b")}
        parameters = leaves({"q": inputs["q"], **by_name, "gk": inputs["w"].log()}, turned)
        return lambda: (function(*parameters.values(), scale=1.0)[0],), parameters

    return Contender("fla chunk", start, None)


def torch_nn(op: str) -> Contender:
    def start(inputs: Tensors) -> tuple[Forward, Tensors]:
        a, members, size = inputs["a"], len(inputs["R"]), inputs["R"].shape[-1]
        shape = a.shape[2], len(a) // members, size
        networks = [NETWORKS[op](size, size, bias=False, device=a.device) for _ in range(members)]
        sequences = [torch.randn(shape, device=a.device).requires_grad_() for _ in range(members)]
        weights = [weight for network in networks for weight in network.parameters()]
        parameters = {str(number): x for number, x in enumerate(sequences + weights)}
        return lambda: tuple(network(x)[0] for network, x in zip(networks, sequences, strict=True)), parameters

    return Contender("torch.nn", start, None)
