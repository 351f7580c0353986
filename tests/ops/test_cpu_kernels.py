"""The CPU's kernels are compiled once on a machine and survive a fork; debug mode checks their scratch memory."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay.ops.cpu import jit

from .cases import CASES, KERNELS, installed

pytestmark = installed("cpu")

RUN = """
import torch
from assay import ops
torch.set_num_threads(2)
x = torch.ones(40, 2, 3, 4)
h, _ = ops.elman(x, torch.ones(1, 2, 4, 4), backend="cpu")
"""
COUNT = """
from assay.ops.cpu.elman import _forward
(hits,), (misses,) = _forward.stats.cache_hits.values() or [0], _forward.stats.cache_misses.values() or [0]
print(hits, misses)
"""
FORK = """
import os, sys
child = os.fork()
again, _ = ops.elman(x, torch.ones(1, 2, 4, 4), backend="cpu")
assert torch.equal(again, h)
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def python(program: str, cache: Path) -> str:
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache), "NUMBA_OPT": "1"}  # compiled sooner
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def test_a_kernel_is_compiled_once_on_a_machine(cache: Path):
    """Also by processes that need it at the same time: one waits for the other."""
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda _: python(RUN + COUNT, cache), range(2))) == ["0 1", "1 0"]


def test_a_process_that_never_ends_its_turn_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jit, "PATIENCE", 0.1)
    entered = []
    with jit._locked(tmp_path / "lock"), jit._locked(tmp_path / "lock"):
        entered.append(1)
    with jit._locked(tmp_path / "no-folder" / "lock"):
        entered.append(2)
    assert entered == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_threads_of_its_own(cache: Path):
    python(RUN + FORK, cache)


THREADS = """
import threading
import torch
from assay.ops.cpu import threads
torch.set_num_threads(2)

def run(count):
    arrived, all_here = [], threading.Barrier(count)
    def arrive():
        all_here.wait(10)
        arrived.append(threading.get_ident())
        if len(arrived) == count:
            raise ValueError("the last one")
    try:
        threads.run_in_parallel(arrive, count)
    except ValueError:
        return set(arrived)
    raise AssertionError("the error was lost")

first, second = run(2), run(2)
assert len(first) == 2 and threading.get_ident() in first
assert first == second  # the threads stay
"""
FALLBACK = "threads._openmp = lambda: None\nassert len(run(2)) == 2\n"


def test_a_function_runs_on_several_threads_and_its_error_arrives(cache: Path):
    python(THREADS + FALLBACK, cache)


def test_all_rows_are_computed_where_openmp_has_fewer_threads(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    python("import threading\n" + RUN + "assert threading.active_count() == 1\n" + EQUAL, cache)


# -- scratch memory ------------------------------------------------------------------------------------------------

OVERRUN = """
import torch
from assay.ops.cpu.jit import kernel, launch
from assay.ops.cpu.lanes import take
from assay.ops.cpu.scratch import LANES, areas
from assay.ops.cpu.vector import load, store

@kernel
def write(start, stop, scratch, x, out, how):
    first, second = areas(scratch)
    for i in range(2):
        store(second, i, load(x, i))
    if how == 0:
        store(first, 2, load(x, 0))
    elif how == 1:
        store(second, 0, load(first, -1))
    elif how == 2:
        second[2 * LANES] = 0
    elif how == 3:
        store(take(first, 1, 2), 0, load(x, 0))
    for i in range(2):
        store(out, i, load(second, i))

def run(how, second=2):
    x, out = torch.arange(2.0 * LANES), torch.zeros(2 * LANES)
    launch(write, 1, {"first": 2, "second": second}, x, out, how)
    assert torch.equal(x, out)

run(4)
for arguments in ((0,), (1,), (2,), (3,), (4, 1)):
    try:
        run(*arguments)
    except IndexError:
        continue
    raise AssertionError(f"{arguments} was not caught")
"""
EQUAL = """
parts = x.requires_grad_(), torch.full((1, 2, 4, 4), 0.1, requires_grad=True)
results = []
for backend in ("cpu", "reference"):
    h, _ = ops.elman(*parts, backend=backend)
    results.append((h, *torch.autograd.grad(h.sum(), parts)))
for got, wanted in zip(*results):
    torch.testing.assert_close(got, wanted)
"""


@pytest.mark.parametrize("name", [name for name, backend in KERNELS if backend == "cpu" and name != "attention"])
def test_a_kernel_takes_the_areas_that_its_layout_declares(name: str, monkeypatch: pytest.MonkeyPatch):
    module, layouts = importlib.import_module(f"assay.ops.cpu.{name}"), []
    launch = module.launch

    def recorded(run: Any, blocks: int, layout: dict[str, int], *arguments: Any) -> None:
        layouts.append(list(layout))
        launch(run, blocks, layout, *arguments)

    monkeypatch.setattr(module, "launch", recorded)
    CASES[name].gradients(CASES[name].draw(2), "cpu")
    unpacked = re.findall(r"^    (.+) = areas\(scratch\)$", inspect.getsource(module), re.MULTILINE)
    assert [names.strip("(),").split(", ") for names in unpacked] == [names for names in layouts if names]


def test_debug_mode_catches_an_access_outside_of_its_area(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ASSAY_DEBUG", "1")
    python(OVERRUN + RUN + EQUAL, cache)


SEGMENTS = """
import torch
from tests.ops.cases import CASES

x, w, s = CASES[{name!r}].draw(9)
parts = [[tensor.float() for tensor in part] for part in (x, w, s)]
for got, wanted in zip(CASES[{name!r}].gradients(parts, "cpu"), CASES[{name!r}].gradients(parts), strict=True):
    torch.testing.assert_close(got, wanted)
"""


@pytest.mark.parametrize("name", ["dplr", "m2rnn"])
def test_states_that_are_computed_again_stay_in_their_areas(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ASSAY_DEBUG", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]))
    python(SEGMENTS.format(name=name), cache)
