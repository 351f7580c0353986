"""What an op cannot do becomes one line that names the op, the argument and what was expected; and what `auto` runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from assay import ops
from assay.description import BadInput
from assay.ops.fused import FUSED
from assay.ops.rules import RULES

from .cases import CASES, KERNELS, OPS, Parts, installed

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
every_op = pytest.mark.parametrize("op", OPS)
every_argument = pytest.mark.parametrize(
    ("op", "argument"),
    [pytest.param(op, argument, id=f"{op}-{argument}") for op in OPS for argument in RULES[op].inputs],
)
INPUT, WEIGHT, STATE = range(3)
GROUPED = [op for op in OPS if CASES[op].weights]


def place(op: str, argument: str) -> tuple[int, int]:
    """Where a case has an argument: in its inputs, weights or state, and at which index."""
    kinds = {
        name: WEIGHT if spec[0] == "G" else INPUT if "T" in spec.split() else STATE
        for name, spec in RULES[op].inputs.items()
    }
    alike = [name for name, kind in kinds.items() if kind == kinds[argument]]
    return kinds[argument], alike.index(argument)


def altered(op: str, argument: str, change: Callable[[Tensor], Tensor]) -> Parts:
    """Good parts but for one argument."""
    parts = CASES[op].draw(3, batch=4, groups=2)
    part, index = place(op, argument)
    parts[part][index] = change(parts[part][index])
    return parts


def complaint(op: str, parts: Parts) -> str:
    with pytest.raises(BadInput) as caught:
        CASES[op].run(*parts, "auto")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{op}: ")
    return str(caught.value)


# -- shapes --------------------------------------------------------------------------------------------------------

AXES = {"an-axis-more": lambda x: x[..., None], "an-axis-less": lambda x: x[0], "a-number": lambda x: x.sum()}
BROADCAST = {
    ("diagonal_scan", "a", "an-axis-less"),
    ("diagonal_scan", "a", "a-number"),
    ("retention", "decay", "an-axis-less"),
}
NAMED = {("diagonal_scan", "b"): "[ab]"}  # whichever does not fit the other


@pytest.mark.parametrize(
    ("op", "argument", "axes", "given"),
    [
        pytest.param(op, argument, axes, given, id=f"{op}-{argument}-{axes}-{'from-state' if given else 'from-zero'}")
        for op in OPS
        for argument in RULES[op].inputs
        for axes in AXES
        for given in (True, False)
        if (op, argument, axes) not in BROADCAST and (given or place(op, argument)[0] != STATE)
    ],
)
def test_a_wrong_number_of_axes(op: str, argument: str, axes: str, given: bool):
    x, w, s = altered(op, argument, AXES[axes])
    said = complaint(op, (x, w, s if given else []))
    assert re.fullmatch(rf"{op}: {NAMED.get((op, argument), argument)} has shape \[[\d, ]*\]; expected .+", said)


def fixed_axes(op: str) -> list[tuple[str, int]]:
    """The arguments and axes whose size is not free: another argument says it too, or it is a number."""
    specs = {name: spec.split() for name, spec in RULES[op].inputs.items()}
    said = {name: {axis[-1] for n, axes in specs.items() if n != name for axis in axes} for name in specs}
    return [(n, i) for n, axes in specs.items() for i, axis in enumerate(axes) if axis[-1] in said[n] or axis.isdigit()]


def longer(axis: int) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.cat([x, x.narrow(axis, 0, 1)], dim=axis)


@pytest.mark.parametrize(
    ("op", "argument", "axis"),
    [pytest.param(op, *where, id=f"{op}-{where[0]}-{where[1]}") for op in OPS for where in fixed_axes(op)],
)
def test_a_wrong_size(op: str, argument: str, axis: int):
    """The argument that is named is this one, or another where this is the first to have the axis."""
    specs = {name: spec.split() for name, spec in RULES[op].inputs.items()}
    before = list(specs)[: list(specs).index(argument)]
    first = not any(specs[argument][axis] in specs[name] for name in before)
    said = complaint(op, altered(op, argument, longer(axis)))
    blamed = r"\w+" if first else NAMED.get((op, argument), argument)
    assert re.fullmatch(rf"{op}: {blamed} has shape \[[\d, ]+\]; expected .*\d.*", said)


@pytest.mark.parametrize(
    ("op", "empty"),
    [
        pytest.param(op, empty, id=f"{op}-{empty}")
        for op in OPS
        for empty in ("time", "H", *"KVDON")
        if empty in f"time H {CASES[op].inputs} {CASES[op].weights}"
    ],
)
def test_nothing_but_the_batch_may_be_empty(op: str, empty: str):
    assert "expected" in complaint(op, CASES[op].draw(**{"time": 3, "batch": 2, empty: 0}))


@pytest.mark.parametrize("op", GROUPED)
def test_a_batch_that_the_groups_do_not_divide(op: str):
    assert complaint(op, CASES[op].draw(3, batch=3, groups=2)) == f"{op}: a batch of 3 is not a multiple of 2 groups"


@pytest.mark.parametrize(("op", "part"), [("recurrent_delta", 1), ("recurrent_delta", 2), ("srwm", 1), ("lstm", 2)])
def test_a_missing_tensor_of_several(op: str, part: int):
    parts = CASES[op].draw(3)
    parts[part].pop()
    assert "expected" in complaint(op, parts)


# -- dtypes and devices --------------------------------------------------------------------------------------------


def named(op: str, argument: str, said: str) -> bool:
    """Whether the argument is named, or where it is the first and so what the others are measured by, the second."""
    first, second, *_ = RULES[op].inputs
    return said.startswith(f"{op}: {second if argument == first else argument} ")


@pytest.mark.parametrize(
    ("op", "argument"),  # a scan takes the wider dtype of a and b
    [run for run in every_argument.args[1] if run.id not in ("diagonal_scan-a", "diagonal_scan-b")],
)
def test_another_dtype(op: str, argument: str):
    said = complaint(op, altered(op, argument, Tensor.float))
    assert named(op, argument, said)
    assert "is float32; expected float64" in said or "is float64; expected float32" in said


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        pytest.param(op, dtype, id=f"{op}-{dtype}")
        for op in OPS
        for dtype in (torch.int64, torch.bool, torch.float16, torch.complex128)
        if op != "diagonal_scan" or not dtype.is_complex
    ],
)
def test_a_dtype_that_is_not_computed_in(op: str, dtype: torch.dtype):
    x, w, s = ([p.to(dtype) for p in part] for part in CASES[op].draw(3))
    said = complaint(op, (x, w, s))
    assert said.startswith(
        f"{op}: {next(iter(RULES[op].inputs))} is {str(dtype).removeprefix('torch.')}; expected float32"
    )


@every_argument
def test_another_device(op: str, argument: str):
    parts = altered(op, argument, lambda x: x.to("meta"))
    with pytest.raises(BadInput, match=rf"^{op}: [^\n]*; expected (cpu|meta), where \w+ is$") as caught:
        CASES[op].call(*parts, backend="auto")
    assert named(op, argument, str(caught.value))


# -- the choice of a backend ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside of the tests: the GPU's kernels are not interpreted."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def without_kernel(op: str, device: torch.device) -> str:
    scan = op.endswith("_scan") and device == CPU  # folding is faster there
    return "chunked" if op in ops.PARALLEL and not scan else "reference"


def test_auto_is_the_kernel_of_the_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: True)
    assert {op: ops.chosen(op, "auto", CUDA) for op in OPS} == dict.fromkeys(OPS, "gpu")
    on_cpu = dict.fromkeys(OPS, "cpu") | dict.fromkeys(["linear_attention", "retention"], "chunked")
    on_cpu |= dict.fromkeys(["affine", "layer_norm"], "reference")
    assert {op: ops.chosen(op, "auto", CPU) for op in OPS} == on_cpu


@every_op
def test_auto_gives_a_compiler_the_plain_operations_where_it_fuses_them(op: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert ops.chosen(op, "auto", CUDA) == ("reference" if op in ("affine", "layer_norm") else "gpu")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert ops.chosen(op, "gpu", CPU) == "gpu"


@every_op
def test_auto_without_a_kernel(op: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: False)
    for device in (CPU, CUDA, torch.device("mps")):
        assert ops.chosen(op, "auto", device) == without_kernel(op, device)


@every_op
def test_auto_beyond_the_largest_head(op: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: True)
    assert ops.chosen(op, "auto", CUDA, 128) == "gpu"
    assert ops.chosen(op, "auto", CUDA, 129) == without_kernel(op, CUDA)
    assert ops.chosen(op, "auto", CPU, 129) == ops.chosen(op, "auto", CPU)


@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=installed(backend)) for op, backend in KERNELS if backend == "cpu"]
)
def test_auto_runs_what_is_chosen(op: str, monkeypatch: pytest.MonkeyPatch):
    kernel = Mock(wraps=FUSED[op, "cpu"])
    monkeypatch.setitem(FUSED, (op, "cpu"), kernel)
    parts = CASES[op].draw(2)
    CASES[op].run(*parts, "reference")
    assert kernel.call_count == 0
    CASES[op].run(*parts, "auto")
    assert kernel.call_count == 1


@every_op
def test_the_reference_runs_everywhere(op: str):
    for device in (CPU, CUDA, torch.device("mps")):
        assert ops.chosen(op, "reference", device, 1000) == "reference"


# -- backends that cannot run --------------------------------------------------------------------------------------


def refusal(op: str, backend: str) -> str:
    """The same from `chosen` and from the op."""
    said = []
    for ask in (
        lambda: ops.chosen(op, backend, CPU),
        lambda: CASES[op].call(*CASES[op].draw(2), backend=backend),
    ):
        with pytest.raises(BadInput, match=r"^[^\n]+$") as caught:
            ask()
        said.append(str(caught.value))
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize("op", [op for op in OPS if op not in ops.PARALLEL])
def test_an_op_without_chunked_form_says_so(op: str):
    kernels = ", ".join(backend for of, backend in KERNELS if of == op)
    assert refusal(op, "chunked") == f"{op} has no chunked form; its backends are: auto, reference, {kernels}"


@pytest.mark.parametrize("op", [op for op in OPS if (op, "cpu") not in KERNELS])
def test_an_op_without_kernel_says_so(op: str):
    others = "reference, chunked" if op in ops.PARALLEL else "reference"
    assert refusal(op, "cpu") == f"{op} has no cpu kernel; its backends are: auto, {others}, gpu"


@pytest.mark.parametrize(("op", "backend"), KERNELS)
def test_a_kernel_without_its_library_says_so(op: str, backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: False)
    library = {"cpu": "numba", "gpu": "triton"}[backend]
    assert f"{backend!r} needs {library}, which is not installed" in refusal(op, backend)


@pytest.mark.parametrize(("op", "backend"), KERNELS)
def test_a_kernel_of_another_device_says_so(op: str, backend: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: True)
    if backend == "gpu":
        assert "takes cuda tensors and these are on cpu" in refusal(op, backend)
    else:
        with pytest.raises(BadInput, match=r"takes cpu tensors and these are on cuda"):
            ops.chosen(op, backend, CUDA)


@pytest.mark.parametrize("op", [op for op in OPS if RULES[op].bounded])
def test_a_head_too_large_for_the_gpu_says_so(op: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ops, "_installed", lambda library: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    said = f"{op}: the gpu kernel takes head sizes from 1 to 128 and this is 129; use backend='reference'"
    for axis in RULES[op].bounded:
        parts = CASES[op].draw(1, **{axis: 129})
        with pytest.raises(BadInput) as caught:
            CASES[op].call(*parts, backend="gpu")
        assert str(caught.value) == said


@every_op
def test_a_misspelt_backend_is_not_run_as_another(op: str):
    assert refusal(op, "chunkd") == "unknown backend 'chunkd'; did you mean 'chunked'?"


def test_a_part_that_the_matrix_does_not_have():
    x, (W, narrow) = torch.zeros(1, 1, 2, 4), (torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4))
    with pytest.raises(BadInput, match=re.escape("srwm: fixed = 'qz' has 'z'; expected letters of 'yqkb'")):
        ops.srwm(x, (W, W, W, narrow), fixed="qz")
