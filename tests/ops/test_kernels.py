"""The kernels equal the folds: outputs, final states and the gradient of everything, over scratch memory full of NaN.

Without a GPU its kernels run here through Triton's interpreter, at sizes that it gets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from assay import ops

from .cases import CASES, Case, Parts, loss, with_backends

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}

LENGTHS = {"cpu": (1, 2, 7, 63, 64, 65, 100, 257, 1024), "gpu": (1, 2, 7, 17, 33, 65)}
HEAD_SIZES = {"cpu": (1, 3, 8, 16, 31, 64, 128), "gpu": (1, 3, 8, 16, 31)}
ROWS = {"cpu": (1, 2, 17, 33), "gpu": (2, 17)}  # the kernels take sixteen at a time, or one
BATCH = {"cpu": {"batch": 3}, "gpu": {"batch": 1, "H": 1}}  # the interpreter takes one at a time
GROUPS = {"cpu": {"batch": 4, "groups": 2}, "gpu": {"batch": 2, "groups": 2, "H": 1}}
SMALL = {"cpu": {"time": 9, "batch": 18, "groups": 2}, "gpu": {"time": 2, "batch": 4, "groups": 2}}
FULL = {"cpu": True, "gpu": torch.cuda.is_available()}
if FULL["gpu"]:
    for table in (LENGTHS, HEAD_SIZES, ROWS, BATCH, GROUPS, SMALL):
        table["gpu"] = table["cpu"]


def settings(case: Case, backend: str) -> dict[str, dict[str, int]]:
    """What a case is drawn with: one thing at a time, beside small sizes of all else."""
    batch, groups = BATCH[backend], GROUPS[backend]
    made = {f"time={time}": {"time": time, **batch} for time in LENGTHS[backend]}
    made |= {f"size={n}": {"time": 3, **groups, "K": n, "V": n, "D": n} for n in HEAD_SIZES[backend]}
    made |= {"time=100-size=64": {"time": 100, **batch, "K": 64, "V": 64, "D": 64}} if FULL[backend] else {}
    made |= {f"rows={rows}": {"time": 1, "batch": rows, "H": 1} for rows in ROWS[backend]}
    made |= {f"heads={heads}": {"time": 2, **batch, "H": heads} for heads in (1, 3)}
    if case.weights:
        made |= {"groups=rows": {"time": 3, **groups, "groups": groups["batch"]}}
        made |= {"groups=2-rows=34": {"time": 2, "batch": 34, "groups": 2}} if FULL[backend] else {}
    if "V" in case.inputs:
        made |= {"key<value": {"time": 3, **batch, "K": 5, "V": 18}, "key>value": {"time": 3, **batch, "K": 18, "V": 5}}
    if "V" in case.inputs and case.op in ops.PARALLEL and backend == "gpu":  # chunks of another size
        made |= {"time=70-size=33": {"time": 70, **batch, "K": 33, "V": 33}}
        made |= {"time=70-rows=140": {"time": 70, "batch": 140, "K": 16, "V": 16}} if FULL[backend] else {}
    if "D N" in (*case.inputs, *case.weights):
        made |= {f"states={n}": {"time": 3, **groups, "N": n} for n in HEAD_SIZES[backend]}
    if case.op == "affine":  # several tiles of rows, of a weight that is kept or streamed, and of its columns
        sizes = [(1, 1), (8, 31), (31, 8), (64, 130), (70, 33), (130, 70), (150, 200)]
        made |= {f"in={d}-out={o}": {"time": 5, **groups, "D": d, "O": o} for d, o in sizes}
        made |= {f"in={d}-rows=34": {"time": 5, "batch": 34, "groups": 2, "D": d, "O": 20} for d in (20, 100, 140)}
    return made


every_setting = pytest.mark.parametrize(
    ("case", "backend", "setting"),
    [
        pytest.param(*run.values, setting, id=f"{run.id}-{label}", marks=run.marks)
        for run in with_backends("cpu", "gpu").args[1]
        for label, setting in settings(*run.values).items()
    ],
)
every_kernel = with_backends("cpu", "gpu")
# What is common to all kernels: on the GPU's side two are enough.
some_kernels = pytest.mark.parametrize(
    ("case", "backend"), [*with_backends("cpu").args[1], *with_backends("gpu", among=["retention", "lstm"]).args[1]]
)
on_every_backend = with_backends(
    "reference", "chunked", "cpu", "gpu", among=[name for name, case in CASES.items() if not case.dtype.is_complex]
)


@pytest.fixture(autouse=True)
def _memory_is_nan_until_written() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


def in_precision(parts: Parts, dtype: torch.dtype) -> Parts:
    x, w, s = ([p.to(COMPLEX[dtype] if p.is_complex() else dtype) for p in part] for part in parts)
    return x, w, s


def near(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...], tolerance: float, least: float = 0.0) -> None:
    """In float64 every entry, against the largest one (or `least`); in less, the norm of the difference."""
    assert len(got) == len(wanted)
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape, index
        order = torch.inf if tolerance < 1e-6 else 2
        error, size = (torch.linalg.vector_norm(x, order).item() for x in (a.to(b.dtype) - b, b))
        assert error <= tolerance * (max(size, least) or 1.0), f"{index}: off by {error:.1e} of {size:.1e}"


def same_bits(got: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert torch.equal(a, b), index


# -- the same numbers ----------------------------------------------------------------------------------------------


@every_setting
def test_equals_the_reference(case: Case, backend: str, setting: dict[str, int]):
    single = in_precision(case.draw(**setting), torch.float32)
    double = in_precision(single, torch.float64)
    wanted = case.gradients(*double)
    for parts, dtype in ((double, torch.float64), (single, torch.float32)):
        got = case.gradients(*parts, backend)
        assert {x.real.dtype for x in got} == {dtype}
        near(got, wanted, TOLERANCE[dtype])


SATURATING = [
    name for name in CASES if CASES[name].op in ("recurrent_delta", "srwm", "gru", "lstm", "elementwise_lstm")
]


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of the interpreter
@with_backends("cpu", "gpu", among=[*SATURATING, "elman"])
def test_gates_saturate(case: Case, backend: str):
    x, w, s = case.draw(4, **BATCH[backend])
    parts = [p * 1e3 for p in x], w, s
    near(case.gradients(*parts, backend), case.gradients(*parts), 1e-10, least=1.0)


@on_every_backend
def test_bfloat16_keeps_a_float32_state(case: Case, backend: str):
    x, w, s = in_precision(case.draw(5, **BATCH.get(backend, {})), torch.float32)
    low = [p.bfloat16() for p in x], [p.bfloat16() for p in w], s
    count = len(case.run(*low))
    got, wanted = case.gradients(*low, backend), case.gradients(*in_precision(low, torch.float32))
    given = [p.dtype for part in low for p in part]
    assert [p.dtype for p in got] == [torch.bfloat16] + [torch.float32] * (count - 1) + given
    near(got, wanted, 1e-2)


@on_every_backend
def test_a_float32_state_is_handed_over_in_bfloat16(case: Case, backend: str):
    x, w, s = in_precision(case.draw(4, **BATCH.get(backend, {})), torch.float32)
    x, w = ([p.bfloat16() for p in part] for part in (x, w))
    first = case.run([p[:, :, :2] for p in x], w, s, backend)
    second = case.run([p[:, :, 2:] for p in x], w, first[1:], backend)
    outputs = torch.cat([first[0], second[0]], dim=2)
    near((outputs, *second[1:]), case.run(x, w, s, backend), 1e-2)


# -- what autograd may ask -----------------------------------------------------------------------------------------


@every_kernel
def test_a_loss_of_one_output_alone(case: Case, backend: str):
    """What is not part of the loss has no gradient rather than a gradient of zeros."""
    x, w, s = case.draw(2, **BATCH[backend])
    given = [[p.requires_grad_() for p in part] for part in (x, w, s)]
    leaves = [p for part in given for p in part]
    for got, wanted in zip(case.run(*given, backend), case.run(*given), strict=True):
        near(
            torch.autograd.grad(loss([got]), leaves, retain_graph=True, materialize_grads=True),
            torch.autograd.grad(loss([wanted]), leaves, retain_graph=True, materialize_grads=True),
            1e-10,
            least=1e-3,
        )


@some_kernels
def test_an_output_that_was_overwritten(case: Case, backend: str):
    """The gradient is right, or autograd says what happened: a kernel may keep its output for the backward pass."""
    parts = case.draw(2, **BATCH[backend])
    x, w, s = ([p.clone().requires_grad_() for p in part] for part in parts)
    output, *_ = case.run(x, w, s, backend)
    output.mul_(2)
    try:
        got = torch.autograd.grad(loss([output]), x)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
    else:
        output, *_ = case.run(x, w, s)
        near(got, torch.autograd.grad(loss([output * 2]), x), 1e-10)


@some_kernels
def test_inference_and_checkpoints_change_no_bit(case: Case, backend: str):
    parts = case.draw(2, **BATCH[backend])
    wanted = case.gradients(*parts, backend)
    with torch.inference_mode():
        outputs = case.run(*parts, backend)
    same_bits(outputs, wanted[: len(outputs)])
    given = [[p.clone().requires_grad_() for p in part] for part in parts]
    again = checkpoint(case.run, *given, backend, use_reentrant=False)
    same_bits((*again, *torch.autograd.grad(loss(again), [p for part in given for p in part])), wanted)


# -- the same bits -------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    "sliced": lambda x: torch.stack([x, torch.full_like(x, torch.nan)], dim=-1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x),
}


def pulled(case: Case, parts: Parts, backend: str, arrange: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Outputs and gradients, where all that is given and the gradients that arrive lie in memory as arranged."""
    given = [[arrange(x).detach().requires_grad_() for x in part] for part in parts]
    outputs = case.run(*given, backend)
    rng = torch.Generator().manual_seed(1)
    arriving = [arrange(torch.randn(o.shape, generator=rng, dtype=o.dtype)) for o in outputs]
    return *outputs, *torch.autograd.grad(outputs, [x for part in given for x in part], arriving)


