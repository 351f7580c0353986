"""A bad argument becomes one line that names the operator, the argument and what was expected; and what `auto` runs.

The checks follow from the axes of a definition: each kind of mistake is made in a few operators that differ in kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from assay import ops
from assay.errors import BadInput
from assay.ops import dispatch
from assay.ops.dispatch import KERNELS
from assay.ops.operator import Operator

from .cases import CASES, OPERATORS, Parts, installed

CPU, CUDA, OTHER = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
INPUT, WEIGHT, STATE = range(3)
SAMPLE = ["attention", "retention", "recurrent_delta", "srwm", "gru", "selective_scan", "affine"]
arguments_of_sample = pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name in SAMPLE for argument in OPERATORS[name].inputs],
)


def location(operator: Operator, argument: str) -> tuple[int, int]:
    """Where the parts of a case have an argument: sequences, weights or states, and at which index."""
    states = [name for name in operator.inputs if name not in operator.sequences + operator.weights]
    for part, names in enumerate((operator.sequences, operator.weights, states)):
        if argument in names:
            return part, names.index(argument)
    raise LookupError(argument)


def altered(name: str, argument: str, change: Callable[[Tensor], Tensor]) -> Parts:
    """Good parts but for one argument."""
    parts = CASES[name].draw(3, batch=4, groups=2)
    part, index = location(OPERATORS[name], argument)
    parts[part][index] = change(parts[part][index])
    return parts


def complaint(name: str, parts: Parts) -> str:
    with pytest.raises(BadInput) as caught:
        CASES[name].run(parts, "auto")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{name}: ")
    return str(caught.value)


# -- shapes --------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "an-axis-more": lambda x: x[..., None],
    "an-axis-less": lambda x: x[0],
    "a-number": lambda x: x.sum(),
}


@arguments_of_sample
def test_a_wrong_number_of_axes(name: str, argument: str):
    part, _ = location(OPERATORS[name], argument)
    for label, change in CHANGES.items():
        if (name, argument, label) == ("retention", "decay", "an-axis-less"):  # one decay per head for all rows
            continue
        x, w, s = altered(name, argument, change)
        for states in (s, []) if part != STATE else (s,):
            expected = rf"{name}: {argument} has shape \[[\d, ]*\]; expected \d axes \(.+\)"
            assert re.fullmatch(expected, complaint(name, (x, w, states)))


def fixed_axes(operator: Operator) -> list[tuple[str, int]]:
    """The arguments and axes whose size is not free: another argument has the letter too, or it is a number."""
    axes = {name: spec.split() for name, spec in operator.inputs.items()}
    elsewhere = {name: {axis[-1] for n, others in axes.items() if n != name for axis in others} for name in axes}
    return [
        (name, index)
        for name, own in axes.items()
        for index, axis in enumerate(own)
        if axis[-1] in elsewhere[name] or axis.isdigit()
    ]


def longer(x: Tensor, axis: int) -> Tensor:
    return torch.cat([x, x.narrow(axis, 0, 1)], dim=axis)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_wrong_size(name: str):
    """The error names this argument, or another where this is the first to have the axis."""
    axes = {argument: spec.split() for argument, spec in OPERATORS[name].inputs.items()}
    for argument, index in fixed_axes(OPERATORS[name]):
        before = list(axes)[: list(axes).index(argument)]
        first = not any(axes[argument][index] in axes[earlier] for earlier in before)
        parts = altered(name, argument, partial(longer, axis=index))
        blamed = r"\w+" if first else argument
        assert re.fullmatch(rf"{name}: {blamed} has shape \[[\d, ]+\]; expected .*\d.*", complaint(name, parts))


@pytest.mark.parametrize("name", SAMPLE)
def test_only_the_batch_may_be_empty(name: str):
    for axis in CASES[name].axes - set("BGT"):
        assert "expected every axis but batch >= 1" in complaint(name, CASES[name].draw(3, **{axis: 0}))
    assert "expected every axis but batch >= 1" in complaint(name, CASES[name].draw(0))


def test_a_batch_that_the_groups_do_not_divide():
    assert (
        complaint("gru", CASES["gru"].draw(3, batch=3, groups=2)) == "gru: a batch of 3 is not a multiple of 2 groups"
    )


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("recurrent_delta", WEIGHT, "R has 3 tensors; expected 4 (R_q, R_k, R_v, r_b)"),
        ("recurrent_delta", STATE, "state has 1 tensors; expected 2 (W, o)"),
        ("srwm", WEIGHT, "W has 3 tensors; expected 4 (W_y, W_q, W_k, w_b)"),
        ("lstm", STATE, "state has 1 tensors; expected 2 (h, c)"),
    ],
)
def test_a_missing_tensor_of_several(name: str, part: int, expected: str):
    parts = CASES[name].draw(3)
    parts[part].pop()
    assert complaint(name, parts) == f"{name}: {expected}"


def test_a_letter_that_is_not_a_part_of_the_matrix():
    (x,), (W_y, W_q, W_k, w_b), _ = CASES["srwm"].draw(3)
    with pytest.raises(BadInput, match=re.escape("srwm: fixed = 'qz' has 'z'; expected letters of 'yqkb'")):
        ops.srwm(x, (W_y, W_q, W_k, w_b), fixed="qz")


def test_fewer_keys_than_queries():
    parts = CASES["attention"].draw(3, S=2)
    assert complaint("attention", parts) == "attention: k has 2 positions; expected at least 3, the time of q"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"L": 2}, "dplr: w has 2 decays; expected 1 or 3"),
        ({"R": 1}, "dplr: a has 1 corrections; expected 0 or 2"),
        ({"L": 2, "K": 1}, "dplr: w has 2 decays; expected 1"),
    ],
)
def test_axes_of_two_sizes(sizes: dict[str, int], expected: str):
    assert complaint("dplr", CASES["dplr"].draw(3, **sizes)) == expected


# -- dtypes and devices --------------------------------------------------------------------------------------------


def is_named(name: str, argument: str, message: str) -> bool:
    """Whether the argument is named; or the second, where it is the first, which the others are compared with."""
    first, second, *_ = OPERATORS[name].inputs
    return message.startswith(f"{name}: {second if argument == first else argument} ")


@arguments_of_sample
def test_another_dtype(name: str, argument: str):
    message = complaint(name, altered(name, argument, Tensor.float))
    assert is_named(name, argument, message)
    assert "is float32; expected float64" in message or "is float64; expected float32" in message


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.complex128])
def test_a_dtype_that_is_not_supported(dtype: torch.dtype):
    x, w, s = ([p.to(dtype) for p in part] for part in CASES["retention"].draw(3))
    spelt = str(dtype).removeprefix("torch.")
    assert complaint("retention", (x, w, s)) == f"retention: q is {spelt}; expected float32, float64 or bfloat16"


@pytest.mark.parametrize("argument", OPERATORS["recurrent_delta"].inputs)
def test_another_device(argument: str):
    parts = altered("recurrent_delta", argument, lambda x: x.to("meta"))
    with pytest.raises(BadInput, match=r"^recurrent_delta: [^\n]*; expected (cpu|meta), where \w+ is$") as caught:
        CASES["recurrent_delta"].call(parts, "auto")
    assert is_named("recurrent_delta", argument, str(caught.value))


# -- the choice of a backend ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _compiled_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside of the tests: the GPU's kernels are not interpreted."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def without_kernel(operator: Operator) -> str:
    return "chunked" if operator.chunked else "reference"


def expected_backend(operator: Operator, device: torch.device) -> str:
    """With all libraries installed and a small head."""
    kernel = "gpu" if device == CUDA else "cpu"
    return kernel if kernel in operator.kernels else without_kernel(operator)


def test_auto_is_the_kernel_of_the_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    for name, operator in OPERATORS.items():
        assert ops.backend_for(name, "auto", CUDA) == expected_backend(operator, CUDA)
        assert ops.backend_for(name, "auto", CPU) == expected_backend(operator, CPU)
    on_cpu = {name: ops.backend_for(name, "auto", CPU) for name in ("srwm", "retention", "selective_scan", "affine")}
    assert on_cpu == {"srwm": "cpu", "retention": "cpu", "selective_scan": "cpu", "affine": "reference"}


def test_auto_gives_a_compiler_the_plain_operations_where_it_fuses_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for name, operator in OPERATORS.items():
        expected = "reference" if name in ("affine", "layer_norm") else expected_backend(operator, CUDA)
        assert ops.backend_for(name, "auto", CUDA) == expected
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert ops.backend_for("affine", "gpu", CPU) == "gpu"


def test_auto_without_a_kernel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: False)
    for device in (CPU, CUDA, OTHER):
        for name, operator in OPERATORS.items():
            assert ops.backend_for(name, "auto", device) == without_kernel(operator)


def test_auto_beyond_the_largest_head(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    for name, operator in OPERATORS.items():
        assert ops.backend_for(name, "auto", CUDA, operator.head_limit) == expected_backend(operator, CUDA)
        assert ops.backend_for(name, "auto", CUDA, operator.head_limit + 1) == without_kernel(operator)
        narrow = "cpu" in operator.widest
        expected = without_kernel(operator) if narrow else expected_backend(operator, CPU)
        assert ops.backend_for(name, "auto", CPU, 129) == expected


@pytest.mark.parametrize("name", [pytest.param(n, marks=installed("cpu")) for n in ("linear_attention", "retention")])
def test_auto_takes_the_kernel_where_it_is_faster(name: str, monkeypatch: pytest.MonkeyPatch):
    kernel = Mock(wraps=KERNELS[name, "cpu"])
    monkeypatch.setitem(KERNELS, (name, "cpu"), kernel)
    for time, size, backend in ((49, 32, "chunked"), (50, 32, "cpu"), (50, 33, "chunked")):
        assert ops.backend_for(name, "auto", CPU, size, time) == backend
        kernel.reset_mock()
        CASES[name].run(CASES[name].draw(time, V=size), "auto")
        assert kernel.call_count == (backend == "cpu")


def test_auto_on_short_inputs(monkeypatch: pytest.MonkeyPatch):
    """Attention on a CPU: up to 128 positions, the past included, by the plain operations."""
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    assert [ops.backend_for("attention", "auto", CPU, 16, time) for time in (128, 129)] == ["reference", "cpu"]
    assert ops.backend_for("attention", "auto", CUDA, 16, 1) == "gpu"
    assert ops.backend_for("attention", "cpu", CPU, 16, 1) == "cpu"
    kernel = Mock(wraps=KERNELS["attention", "cpu"])
    monkeypatch.setitem(KERNELS, ("attention", "cpu"), kernel)
    for source, calls in ((128, 0), (129, 1)):
        CASES["attention"].run(CASES["attention"].draw(2, S=source), "auto")
        assert kernel.call_count == calls


@pytest.mark.parametrize("name", [pytest.param("elman", marks=installed("cpu"))])
def test_auto_runs_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch):
    kernel = Mock(wraps=KERNELS[name, "cpu"])
    monkeypatch.setitem(KERNELS, (name, "cpu"), kernel)
    parts = CASES[name].draw(2)
    CASES[name].run(parts, "reference")
    assert kernel.call_count == 0
    CASES[name].run(parts, "auto")
    assert kernel.call_count == 1


def test_the_reference_runs_everywhere():
    for device in (CPU, CUDA, OTHER):
        assert {ops.backend_for(name, "reference", device, 1000) for name in OPERATORS} == {"reference"}


# -- backends that cannot run --------------------------------------------------------------------------------------


def refusal(name: str, backend: ops.Backend) -> str:
    """The same from `backend_for` and from the operator."""
    messages = []
    for attempt in (
        lambda: ops.backend_for(name, backend, CPU),
        lambda: CASES[name].call(CASES[name].draw(2), backend),
    ):
        with pytest.raises(BadInput, match=r"^[^\n]+$") as caught:
            attempt()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    return messages[0]


def test_an_operator_without_chunked_form_says_so():
    assert refusal("lstm", "chunked") == "lstm has no chunked form; its backends are: auto, reference, cpu, gpu"


def test_an_operator_without_kernel_says_so():
    assert refusal("affine", "cpu") == "affine has no cpu kernel; its backends are: auto, reference, gpu"


@pytest.mark.parametrize(("backend", "library"), [("cpu", "numba"), ("gpu", "triton")])
def test_a_kernel_without_its_library_says_so(backend: ops.Backend, library: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: False)
    assert f"{backend!r} needs {library}, which is not installed" in refusal("lstm", backend)


def test_a_kernel_of_another_device_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    assert "takes cuda tensors and these are on cpu" in refusal("lstm", "gpu")
    with pytest.raises(BadInput, match=r"takes cpu tensors and these are on cuda"):
        ops.backend_for("lstm", "cpu", CUDA)


@pytest.mark.parametrize("name", [name for name, operator in OPERATORS.items() if operator.bounded])
def test_a_head_too_large_for_the_gpu_says_so(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dispatch, "is_installed", lambda library: True)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    limit = {"m2rnn": 64}.get(name, 128)
    expected = f"{name}: the gpu kernel takes head sizes from 1 to {limit} and this is {limit + 1}; "
    for axis in OPERATORS[name].bounded:
        with pytest.raises(BadInput) as caught:
            CASES[name].call(CASES[name].draw(1, **{axis: limit + 1}), "gpu")
        assert str(caught.value) == expected + "use backend='reference'"


def test_a_misspelt_backend_is_not_run_as_another():
    assert refusal("lstm", "chunkd") == "unknown backend 'chunkd'; did you mean 'chunked'?"  # type: ignore[arg-type]
