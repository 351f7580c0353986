"""The kernels under vmap and torch.compile: equal to a loop over the members, in one call; and what they refuse."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import TorchRuntimeError
from torch.autograd import forward_ad
from torch.func import functional_call, stack_module_state, vmap

from assay import ops
from assay.errors import BadInput
from assay.models import MIXERS
from assay.ops.dispatch import KERNELS, OPERATORS

from ..models.cases import NAMED, tokens
from ..models.cases import Case as ModelCase
from .cases import PLAIN, Case, Part, Parts, flat, installed, loss, runs, trainable, with_backends

MEMBERS = 3
Function = Callable[[Part, Part, Part], tuple[Tensor, ...]]
Dims = tuple[int | None, int | None, int | None]  # the mapped axis of the inputs, the weights and the state

SMALL = {"cpu": {"time": 5, "batch": 4}, "gpu": {"time": 2, "batch": 2, "H": 1}}
# The interpreter is slow and all kernels share the code under test: those without a cpu kernel, and one more.
INTERPRETED = [*(name for name, operator in OPERATORS.items() if "cpu" not in operator.kernels), "lstm"]
every_kernel = pytest.mark.parametrize(
    ("case", "backend"), [*runs("cpu", among=[*PLAIN, "srwm-fixed"]), *runs("gpu", among=INTERPRETED)]
)
some_kernels = pytest.mark.parametrize(
    ("case", "backend"), [*runs("cpu", among=["srwm-fixed", "elman", "delta_rule"]), *runs("gpu", among=["layer_norm"])]
)


@pytest.fixture(autouse=True)
def _no_silent_loop() -> Iterator[None]:
    """An operator without a rule for vmap would run once per member."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    yield
    functorch._set_vmap_fallback_enabled(before)


