"""The parallel forms equal the reference: outputs, final states and gradients, at lengths around the chunk's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay import ops

from .cases import CASES, Case, loss, with_backends


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@with_backends("chunked")
@pytest.mark.parametrize("time", [1, 64, 65, 130])
def test_equals_the_reference(case: Case, backend: str, time: int):
    parts = case.draw(time)
    for chunked, folded in zip(case.gradients(parts, backend), case.gradients(parts), strict=True):
        close(chunked, folded)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(2, 3, 1, 2, 4), (1, 3, 1, 1, 4), (4,), ()], ids=str)
def test_a_scan_with_one_factor_for_all_moments_and_several_dims(dtype: torch.dtype, shape: tuple[int, ...]):
    rng = torch.Generator().manual_seed(0)
    a = torch.randn(shape, generator=rng, dtype=dtype)
    b, h = (torch.randn(2, 3, *time, 2, 4, generator=rng, dtype=dtype) for time in ((70,), ()))
    backends: list[ops.Backend] = ["chunked", "reference", "auto"]
    results = []
    for backend in backends:
        leaves = [x.clone().requires_grad_() for x in (a, b, h)]
        factor = leaves[0] / (1 + leaves[0].abs())
        outputs = ops.diagonal_scan(factor, leaves[1], leaves[2], backend=backend)
        results.append((*outputs, *torch.autograd.grad(loss(outputs), leaves)))
    for chunked, reference, auto in zip(*results, strict=True):
        close(chunked, reference)
        close(auto, reference)


def test_a_real_input_of_a_complex_scan():
    (a, _), _, _ = CASES["diagonal_scan-complex"].draw(70)
    (_, b), _, _ = CASES["diagonal_scan"].draw(70)
    got, final = ops.diagonal_scan(a, b, backend="chunked")
    wanted, last = ops.diagonal_scan(a, b, backend="reference")
    close(got, wanted)
    close(final, last)
