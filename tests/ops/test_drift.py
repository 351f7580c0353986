"""The GPU's backward pass undoes the updates of a fast weight: it gets back the state that was, or it notices."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from .cases import CASES, Case, Parts, flat, installed, loss

UNDOING = ["recurrent_delta", "srwm", "srwm-after"]
pytestmark = [
    *installed("gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of the interpreter, in masked entries
    pytest.mark.parametrize("case", [CASES[name] for name in UNDOING], ids=UNDOING),
]


def errors(case: Case, parts: Parts, backend: str, until: int) -> list[float]:
    """Relative errors in float32: of the outputs before a moment, and of their gradients."""

    def gradients(dtype: torch.dtype, backend: str) -> list[Tensor]:
        leaves = [[x.to(dtype).requires_grad_() for x in part] for part in parts]
        early = case.run(leaves, backend)[0][:, :, :until]
        return [early.detach(), *torch.autograd.grad(loss([early]), flat(leaves))]

    pairs = zip(gradients(torch.float32, backend), gradients(torch.float64, "reference"), strict=True)
    return [((a - b).norm() / b.norm()).item() for a, b in pairs]


def swelling(case: Case) -> Parts:
    """Five ordinary steps, then one that brings 1e7 into the state: next to that, the state before is rounding."""
    x, w, s = case.draw(6, batch=1, H=1, K=5, V=5, D=5)
    if case.name == "recurrent_delta":
        x[2][:, :, 5] *= 1e7
        return x, w, s
    # Row 3 of W_y is large. No step reads it until x_5 = e_3, which copies it into the others.
    x[0][..., 3], x[0][..., 4] = 0, 1
    x[0][:, :, 5] = torch.tensor([0.0, 0, 0, 1, 0])
    for W in w[1:3]:
        W[..., 4, 3] = -60
    w[0][..., 3, :], w[1][..., 3, 3], w[2][..., 3, 3] = 1e7, 60, -60
    return x, w, s


def test_a_state_that_subtraction_cannot_recover_is_added_up_again(case: Case, monkeypatch: pytest.MonkeyPatch):
    parts = swelling(case)
    assert max(errors(case, parts, "gpu", 5)) < 1e-5
    monkeypatch.setattr(importlib.import_module(f"assay.ops.gpu.{case.name}"), "tolerance", lambda x: torch.inf)
    assert max(errors(case, parts, "gpu", 5)) > 1e-3


def test_segments_meet(case: Case, monkeypatch: pytest.MonkeyPatch):
    """Several segments, each walked twice, give the same gradients as one."""
    kernel = importlib.import_module(f"assay.ops.gpu.{case.name}")
    monkeypatch.setattr(kernel, "tolerance", lambda x: -1.0)
    for name in (case.name, f"{case.name}_lanes", "segments"):
        monkeypatch.setattr(importlib.import_module(f"assay.ops.gpu.{name}"), "SEGMENT", 8)
    parts = case.draw(2 * 8 + 3, batch=1, H=1)
    for got, wanted in zip(case.gradients(parts, "gpu"), case.gradients(parts), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the interpreter would take minutes")
def test_no_drift_over_4096_steps(case: Case):
    assert max(errors(case, case.draw(4096, batch=2, H=2, K=16, V=16, D=16), "gpu", 4096)) < 1e-5
