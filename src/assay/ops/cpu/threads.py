"""Run a function on several threads at once: those of PyTorch's own OpenMP pool where it can be called, else Python's.

After a parallel operation PyTorch's OpenMP threads keep their cores busy for some milliseconds while they wait for the
next one. Threads of our own would have to share the cores with them, and a model calls PyTorch between any two kernels.
numba's threading layers do not fit: OpenMP aborts in a forked child, the work queue aborts when two threads enter it,
and TBB has no wheel for every platform.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _State:
    """What a forked child must not take over: OpenMP would wait for threads that only its parent has."""

    forked = False
    executor: ThreadPoolExecutor | None = None
    size = 0

    def after_fork(self) -> None:
        self.forked, self.executor, self.size = True, None, 0

    def executor_of(self, size: int) -> ThreadPoolExecutor:
        if self.executor is None or self.size < size:
            self.executor, self.size = ThreadPoolExecutor(size, "assay-kernel"), size
        return self.executor


_state = _State()
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_state.after_fork)


def run_in_parallel(function: Callable[[], None], threads: int) -> None:
    """Call a function on several threads at once, the calling one included, and raise the first error.

    OpenMP calls it on each of its threads, be they more or fewer: the function takes its work from a common list. (A
    smaller team would end the other threads, and PyTorch's next operation would start them again.)
    """
    if threads == 1:
        function()
    elif (parallel := _openmp()) is None or _state.forked:
        futures = [_state.executor_of(threads - 1).submit(function) for _ in range(threads - 1)]
        function()
        for future in futures:
            future.result()
    else:
        errors: list[BaseException] = []

        def call(_: Any) -> None:
            try:
                function()
            except BaseException as error:  # an exception does not pass through the C code between
                errors.append(error)

        parallel(_Callback(call), None, 0, 0)
        if errors:
            raise errors[0]


@cache
def _openmp() -> Callable[..., None] | None:
    """GOMP_parallel(function, data, threads, flags) of the OpenMP library that PyTorch has loaded, if it has one.

    LLVM's and Intel's libraries export it as well as GNU's. 0 threads stands for as many as torch.get_num_threads().
    """
    try:
        (dependencies,) = (Path(torch.__file__).parent / "lib").glob("libtorch_global_deps.*")
        parallel = ctypes.CDLL(str(dependencies)).GOMP_parallel
    except (ValueError, OSError, AttributeError):
        return None
    parallel.argtypes, parallel.restype = [_Callback, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return parallel
