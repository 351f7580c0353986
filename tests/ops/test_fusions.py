"""The operators around the recurrences: their kernels equal the plain operations in outputs and gradients.

Without a GPU the kernels run through Triton's interpreter, over uninitialised memory full of NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import deterministic

from assay import ops
from assay.errors import BadInput
from assay.ops.dispatch import KERNELS
from assay.ops.fusions import FEATURES, IGNORE
from assay.tasks import task

from .cases import installed

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
pytestmark = [
    *installed("gpu"),
    pytest.mark.filterwarnings("ignore:.* encountered in .*:RuntimeWarning"),  # of the interpreter, beyond the tensors
]


@dataclass(frozen=True)
class Case:
    name: str
    shapes: tuple[tuple[int, ...], ...]
    flags: dict[str, Any] = field(default_factory=dict)
    most: int = 0  # integers lie below

    def __str__(self) -> str:
        sizes = "-".join("x".join(map(str, shape)) for shape in self.shapes)
        return "-".join([self.name, sizes, *map(str, self.flags.values())])

    def draw(self, dtype: torch.dtype, seed: int = 0) -> list[Tensor]:
        rng = torch.Generator().manual_seed(seed)
        inputs = []
        for name, shape in zip(ops.FUSIONS[self.name].inputs, self.shapes, strict=True):
            if name in ops.FUSIONS[self.name].integers:
                integers = torch.randint(-1 if name == "targets" else 0, self.most, shape, generator=rng)
                inputs.append(integers.where(integers >= 0, IGNORE))
            else:
                inputs.append(torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype))
        return inputs

    def run(self, inputs: list[Tensor], backend: str) -> tuple[Tensor, ...]:
        outputs = getattr(ops, self.name)(*(x.to(DEVICE) for x in inputs), **self.flags, backend=backend)
        return tuple(x.cpu() for x in (outputs if isinstance(outputs, tuple) else (outputs,)))


CASES = [
    Case("add_norm", ((4, 1, 5, 3), (4, 1, 5, 3), (2, 1, 3), (2, 1, 3))),
    Case("add_norm", ((2, 3, 1, 64), (2, 3, 1, 64), (1, 3, 64), (1, 3, 64))),
    *(Case("qkv", ((3, 5, 18),), {"heads": 2, "features": name}) for name in FEATURES),
    *(Case("qkvb", ((2, 1, 20),), {"heads": 2, "features": name, "sigmoid": name == "unit"}) for name in FEATURES),
    Case("qkvb", ((2, 17, 49),), {"heads": 1, "features": "elu-sum", "sigmoid": True}),
    Case("gate", ((2, 3, 5), (2, 3, 5))),
    Case("head_norm", ((4, 2, 5, 3), (4, 5, 6), (2, 3)), {"activation": "silu"}),
    Case("head_norm", ((2, 1, 70, 40), (2, 70, 40), (1, 40)), {"activation": "sigmoid"}),
    Case("embedding", ((4, 3), (2, 5, 7)), most=5),
    Case("embedding", ((1, 70), (1, 70, 66)), most=70),
    Case("cross_entropy", ((3, 7, 5), (3, 7)), most=5),
    Case("cross_entropy", ((2, 150, 33), (2, 150)), most=33),
    Case("cross_entropy", ((2, 3, 1), (2, 3)), most=1),
]
every_case = pytest.mark.parametrize("case", CASES, ids=str)
first_of_each = pytest.mark.parametrize("case", {case.name: case for case in CASES}.values(), ids=str)


@pytest.fixture(autouse=True)
def _memory_is_nan_until_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", True)
    yield
    torch.use_deterministic_algorithms(before)


def gradients(function: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor], lost: int = -1) -> tuple[Tensor, ...]:
    """The outputs, and the gradient of every input that has one, where the loss does not see one of the outputs."""
    leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs]
    outputs, rng = function(leaves), torch.Generator().manual_seed(1)
    factors = [torch.randn(o.shape, generator=rng, dtype=torch.float32) for o in outputs]
    terms = [(o * f).sum() for i, (o, f) in enumerate(zip(outputs, factors, strict=True)) if i != lost]
    loss = torch.stack(terms).sum()
    wanted = [x for x in leaves if x.requires_grad]
    return *(o.detach() for o in outputs), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)


def near(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...], tolerance: float) -> None:
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape, index
        error, size = (a - b).abs().max().item(), b.abs().max().item()
        assert error <= tolerance * max(size, 1e-3), f"{index}: off by {error:.1e} of {size:.1e}"


def test_every_fusion_has_a_case():
    assert {case.name for case in CASES} == set(ops.FUSIONS)


def test_targets_without_a_question_are_those_of_the_tasks():
    assert IGNORE == task.IGNORE


@every_case
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_kernel_equals_the_plain_operations(case: Case, dtype: torch.dtype):
    inputs = case.draw(dtype)
    exact = [x.double() if x.is_floating_point() else x for x in inputs]
    wanted = gradients(lambda x: case.run(x, "reference"), exact)
    got = gradients(lambda x: case.run(x, "gpu"), inputs)
    assert {x.dtype for x in got} == {dtype}
    near(got, wanted, TOLERANCE[dtype])


@pytest.mark.parametrize("case", {c.name: c for c in CASES if len(ops.FUSIONS[c.name].outputs) > 1}.values(), ids=str)
def test_an_output_that_the_loss_does_not_see(case: Case):
    inputs = case.draw(torch.float64)
    for lost in range(len(ops.FUSIONS[case.name].outputs)):
        got, wanted = (gradients(lambda x, b=backend: case.run(x, b), inputs, lost) for backend in ("gpu", "reference"))
        near(got, wanted, 1e-10)


@first_of_each
@pytest.mark.parametrize("backend", ["reference", "gpu"])
def test_vmap_is_a_loop(case: Case, backend: str):
    members = [case.draw(torch.float64, seed) for seed in range(3)]
    stacked = [torch.stack(tensors) for tensors in zip(*members, strict=True)]
    got = gradients(lambda x: vmap(lambda *inputs: case.run(list(inputs), backend))(*x), stacked)
    outputs = [gradients(lambda x: case.run(x, "reference"), inputs) for inputs in members]
    count = len(ops.FUSIONS[case.name].outputs)
    near(got[:count], tuple(torch.stack([o[i] for o in outputs]) for i in range(count)), 1e-10)

    def looped(leaves: list[Tensor]) -> tuple[Tensor, ...]:
        runs = [case.run([x[i] for x in leaves], "reference") for i in range(3)]
        return tuple(torch.stack(tensors) for tensors in zip(*runs, strict=True))

    near(got, gradients(looped, stacked), 1e-10)


@first_of_each
def test_bfloat16(case: Case):
    low = [x.bfloat16() if x.is_floating_point() else x for x in case.draw(torch.float32)]
    wide = [x.float() if x.is_floating_point() else x for x in low]
    got = gradients(lambda x: case.run(x, "gpu"), low)
    assert {x.dtype for x in got} == {torch.bfloat16}
    near(got, gradients(lambda x: case.run(x, "reference"), wide), 2e-2)


@first_of_each
def test_the_operator_keeps_its_promises(case: Case):
    kernel, inputs = KERNELS[case.name, "gpu"], [x.to(DEVICE) for x in case.draw(torch.float64)]
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    torch.library.opcheck(kernel.op, (*leaves, *case.flags.values()))


@first_of_each
def test_an_empty_batch(case: Case):
    shapes = tuple(
        (0, *shape[1:]) if axes[0] == "B" else shape
        for axes, shape in zip(ops.FUSIONS[case.name].inputs.values(), case.shapes, strict=True)
    )
    empty = Case(case.name, shapes, case.flags, case.most)
    got = gradients(lambda x: empty.run(x, "gpu"), empty.draw(torch.float64))
    assert all(x.numel() == 0 or not x.any() for x in got)


def test_a_row_without_targets_has_no_loss():
    logits, targets = torch.randn(2, 3, 4, dtype=torch.float64), torch.full((2, 3), IGNORE)
    targets[1, 2] = 1
    case = Case("cross_entropy", ())
    for backend in ("reference", "gpu"):
        loss, gradient = gradients(lambda x, b=backend: case.run([x[0], targets], b), [logits])
        assert loss[0] == 0
        assert loss[1] == pytest.approx(-logits[1, 2].log_softmax(0)[1].item())
        assert not gradient[0].any()
        assert not gradient[1, :2].any()
        assert gradient[1, 2].any()


def test_bad_arguments_are_named():
    z = torch.zeros(2, 3, 20)
    with pytest.raises(BadInput, match=r"^qkv: z has shape \[2, 3, 20\]; expected a multiple of 3 x 2 entries and 0$"):
        ops.qkv(z, heads=2)
    with pytest.raises(BadInput, match=r"^qkvb: unknown features 'elus'"):
        ops.qkvb(z, heads=2, features="elus")
    with pytest.raises(BadInput, match=r"^head_norm: z has 20 entries; expected 12, 3 heads of 4$"):
        ops.head_norm(torch.zeros(2, 3, 3, 4), z, z[:1, 0, :4])
    with pytest.raises(BadInput, match=r"^head_norm: unknown activation 'relu'; expected one of silu, sigmoid$"):
        ops.head_norm(torch.zeros(2, 5, 3, 4), z, z[:1, 0, :4], activation="relu")
    with pytest.raises(BadInput, match=r"^embedding: tokens is float32; expected int64"):
        ops.embedding(z[..., 0], z)
