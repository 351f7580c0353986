"""Three ops against the plain PyTorch references of flash-linear-attention.

Those work in float32 and scale the queries by 1/sqrt(dim). Their files are loaded by path: to import the package takes
a GPU compiler.
"""

from __future__ import annotations

import importlib.util
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