@some_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_inputs_changes_no_bit(case: Case, backend: str, layout: str):
    parts, arrange = case.draw(**SMALL[backend]), LAYOUTS[layout]
    same_bits(pulled(case, parts, backend, arrange), pulled(case, parts, backend, lambda x: arrange(x).contiguous()))


@with_backends("cpu", *(["gpu"] if torch.cuda.is_available() else []))  # the interpreter has but one order
def test_the_same_inputs_give_the_same_bits(case: Case, backend: str):
    parts = case.draw(**SMALL[backend])
    same_bits(case.gradients(*parts, backend), case.gradients(*parts, backend))


@pytest.fixture
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads_as_before")
@with_backends("cpu")
def test_the_number_of_threads_changes_no_bit(case: Case, backend: str):
    parts, made = case.draw(9, batch=40, groups=2, H=3), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        made.append(case.gradients(*parts, backend))
    same_bits(*made)


@every_kernel
def test_a_row_does_not_see_the_others(case: Case, backend: str):
    """And a NaN is not lost in it: rows lie side by side, and a minimum or maximum may swallow it."""
    x, w, s = case.draw(3, batch=4, H=1)
    poisoned = [p.clone() for p in x]
    for p in poisoned:
        p[1, :, 1] = torch.nan
    others = [0, 2, 3]
    for clean, got, wanted in zip(
        case.run(x, w, s, backend), case.run(poisoned, w, s, backend), case.run(poisoned, w, s), strict=True
    ):
        assert torch.equal(got[others], clean[others])
        assert got[wanted.isnan()].isnan().all()


# -- nothing at all ------------------------------------------------------------------------------------------------


@every_kernel
def test_an_empty_batch(case: Case, backend: str):
    x, w, s = case.draw(5, batch=0, groups=2)
    given = [[p.requires_grad_() for p in part] for part in (x, w, s)]
    outputs = case.run(*given, backend)
    assert [o.shape for o in outputs] == [(0, *o.shape[1:]) for o in case.run(*case.draw(5))]
    gradients = torch.autograd.grad(loss(outputs), [p for part in given for p in part])
    same_bits(gradients, tuple(torch.zeros_like(p) for part in given for p in part))
