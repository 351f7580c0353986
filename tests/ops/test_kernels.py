"""The kernels equal the reference: outputs, final states and all gradients, over uninitialised memory full of NaN.

Without a GPU its kernels run here through Triton's interpreter, at sizes that it gets through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from torch import Tensor
from torch.utils import deterministic
from torch.utils.checkpoint import checkpoint

from .cases import BACKENDS, CASES, PLAIN, VARIANTS, Case, Parts, flat, loss, runs, trainable, with_backends

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
Sizes = dict[str, int]

ON_GPU = torch.cuda.is_available()
LENGTHS = {"cpu": (1, 65), "gpu": (1, 2, 17, 63, 64, 65, 257, 1024) if ON_GPU else (1, 17)}
HEAD_SIZES = {"cpu": (1, 31), "gpu": (1, 3, 8, 16, 31, 64, 128) if ON_GPU else (1, 31)}
BATCH = {"cpu": {"batch": 3}, "gpu": {"batch": 3} if ON_GPU else {"batch": 1, "H": 1}}  # interpreted row by row
GROUPS = {
    "cpu": {"batch": 4, "groups": 2},
    "gpu": {"batch": 4, "groups": 2} if ON_GPU else {"batch": 2, "groups": 2, "H": 1},
}
SMALL = {"cpu": {"time": 9, "batch": 18, "groups": 2}, "gpu": {"time": 9 if ON_GPU else 2, "batch": 4, "groups": 2}}


def settings(case: Case, backend: str) -> dict[str, Sizes]:
    """The sizes that a case is drawn with: one thing at a time, with small sizes of all else."""
    batch, groups = BATCH[backend], GROUPS[backend]
    sizes = {f"time={time}": {"time": time, **batch} for time in LENGTHS[backend]}
    heads = [n for n in HEAD_SIZES[backend] if backend == "cpu" or n <= case.operator.head_limit]
    sizes |= {f"size={n}": {"time": 3, **groups, "K": n, "V": n, "D": n} for n in heads}
    if case in VARIANTS.values() and not ON_GPU:
        longest, largest = LENGTHS[backend][-1], HEAD_SIZES[backend][-1]
        return {name: sizes[name] for name in (f"time={longest}", f"size={largest}")}
    if backend == "cpu" or ON_GPU:  # several segments, the last of one step
        sizes |= {"time=101-size=64": {"time": 101, **batch, "K": 64, "V": 64, "D": 64}}
    sizes |= {"heads=3": {"time": 2, **batch, "H": 3}}
    if backend == "cpu" or ON_GPU or case.operator.by_group:  # where a kernel takes sixteen rows at a time
        sizes |= {"rows=17": {"time": 1, "batch": 17, "H": 1}}
    if case.operator.by_group and not case.operator.bounded and ON_GPU:  # matrices that do not fit on chip
        sizes |= {f"size={n}-rows=70": {"time": 3, "batch": 140, "groups": 2, "D": n} for n in (72, 200)}
    if backend == "cpu":  # full lanes, whose columns are moved four at a time
        sizes |= {"rows=17-size=6": {"time": 3, "batch": 17, "H": 2, "K": 6, "V": 9, "D": 6}}
    if case.operator.weights:
        sizes |= {"groups=rows": {"time": 3, **groups, "groups": groups["batch"]}}
        sizes |= {"groups=2-rows=34": {"time": 2, "batch": 34, "groups": 2}} if backend == "cpu" or ON_GPU else {}
    if "V" in case.axes:
        sizes |= {"key<value": {"time": 3, **batch, "K": 5, "V": 18}}
        sizes |= {"key>value": {"time": 3, **batch, "K": 18, "V": 5}}
    if "V" in case.axes and case.operator.chunked and not case.operator.choices and backend == "gpu":  # other chunks
        sizes |= {"time=65": {"time": 65, **batch}, "time=70-size=33": {"time": 70, **batch, "K": 33, "V": 33}}
        sizes |= {"time=70-rows=140": {"time": 70, "batch": 140, "K": 16, "V": 16}} if ON_GPU else {}
    if case.name in ("srwm", "recurrent_delta") and backend == "gpu":  # sixteen lanes in float32
        sizes |= {"size=12": {"time": 3, "batch": 3, "H": 1, "K": 12, "V": 9, "D": 12}}
    if case.operator.choices:  # one decay for all keys, no correction, a token of one write
        sizes |= {"decays=1": {"time": 3, **batch, "L": 1}, "corrections=0": {"time": 3, **batch, "R": 0}}
        sizes |= {"writes=1-decays=1-corrections=0": {"time": 3, **batch, "M": 1, "L": 1, "R": 0}}
        sizes |= {"key=128": {"time": 2, **batch, "K": 128, "V": 40}} if backend == "gpu" else {}
    if "S" in case.axes:  # several tiles, the last of one step, with a past and without
        sizes |= {"time=70-past=59": {"time": 70, **batch, "S": 129}, "time=1-past=64": {"time": 1, **batch, "S": 65}}
        sizes |= {"time=129-size=64": {"time": 129, **batch, "D": 64}, "size=128": {"time": 65, **batch, "D": 128}}
    if "N" in case.axes:
        states = (1, 9) if backend == "gpu" and not ON_GPU else HEAD_SIZES[backend]
        sizes |= {f"states={n}": {"time": 3, **groups, "N": n} for n in states}
    if "O" in case.axes:  # several tiles of rows, of a weight that is kept or streamed, and of its columns
        shapes = [(1, 1), (31, 8), (100, 130), (140, 20)]
        shapes += [(8, 31), (64, 130), (70, 33), (130, 70), (150, 200)] if ON_GPU else []
        sizes |= {f"in={d}-out={o}": {"time": 5, "batch": 34, "groups": 2, "H": 1, "D": d, "O": o} for d, o in shapes}
    return sizes


every_setting = pytest.mark.parametrize(
    ("case", "backend", "sizes"),
    [
        pytest.param(*run.values, sizes, id=f"{run.id}-{label}", marks=run.marks)
        for run in runs("cpu", "gpu")
        for label, sizes in settings(*run.values).items()
    ],
)
every_kernel = with_backends("cpu", "gpu", among=PLAIN)
# What all kernels have in common is tested with few of them.
some_kernels = pytest.mark.parametrize(
    ("case", "backend"),
    [
        *runs("cpu", among=["recurrent_delta", "srwm", "elman", "lstm", "selective_scan"]),
        *runs("gpu", among=["retention", "lstm"]),
    ],
)
on_every_backend = with_backends(*BACKENDS, among=PLAIN)


@pytest.fixture(autouse=True)
def _memory_is_nan_until_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", True)
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(before)


def in_precision(parts: Parts, dtype: torch.dtype) -> Parts:
    x, w, s = ([p.to(dtype) for p in part] for part in parts)
    return x, w, s


def near(got: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float, least: float = 0.0) -> None:
    """In float64 every entry, against the largest one (or `least`); in less, the norm of the difference."""
    assert len(got) == len(wanted)
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape, index
        order = torch.inf if tolerance < 1e-6 and b.numel() else 2
        error, size = (torch.linalg.vector_norm(x, order).item() for x in (a.to(b.dtype) - b, b))
        assert error <= tolerance * (max(size, least) or 1.0), f"{index}: off by {error:.1e} of {size:.1e}"


def same_bits(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    for index, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert torch.equal(a, b), index


# -- the same numbers ----------------------------------------------------------------------------------------------


@every_setting
def test_equals_the_reference(case: Case, backend: str, sizes: Sizes):
    single = in_precision(case.draw(**sizes), torch.float32)
    double = in_precision(single, torch.float64)
    wanted = case.gradients(double)
    both = ((double, torch.float64), (single, torch.float32))
    interpreted = backend == "gpu" and not ON_GPU  # too slow for both at all sizes
    for parts, dtype in both[:1] if interpreted and case in VARIANTS.values() else both:
        got = case.gradients(parts, backend)
        assert {x.dtype for x in got} == {dtype}
        near(got, wanted, TOLERANCE[dtype])


LINEAR = {"linear_attention", "retention", "delta_rule", "dplr", "diagonal_scan", "permuted_scan", "selective_scan"}
LINEAR |= {"affine", "layer_norm"}
SATURATING = [name for name, case in CASES.items() if case.name not in LINEAR]  # a new operator is tested too


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # of the interpreter
@with_backends("cpu", "gpu", among=SATURATING)
def test_gates_saturate(case: Case, backend: str):
    x, w, s = case.draw(4, **BATCH[backend])
    parts = [p * 1e3 for p in x], w, s
    near(case.gradients(parts, backend), case.gradients(parts), 1e-10, least=10.0)  # differences of numbers of 1e6


@on_every_backend
def test_bfloat16_keeps_a_float32_state(case: Case, backend: str):
    x, w, s = in_precision(case.draw(5, **BATCH.get(backend, {})), torch.float32)
    low = [p.bfloat16() for p in x], [p.bfloat16() for p in w], s
    got, wanted = case.gradients(low, backend), case.gradients(in_precision(low, torch.float32))
    dtypes = [p.dtype for p in flat(low)]
    assert [p.dtype for p in got] == [torch.bfloat16] + [torch.float32] * (len(got) - len(dtypes) - 1) + dtypes
    near(got, wanted, 1e-2)


@with_backends(*BACKENDS, among=["delta_rule", "srwm", "elman", "lstm", "layer_norm"])
def test_a_float32_state_is_handed_over_in_bfloat16(case: Case, backend: str):
    x, w, s = in_precision(case.draw(4, **BATCH.get(backend, {})), torch.float32)
    x, w = ([p.bfloat16() for p in part] for part in (x, w))
    first = case.run(([p[:, :, :2] for p in x], w, s), backend)
    second = case.run(([p[:, :, 2:] for p in x], w, first[1:]), backend)
    outputs = torch.cat([first[0], second[0]], dim=2)
    near((outputs, *second[1:]), case.run((x, w, s), backend), 1e-2)


# -- what autograd may do ------------------------------------------------------------------------------------------


@every_kernel
def test_a_loss_of_one_output_alone(case: Case, backend: str):
    """An output that is not part of the loss has no gradient rather than a gradient of zeros."""
    parts = trainable(case.draw(2, **BATCH[backend]))
    for got, wanted in zip(case.run(parts, backend), case.run(parts), strict=True):
        near(
            torch.autograd.grad(loss([got]), flat(parts), retain_graph=True, materialize_grads=True),
            torch.autograd.grad(loss([wanted]), flat(parts), retain_graph=True, materialize_grads=True),
            1e-10,
            least=1e-3,
        )


@some_kernels
def test_an_output_that_was_overwritten(case: Case, backend: str):
    """The gradient is right, or autograd reports the change: a kernel may keep its output for the backward pass."""
    parts = trainable(case.draw(2, **BATCH[backend]))
    output, *_ = case.run(parts, backend)
    output.mul_(2)
    try:
        got = torch.autograd.grad(loss([output]), parts[0])
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
    else:
        output, *_ = case.run(parts)
        near(got, torch.autograd.grad(loss([output * 2]), parts[0]), 1e-10)


@some_kernels
def test_inference_and_checkpoints_change_no_bit(case: Case, backend: str):
    parts = case.draw(2, **BATCH[backend])
    wanted = case.gradients(parts, backend)
    with torch.inference_mode():
        outputs = case.run(parts, backend)
    same_bits(outputs, wanted[: len(outputs)])
    leaves = trainable(parts)
    again = checkpoint(case.run, leaves, backend, use_reentrant=False)
    same_bits((*again, *torch.autograd.grad(loss(again), flat(leaves))), wanted)


# -- the same bits -------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.transpose(1, -1).contiguous().transpose(1, -1),
    "sliced": lambda x: torch.stack([x, torch.full_like(x, torch.nan)], dim=-1)[..., 0],
    "expanded": lambda x: x[:1].expand_as(x),
}


def pulled(case: Case, parts: Parts, backend: str, arrange: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    """Outputs and gradients, where all inputs and the outputs' gradients lie in memory as arranged."""
    leaves = trainable([[arrange(x) for x in part] for part in parts])
    outputs = case.run(leaves, backend)
    rng = torch.Generator().manual_seed(1)
    grads = [arrange(torch.randn(o.shape, generator=rng, dtype=o.dtype)) for o in outputs]
    return *outputs, *torch.autograd.grad(outputs, flat(leaves), grads)


