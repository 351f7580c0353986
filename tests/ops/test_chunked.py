"""The parallel forms equal the folds: outputs, final states and gradients, at lengths around the chunk's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay import ops
from assay.description import BadInput

from .cases import CASES, Case, D, K, N, V

WRITE = ((K,), (K,), (V,), ())


def _shrunk(a: Tensor) -> Tensor:
    """Inside the unit circle, so that long products stay bounded."""
    return a / (1 + a.abs())


PARALLEL = {
    "linear_attention": CASES["linear_attention"],
    "retention": Case(
        "retention",
        lambda x, w, s, **kw: ops.retention(*x, w[0][0].sigmoid(), *s, **kw),
        ((K,), (K,), (V,)),
        ((),),
        ((V, K),),
    ),
    "delta_rule-softmax": Case(
        "delta_rule",
        lambda x, w, s, **kw: ops.delta_rule(x[0], x[1].softmax(-1), x[2], x[3].sigmoid(), *s, **kw),
        WRITE,
        (),
        ((V, K),),
    ),
    "delta_rule-signed": Case(
        "delta_rule",
        lambda x, w, s, **kw: ops.delta_rule(x[0], F.normalize(x[1], dim=-1), x[2], 2 * (3 * x[3]).sigmoid(), *s, **kw),
        WRITE,
        (),
        ((V, K),),
    ),
    "diagonal_scan": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(_shrunk(x[0]), x[1], *s, **kw),
        ((D, N), (D, N)),
        (),
        ((D, N),),
    ),
    "diagonal_scan-complex": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(_shrunk(x[0]), x[1], *s, **kw),
        ((D, N), (D, N)),
        (),
        ((D, N),),
        dtype=torch.complex128,
    ),
    "diagonal_scan-one-a": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(_shrunk(w[0][:, :, None]), x[0], *s, **kw),
        ((D, N),),
        ((D, N),),
        ((D, N),),
    ),
    "diagonal_scan-one-complex-a": Case(
        "diagonal_scan",
        lambda x, w, s, **kw: ops.diagonal_scan(_shrunk(w[0][:, :1, None, :1]), x[0], *s, **kw),
        ((D, N),),
        ((D, N),),
        ((D, N),),
        dtype=torch.complex128,
    ),
    "selective_scan": Case(
        "selective_scan",
        lambda x, w, s, **kw: ops.selective_scan(x[0], F.softplus(x[1]), -w[0].exp(), x[2], x[3], *s, **kw),
        ((D,), (D,), (N,), (N,)),
        ((D, N),),
        ((D, N),),
    ),
}
every_parallel = pytest.mark.parametrize("case", PARALLEL.values(), ids=PARALLEL.keys())


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def outputs_and_gradients(case: Case, parts: tuple[list[Tensor], ...], backend: str) -> tuple[Tensor, ...]:
    tensors = [x.requires_grad_() for part in parts for x in part]
    outputs = case.run(*parts, backend=backend)
    rng = torch.Generator().manual_seed(1)
    weights = [torch.randn(o.shape, generator=rng, dtype=o.dtype) for o in outputs]
    loss = sum((o * weight).sum().real for o, weight in zip(outputs, weights, strict=True))
    return *outputs, *torch.autograd.grad(loss, tensors)


def test_every_parallel_op_is_compared():
    assert {case.op for case in PARALLEL.values()} == set(ops.PARALLEL)


@every_parallel
@pytest.mark.parametrize("time", [1, 2, 7, 63, 64, 65, 100, 257])
@pytest.mark.parametrize("given", [False, True], ids=["from-zero", "from-state"])
def test_equals_the_fold(case: Case, time: int, given: bool):
    x, w, s = case.draw(time)
    parts = x, w, s if given else []
    for chunked, folded in zip(
        outputs_and_gradients(case, parts, "chunked"), outputs_and_gradients(case, parts, "reference"), strict=True
    ):
        close(chunked, folded)


@every_parallel
def test_state_is_handed_over(case: Case):
    x, w, s = case.draw(150)
    whole = case.run(x, w, s, backend="chunked")
    first = case.run([part[:, :, :71] for part in x], w, s, backend="chunked")
    second = case.run([part[:, :, 71:] for part in x], w, first[1:], backend="chunked")
    close(torch.cat([first[0], second[0]], dim=2), whole[0])
    close(second[1], whole[1])


def test_a_real_input_of_a_complex_scan():
    (a, _), _, _ = PARALLEL["diagonal_scan-complex"].draw(70)
    (_, b), _, _ = PARALLEL["diagonal_scan"].draw(70)
    got, final = ops.diagonal_scan(_shrunk(a), b, backend="chunked")
    wanted, last = ops.diagonal_scan(_shrunk(a), b, backend="reference")
    close(got, wanted)
    close(final, last)


# -- the choice of a backend ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", sorted({case.op for case in CASES.values()}))
def test_auto_is_chunked_where_there_is_a_parallel_form(op: str):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert ops.chosen(op, "auto", gpu) == ("chunked" if op in ops.PARALLEL else "reference")
    scan = op.endswith("_scan")  # folding is faster on a CPU
    assert ops.chosen(op, "auto", cpu) == ("chunked" if op in ops.PARALLEL and not scan else "reference")
    assert ops.chosen(op, "reference", gpu) == "reference"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.op not in ops.PARALLEL])
def test_an_op_without_chunked_form_says_so(name: str):
    case = CASES[name]
    with pytest.raises(BadInput, match=f"^{case.op} has no chunked form.*reference"):
        ops.chosen(case.op, "chunked", torch.device("cpu"))
    with pytest.raises(BadInput, match=f"^{case.op} has no chunked form"):
        case.run(*case.draw(2), backend="chunked")


@pytest.mark.parametrize("op", ["delta_rule", "lstm"])
def test_a_misspelt_backend_is_not_run_as_another(op: str):
    with pytest.raises(BadInput, match="chunkd"):
        ops.chosen(op, "chunkd", torch.device("cpu"))
