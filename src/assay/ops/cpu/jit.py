"""How a kernel is compiled, kept on disk, and run on several threads.

Threads are Python's: a kernel releases the interpreter's lock and takes a range of blocks. numba's own layers were
weighed: OpenMP's aborts a forked child, the work queue's aborts when two threads meet in it, and TBB has no wheel for
every platform.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import torch
from torch import Tensor

from assay.ops.cpu.scratch import DEBUG, Layout, allocate

# Sums may be reordered and multiplications fused, for vector instructions; NaN and Inf keep their meaning.
FASTMATH = {"contract", "reassoc", "nsz", "arcp", "afn"}

if DEBUG:  # compiled with checks, and kept apart from kernels without them
    numba.config.BOUNDSCHECK = 1
    numba.config.CACHE_DIR = os.path.join(numba.config.CACHE_DIR or tempfile.gettempdir(), "assay-debug")

inline = numba.njit(fastmath=FASTMATH, error_model="numpy")


def kernel(function: Callable[..., None]) -> Callable[..., None]:
    """Compile at the first call on this machine, and load what was compiled from then on."""
    compiled = numba.njit(nogil=True, fastmath=FASTMATH, error_model="numpy")(function)
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_cache())
    try:
        compiled.enable_caching()
    except (RuntimeError, OSError):  # no folder can be written: every process compiles for itself
        pass
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def _cache() -> Path:
    """A folder for this very source: numba's check sees a kernel's own file, but not the ones that it calls into."""
    here = Path(__file__).parent
    sources = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(here.glob("*.py"))))
    if numba.config.CACHE_DIR:
        above = Path(numba.config.CACHE_DIR)
    elif os.access(here, os.W_OK):
        above = here / "__pycache__"
    else:
        above = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay"
    return above / f"kernels-{sources.hexdigest()[:12]}"


class _Pool:
    """The threads beside the calling one; a forked child starts without any."""

    executor: ThreadPoolExecutor | None = None
    size = 0

    def forget(self) -> None:
        self.executor, self.size = None, 0

    def with_size(self, size: int) -> ThreadPoolExecutor:
        if self.executor is None or self.size < size:
            self.executor, self.size = ThreadPoolExecutor(size, "assay-kernel"), size
        return self.executor


_pool = _Pool()
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_pool.forget)


def launch(run: Callable[..., None], blocks: int, layout: Layout, *arguments: Tensor | int | bool) -> None:
    """Call run(start, stop, scratch, *arguments) on ranges of the blocks, one per thread of torch's.

    Each has scratch memory of its own, of the first tensor's type.
    """
    first = next(x for x in arguments if isinstance(x, Tensor))
    threads = max(1, min(torch.get_num_threads(), blocks))
    scratch = allocate(layout, threads, first.dtype)
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
    edges = [blocks * i // threads for i in range(threads + 1)]
    calls: list[tuple[Any, ...]] = [(edges[i], edges[i + 1], scratch[i], *arrays) for i in range(threads)]
    running = [_pool.with_size(threads - 1).submit(run, *call) for call in calls[1:]]
    run(*calls[0])
    for future in running:
        future.result()