@some_kernels
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_the_inputs_changes_no_bit(case: Case, backend: str, layout: str):
    parts, arrange = case.draw(**SMALL[backend]), LAYOUTS[layout]
    same_bits(pulled(case, parts, backend, arrange), pulled(case, parts, backend, lambda x: arrange(x).contiguous()))


@with_backends("cpu", *(["gpu"] if ON_GPU else []), among=PLAIN)  # the interpreter has but one order
def test_the_same_inputs_give_the_same_bits(case: Case, backend: str):
    parts = case.draw(**SMALL[backend])
    same_bits(case.gradients(parts, backend), case.gradients(parts, backend))


@pytest.fixture
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads_as_before")
@with_backends("cpu", among=PLAIN)
def test_the_number_of_threads_changes_no_bit(case: Case, backend: str):
    parts, results = case.draw(9, batch=40, groups=2, H=3), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(case.gradients(parts, backend))
    same_bits(*results)


@every_kernel
def test_a_row_does_not_see_the_others(case: Case, backend: str):
    """And a NaN is not lost in it: rows lie side by side, and a minimum or maximum may swallow it."""
    x, w, s = case.draw(3, batch=4, H=1)
    poisoned = [p.clone() for p in x]
    for p in poisoned:
        p[1, :, 1] = torch.nan
    others = [0, 2, 3]
    results = (case.run((x, w, s), backend), case.run((poisoned, w, s), backend), case.run((poisoned, w, s)))
    for clean, got, wanted in zip(*results, strict=True):
        assert torch.equal(got[others], clean[others])
        assert got[wanted.isnan()].isnan().all()


# -- no rows -------------------------------------------------------------------------------------------------------


@every_kernel
def test_an_empty_batch(case: Case, backend: str):
    parts = trainable(case.draw(5, batch=0, groups=2))
    outputs = case.run(parts, backend)
    assert [o.shape for o in outputs] == [(0, *o.shape[1:]) for o in case.run(case.draw(5))]
    gradients = torch.autograd.grad(loss(outputs), flat(parts))
    same_bits(gradients, tuple(torch.zeros_like(p) for p in flat(parts)))


def test_every_case_is_an_operator_with_its_flags():
    assert {case.name for case in CASES.values()} == {case.name for case in PLAIN.values()}
    for case in PLAIN.values():
        varied = [set(flags) for flags in case.operator.variants.values()]
        assert set().union(*varied) == set(case.operator.flags), f"a flag of {case.name} has no variant"