def close(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def on_backend(case: Case, backend: str = "reference") -> Function:
    return lambda x, w, s: case.run((x, w, s), backend)


def looped(function: Function, dims: Dims) -> Function:
    """The meaning of vmap: a loop over the members."""

    def run(*parts: Part) -> tuple[Tensor, ...]:
        mapped = [p.shape[dim] for part, dim in zip(parts, dims, strict=True) if dim is not None for p in part]
        members = (
            ([p if dim is None else p.select(dim, i) for p in part] for part, dim in zip(parts, dims, strict=True))
            for i in range(mapped[0])
        )
        return tuple(torch.stack(results) for results in zip(*(function(*member) for member in members), strict=True))

    return run


def stacked(parts: list[Parts], dims: Dims) -> Parts:
    """The members' parts along the axis that is to be mapped; one member's where nothing is."""
    x, w, s = (
        list(members[0]) if dim is None else [torch.stack(tensors, dim) for tensors in zip(*members, strict=True)]
        for members, dim in zip(zip(*parts, strict=True), dims, strict=True)
    )
    return x, w, s


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def differentiated(function: Function, parts: Parts) -> tuple[Tensor, ...]:
    """The outputs, and the gradient of every input."""
    leaves = trainable(parts)
    outputs = function(*leaves)
    return *outputs, *torch.autograd.grad(loss(outputs), flat(leaves))


# -- vmap ----------------------------------------------------------------------------------------------------------

MAPPED: dict[str, Dims] = {
    "inputs": (0, None, 0),
    "inputs-and-weights": (0, 0, 0),
    "weights": (None, 0, None),
    "state": (None, None, 0),
    "other-axes": (-1, 1, 2),
}


def mappable(case: Case, dims: Dims) -> bool:
    """Whether the case has something to map."""
    return any(part and dim is not None for part, dim in zip(case.draw(1), dims, strict=True))


def vmap_is_a_loop(case: Case, backend: str, dims: Dims, groups: int) -> None:
    members = [case.draw(**SMALL.get(backend, SMALL["cpu"]), groups=groups, seed=seed) for seed in range(MEMBERS)]
    parts = stacked(members, dims)
    got = differentiated(vmap(on_backend(case, backend), dims), parts)
    close(got, differentiated(looped(on_backend(case), dims), parts))


@pytest.mark.parametrize(
    ("case", "backend", "dims"),
    [
        pytest.param(*run.values, dims, id=f"{run.id}-{label}", marks=run.marks)
        for run in every_kernel.args[1]
        for label, dims in MAPPED.items()
        if mappable(run.values[0], dims)
    ],
)
def test_vmap_is_a_loop(case: Case, backend: str, dims: Dims):
    vmap_is_a_loop(case, backend, dims, groups=2)


@every_kernel
def test_vmap_with_one_weight_for_all_members(case: Case, backend: str):
    vmap_is_a_loop(case, backend, MAPPED["inputs"], groups=1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dims", [MAPPED[label] for label in ("inputs", "inputs-and-weights", "weights")], ids=str)
@with_backends("reference", among=("affine-relu", "layer_norm"))
def test_vmap_of_plain_operations_is_a_loop(case: Case, backend: str, dims: Dims, groups: int):
    """The operators that `auto` runs as plain operations on a CPU, where they have no kernel."""
    vmap_is_a_loop(case, backend, dims, groups)


@some_kernels
def test_nested_vmap_is_a_nested_loop(case: Case, backend: str):
    inner: Dims = (0, None, 0)
    outer: Dims = (1, 0, 1)
    members = [
        stacked([case.draw(2, batch=1, seed=10 * i + j) for j in range(MEMBERS)], inner) for i in range(MEMBERS - 1)
    ]
    parts = stacked(members, outer)
    got = differentiated(vmap(vmap(on_backend(case, backend), inner), outer), parts)
    close(got, differentiated(looped(looped(on_backend(case), inner), outer), parts))


@some_kernels
def test_vmap_is_one_call_of_the_kernel(case: Case, backend: str, monkeypatch: pytest.MonkeyPatch):
    kernel = importlib.import_module(f"assay.ops.{backend}.{case.name}")
    calls = {name: Mock(wraps=getattr(kernel, name)) for name in ("forward", "backward")}
    for name, counted in calls.items():
        monkeypatch.setattr(kernel, name, counted)
    dims = MAPPED["inputs-and-weights"]
    parts = stacked([case.draw(2, batch=1, H=1, seed=seed) for seed in range(5)], dims)
    differentiated(vmap(on_backend(case, backend), dims), parts)
    assert [counted.call_count for counted in calls.values()] == [1, 1]


@pytest.mark.parametrize("case", [*NAMED, ModelCase("hybrid", {"mixers": tuple(MIXERS.entries)})], ids=str)
@pytest.mark.parametrize("data", [None, 0], ids=["shared-data", "own-data"])
def test_stacked_models_are_the_models_one_by_one(case: ModelCase, data: int | None):
    models = [case.build(seed) for seed in range(MEMBERS)]
    x = tokens(2, 9) if data is None else torch.stack([tokens(2, 9, seed) for seed in range(MEMBERS)])
    parameters, buffers = stack_module_state(models)
    plain = deepcopy(models[0]).to("meta")
    got = vmap(lambda p, b, x: functional_call(plain, (p, b), (x,))[0], (0, 0, data))(parameters, buffers, x)
    wanted = torch.stack([model(x if data is None else x[i])[0] for i, model in enumerate(models)])
    loss([got]).backward()
    loss([wanted]).backward()
    close((got,), (wanted,))
    for name, parameter in parameters.items():
        close((gradient(parameter),), (torch.stack([gradient(model.get_parameter(name)) for model in models]),))


# -- torch.compile -------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("error::UserWarning")
@some_kernels
def test_compiled_is_eager(case: Case, backend: str, compiled: Callable[..., Any]):
    parts = case.draw(**SMALL[backend], groups=2)
    close(differentiated(compiled(on_backend(case, backend)), parts), case.gradients(parts, backend))


@pytest.mark.filterwarnings("error::UserWarning")
@some_kernels
def test_compiled_vmap_is_eager(case: Case, backend: str, compiled: Callable[..., Any]):
    dims = MAPPED["inputs"]
    parts = stacked([case.draw(**SMALL[backend], seed=seed) for seed in range(MEMBERS)], dims)
    mapped = vmap(on_backend(case, backend), dims)
    close(differentiated(compiled(mapped), parts), differentiated(mapped, parts))


@with_backends("cpu", among=["dplr"])
def test_compiled_again_with_an_input_more(case: Case, backend: str, compiled: Callable[..., Any]):
    """Then torch.compile knows the writes of k as a symbol and those of a as a number, and they are equal."""

    def run(inputs: dict[str, Tensor]) -> Tensor:
        output: Tensor = getattr(ops, case.name)(**inputs, backend=backend)[0]
        return output

    quick = compiled(run)
    for writes, left_out in ((1, {"a", "b"}), (2, set[str]())):
        drawn = dict(zip(case.operator.inputs, flat(case.draw(3, M=writes)), strict=True))
        inputs = {name: x for name, x in drawn.items() if name not in left_out}
        close((quick(inputs),), (run(inputs),))


# -- the operators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend"),
    [pytest.param(*names, id="-".join(names), marks=installed(names[1])) for names in KERNELS if names[0] in OPERATORS],
)
def test_operators_keep_their_promises(name: str, backend: str):
    device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
    operator, kernel = OPERATORS[name], KERNELS[name, backend]
    sizes = {
        "B": 2,
        "G": 2,
        "H": 1,
        "T": 2 if backend == "cpu" else 1,
        "S": 3,
        "K": 3,
        "V": 5,
        "D": 3,
        "O": 5,
        "N": 2,
        "M": 2,
    }
    drawn = operator.draw(sizes, torch.Generator().manual_seed(0), torch.float64)
    inputs = [x.to(device) for x in drawn.values()]
    varied = {flag: value for variant in operator.variants.values() for flag, value in variant.items()}
    flags = [varied[flag] for flag in operator.flags]
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if device == "cuda" or backend == "cpu" or "cpu" not in operator.kernels:  # the interpreter is slow
        checks.append("test_aot_dispatch_dynamic")
    leaves = (x.clone().requires_grad_() for x in inputs)
    torch.library.opcheck(kernel.op, (*leaves, *flags), test_utils=checks)
    with torch.no_grad():
        results = kernel.op(*inputs, *flags)
    outputs = list(results) if isinstance(results, tuple | list) else [results]
    grads = [torch.ones_like(o) for o in outputs[: len(operator.outputs)]]
    torch.library.opcheck(kernel.backward, (outputs, grads, inputs, *flags), test_utils=checks)


# -- what is refused -----------------------------------------------------------------------------------------------


def dual(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return function(forward_ad.make_dual(x, torch.ones_like(x)))


TRANSFORMS: dict[str, Callable[[Callable[[Tensor], Tensor], Tensor], Any]] = {
    "grad": lambda f, x: torch.func.grad(f)(x),
    "vjp": lambda f, x: torch.func.vjp(f, x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "forward-ad": dual,
    "vmap-of-grad": lambda f, x: vmap(torch.func.grad(f))(torch.stack([x, x])),
    "grad-of-vmap": lambda f, x: torch.func.grad(lambda y: vmap(f)(y).sum())(torch.stack([x, x])),
    "vmap-of-jvp": lambda f, x: vmap(lambda y: torch.func.jvp(f, (y,), (y,)))(torch.stack([x, x])),
}


@some_kernels
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_other_derivatives_are_refused(case: Case, backend: str, transform: str):
    """For each argument; forward-mode derivatives would silently be zero."""
    parts = case.draw(2)
    for part, tensors in enumerate(parts):
        for index, x in enumerate(tensors):

            def run(y: Tensor, part: int = part, index: int = index) -> Tensor:
                changed = [list(p) for p in parts]
                changed[part][index] = y
                return case.run(changed, backend)[0].real.sum()

            with pytest.raises(BadInput, match=rf"^{case.name}: [^\n]*\.backward\(\)[^\n]*$"):
                TRANSFORMS[transform](run, x)


@with_backends("cpu", among=["elman"])
@pytest.mark.parametrize("transform", ["grad", "forward-ad", "vmap-of-grad"])
def test_other_derivatives_are_refused_when_compiled(
    case: Case, backend: str, transform: str, compiled: Callable[..., Any]
):
    x, w, s = case.draw(2)

    def run(y: Tensor) -> Tensor:
        return case.run(([y], w, s), backend)[0].sum()

    with pytest.raises((BadInput, TorchRuntimeError), match=case.name):
        compiled(lambda y: TRANSFORMS[transform](run, y))(x[0])
    with pytest.raises((BadInput, TorchRuntimeError), match=case.name):
        TRANSFORMS[transform](torch.compile(run, backend="aot_eager"), x[0])


@some_kernels
def test_a_second_derivative_is_refused(case: Case, backend: str):
    x, w, s = case.draw(2)
    x = [p.requires_grad_() for p in x]
    gradient, *_ = torch.autograd.grad(loss(case.run((x, w, s), backend)), x, create_graph=True)
    with pytest.raises(BadInput, match=rf"^{case.name}: [^\n]*second derivative[^\n]*$"):
        torch.autograd.grad(gradient.abs().sum(), x)


BATCHED: dict[str, Callable[..., Any]] = {
    "is_grads_batched": lambda y, x, grads: torch.autograd.grad(y, x, grads, is_grads_batched=True),
    "vmap": lambda y, x, grads: vmap(lambda grad: torch.autograd.grad(y, x, grad))(grads),
}


@some_kernels
@pytest.mark.parametrize("batched", BATCHED)
def test_batched_gradients_are_refused(case: Case, backend: str, batched: str):
    x, w, s = case.draw(2)
    x = [p.requires_grad_() for p in x]
    output = case.run((x, w, s), backend)[0]
    with pytest.raises(BadInput, match=rf"^{case.name}: [^\n]*outside of vmap[^\n]*$"):
        BATCHED[batched](output, x, torch.ones(2, *output.shape, dtype=output.dtype))
