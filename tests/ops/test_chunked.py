"""The parallel forms equal the folds: outputs, final states and gradients, at lengths around the chunk's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay import ops

from .cases import CASES, Case, inside

PARALLEL = {name: case for name, case in CASES.items() if case.op in ops.PARALLEL} | {
    "diagonal_scan-one-a": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(inside(w[0][:, :, None]), x[0], *s, **kw),
        ("D N",),
        ("D N",),
        ("D N",),
    ),
    "diagonal_scan-one-complex-a": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(inside(w[0][:, :1, None, :1]), x[0], *s, **kw),
        ("D N",),
        ("D N",),
        ("D N",),
        dtype=torch.complex128,
    ),
}
every_parallel = pytest.mark.parametrize("case", PARALLEL.values(), ids=PARALLEL.keys())


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


@every_parallel
@pytest.mark.parametrize("time", [1, 2, 7, 63, 64, 65, 100, 257])
@pytest.mark.parametrize("given", [False, True], ids=["from-zero", "from-state"])
def test_equals_the_fold(case: Case, time: int, given: bool):
    x, w, s = case.draw(time)
    parts = x, w, s if given else []
    for chunked, folded in zip(case.gradients(*parts, "chunked"), case.gradients(*parts), strict=True):
        close(chunked, folded)


def test_a_real_input_of_a_complex_scan():
    (a, _), _, _ = PARALLEL["diagonal_scan-complex"].draw(70)
    (_, b), _, _ = PARALLEL["diagonal_scan"].draw(70)
    got, final = ops.diagonal_scan(a, b, backend="chunked")
    wanted, last = ops.diagonal_scan(a, b, backend="reference")
    close(got, wanted)
    close(final, last)
