"""Some ops against the plain PyTorch references of flash-linear-attention.

Those work in float32 and scale the queries by 1/sqrt(dim). Their files are loaded by path: to import the package takes
a GPU compiler.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.ops import Backend

from .cases import installed

FLA = importlib.util.find_spec("fla")
pytestmark = pytest.mark.skipif(FLA is None, reason="flash-linear-attention is not installed")
in_torch = pytest.mark.parametrize("backend", ["reference", "chunked"])


def naive(op: str) -> ModuleType:
    assert FLA is not None
    assert FLA.submodule_search_locations
    path = Path(FLA.submodule_search_locations[0]) / "ops" / op / "naive.py"
    spec = importlib.util.spec_from_file_location(f"naive_{op}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(time: int, heads: int = 4, key: int = 8, value: int = 6) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, heads, time, size, generator=rng).requires_grad_() for size in (key, key, value))
    return q, k, v, torch.randn(2, heads, value, key, generator=rng).requires_grad_()


def alike(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> None:
    """Outputs and gradients agree to float32."""
    rng = torch.Generator().manual_seed(1)
    weights = [torch.randn(o.shape, generator=rng) for o in theirs]
    gradients = [torch.autograd.grad(side, inputs, weights, retain_graph=True) for side in (ours, theirs)]
    for a, b in zip((*ours, *gradients[0]), (*theirs, *gradients[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * max(1.0, float(b.detach().abs().max())))


@pytest.mark.parametrize("backend", ["reference", "chunked", pytest.param("cpu", marks=installed("cpu"))])
@pytest.mark.parametrize(("features", "top"), [("softmax", 1.0), ("unit", 2.0)])
def test_delta_rule(backend: Backend, features: str, top: float):
    q, k, v, W = draw(96)
    raw = torch.randn(2, 4, 96, generator=torch.Generator().manual_seed(2)).requires_grad_()
    key = k.softmax(-1) if features == "softmax" else F.normalize(k, dim=-1)
    beta = top * raw.sigmoid()
    theirs, S = naive("delta_rule").delta_rule_recurrence(q, key, v, beta, initial_state=W.mT)
    ours, final = ops.delta_rule(q * 8**-0.5, key, v, beta, W, backend=backend)
    alike((ours, final), (theirs, S.mT), (q, k, v, raw, W))


@in_torch
def test_retention(backend: Backend):
    q, k, v, _ = draw(96)
    decay = 1 - 2.0 ** (-5 - torch.arange(4.0))
    ours, _ = ops.retention(q * 8**-0.5, k, v, decay, backend=backend)
    alike((ours,), (naive("retention").naive_retention(q, k, v),), (q, k, v))


@in_torch
def test_linear_attention(backend: Backend):
    q, k, v, W = draw(96)
    theirs, S = naive("linear_attn").naive_recurrent_linear_attn(
        *(x.transpose(1, 2) for x in (q, k, v)), initial_state=W.mT, output_final_state=True
    )
    ours, final = ops.linear_attention(q * 8**-0.5, k, v, W, backend=backend)
    alike((ours, final), (theirs.transpose(1, 2), S.mT), (q, k, v, W))


# -- models as special cases of dplr: their transitions, and fla's functions ---------------------------------------

Tensors = dict[str, Tensor]
SCALE = 8**-0.5  # of fla's queries


def by_token(x: Tensor) -> Tensor:
    """From [batch, heads, time, ...] to [batch, time, heads, ...]."""
    return x.transpose(1, 2)


def recurrence(x: Tensors) -> tuple[Tensors, Tensor]:
    """Transitions are diagonal plus low rank, and read the state before the decay."""
    transition = {"k": x["k"], "v": x["v"], "w": x["w"], "a": x["a"], "b": x["b"]}
    inputs = x["q"], x["k"], x["v"], x["a"], x["b"], x["w"].log()
    return transition, naive("generalized_delta_rule/dplr").dplr_recurrence(*inputs, initial_state=x["S"])[0]


def gated_delta_rule(x: Tensors) -> tuple[Tensors, Tensor]:
    w, beta = x["w"][..., :1], x["beta"][..., None]
    transition = {"k": x["k"], "v": beta * x["v"], "w": w, "a": -beta * w * x["k"], "b": x["k"]}
    inputs = *(by_token(x[name]) for name in ("q", "k", "v", "beta")), by_token(w[..., 0].log())
    theirs = naive("gated_delta_rule").naive_recurrent_gated_delta_rule(*inputs, initial_state=x["S"])
    return transition, by_token(theirs[0])


def kda(x: Tensors) -> tuple[Tensors, Tensor]:
    w, beta = x["w"], x["beta"][..., None]
    transition = {"k": x["k"], "v": beta * x["v"], "w": w, "a": -beta * w * x["k"], "b": x["k"]}
    inputs = *(by_token(x[name]) for name in ("q", "k", "v")), by_token(w.log()), by_token(x["beta"])
    return transition, by_token(naive("kda").naive_recurrent_kda(*inputs, initial_state=x["S"])[0])


def gdn2(x: Tensors) -> tuple[Tensors, Tensor]:
    w, erase, write = x["w"], x["a"].sigmoid(), x["v"].sin().abs()
    transition = {"k": x["k"], "v": write * x["v"], "w": w, "a": -erase * w * x["k"], "b": x["k"]}
    inputs = (by_token(y) for y in (x["q"], x["k"], x["v"], w.log(), erase, write))
    return transition, by_token(naive("gdn2").naive_recurrent_gdn2(*inputs, initial_state=x["S"])[0])


def gla(x: Tensors) -> tuple[Tensors, Tensor]:
    inputs = (by_token(y) for y in (x["q"], x["k"], x["v"], x["w"].log()))
    theirs = naive("gla").naive_recurrent_gla(*inputs, initial_state=x["S"])
    return {"k": x["k"], "v": x["v"], "w": x["w"]}, by_token(theirs[0])


def mamba_2(x: Tensors) -> tuple[Tensors, Tensor]:
    w = x["w"][..., :1]
    inputs = *(by_token(x[name]) for name in ("q", "k", "v")), by_token(w[..., 0].log())
    theirs = naive("simple_gla").naive_recurrent_simple_gla(*inputs, initial_state=x["S"])
    return {"k": x["k"], "v": x["v"], "w": w}, by_token(theirs[0])


def gated_delta_product(x: Tensors) -> tuple[Tensors, Tensor]:
    """Two writes per token; the first of them decays."""
    k, v, beta = (torch.stack([x[name], x[name].flip(2)], dim=3) for name in ("k", "v", "beta"))
    w, factor = x["w"][..., :1], torch.stack([x["w"][..., 0], torch.ones_like(x["beta"])], dim=3)
    transition = {"k": k, "v": beta[..., None] * v, "w": w, "a": -(beta * factor)[..., None] * k, "b": k}
    writes = [by_token(y.flatten(2, 3)) for y in (k, v, beta)]
    inputs = by_token(x["q"]), writes[0], writes[1], by_token(w[..., 0].log()), writes[2], SCALE
    function = naive("gated_delta_product").naive_recurrent_gated_delta_product
    return transition, by_token(function(*inputs, initial_state=x["S"], num_householder=2)[0])


MODELS = [recurrence, gated_delta_rule, kda, gdn2, gla, mamba_2, gated_delta_product]


@pytest.mark.parametrize("backend", ["reference", "chunked", pytest.param("cpu", marks=installed("cpu"))])
@pytest.mark.parametrize("model", MODELS)
def test_dplr(model: Callable[[Tensors], tuple[Tensors, Tensor]], backend: Backend):
    q, k, v, S = draw(24)
    rng = torch.Generator().manual_seed(2)
    raw = {name: torch.randn(2, 4, 24, 8, generator=rng).requires_grad_() for name in ("w", "a", "b")}
    x = {"q": q, "k": F.normalize(k, dim=-1), "v": v, "S": S.mT.contiguous(), "w": (raw["w"] + 1).sigmoid()}
    x |= {"a": raw["a"] / 4, "b": F.normalize(raw["b"], dim=-1), "beta": 2 * raw["b"][..., 0].sigmoid()}
    transition, theirs = model(x)
    w = transition.pop("w")
    writes = {name: y[:, :, :, None] if y.ndim == 4 else y for name, y in transition.items()}
    ours, _ = ops.dplr(q * SCALE, w=w, S=x["S"], backend=backend, **writes)
    alike((ours,), (theirs,), (q, k, v, raw["w"]))
