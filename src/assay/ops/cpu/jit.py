"""Compile the CPU kernels with numba, keep the machine code on disk, and run a kernel on several threads.

A kernel releases the interpreter's lock and works on a range of blocks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # only Unix has it
    fcntl = None  # type: ignore[assignment]
import numba
import torch
from torch import Tensor

from assay.ops.cpu.scratch import DEBUG, Layout, allocate
from assay.ops.cpu.threads import run_in_parallel

# Sums may be reordered and multiplications fused, for vector instructions; NaN and Inf keep their meaning.
FASTMATH = {"contract", "reassoc", "nsz", "arcp", "afn"}

if DEBUG:  # compiled with checks, and kept apart from kernels without them
    numba.config.BOUNDSCHECK = 1
    numba.config.CACHE_DIR = os.path.join(numba.config.CACHE_DIR or tempfile.gettempdir(), "assay-debug")

# All functions that a kernel calls are inlined. Otherwise numba compiles them twice, alone and with the kernel, and the
# copies round differently: the process that compiles the kernel runs the first, a process that loads it the second.
INLINE = {"forceinline": True}
inline = numba.njit(fastmath=FASTMATH, error_model="numpy", **INLINE)

PATIENCE = 60.0  # seconds to wait for another process that compiles the same kernel
_setting_folder = threading.Lock()


def kernel(function: Callable[..., None]) -> Callable[..., None]:
    """Compile a kernel at its first call on this machine; later processes load the machine code from disk."""
    compiled = numba.njit(nogil=True, fastmath=FASTMATH, error_model="numpy")(function)
    with _setting_folder:  # the setting is global, and threads may import two kernels at once
        before = numba.config.CACHE_DIR
        try:
            folder = _cache_folder()
            numba.config.CACHE_DIR = str(folder)
            compiled.enable_caching()
            _compile_in_turn(compiled, folder / f"{function.__module__}.{function.__name__}.lock")
        except (RuntimeError, OSError):  # no folder can be written: each process compiles the kernel, to the same code
            pass
        finally:
            numba.config.CACHE_DIR = before
    return compiled


def _compile_in_turn(compiled: Any, lock: Path) -> None:
    """Processes that need a kernel at the same time wait for the first, and load what it has compiled.

    They do not wait forever: the first may have been stopped, and the file system may not know locks.
    """
    compile_or_load = compiled.compile

    def in_turn(signature: Any) -> Any:
        with _locked(lock):
            return compile_or_load(signature)

    compiled.compile = in_turn


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, which ends with the process at the latest; without one if it cannot be had in time."""
    with ExitStack() as opened:
        with suppress(OSError):
            file, deadline = opened.enter_context(path.open("a")), time.monotonic() + PATIENCE
            while fcntl is not None and not _lock(file) and time.monotonic() < deadline:
                time.sleep(0.05)
        yield


def _lock(file: IO[str]) -> bool:
    """Lock a file, unless another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@functools.cache
def _cache_folder() -> Path:
    """A writable folder for this version of the kernels; OSError or RuntimeError if there is none.

    Its name has a hash of all sources, because numba only checks a kernel's own file and not the functions it calls.
    """
    here = Path(__file__).parent
    sources = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(here.glob("*.py"))))
    if numba.config.CACHE_DIR:
        parent = Path(numba.config.CACHE_DIR)
    elif os.access(here, os.W_OK):
        parent = here / "__pycache__"
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay"
    folder = parent / f"kernels-{sources.hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):  # numba would choose another folder, without the hash
        raise PermissionError(f"{folder} is read-only")
    return folder


def launch(run: Callable[..., None], blocks: int, layout: Layout, *arguments: Tensor | int | bool) -> None:
    """Call run(start, stop, scratch, *arguments) on ranges of the blocks, one per thread of torch's.

    Each has scratch memory of its own, of the first tensor's type.
    """
    first = next(x for x in arguments if isinstance(x, Tensor))
    threads = max(1, min(torch.get_num_threads(), blocks))
    scratch = allocate(layout, threads, first.dtype)
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in arguments]
    edges = [blocks * i // threads for i in range(threads + 1)]
    calls = iter([(edges[i], edges[i + 1], scratch[i], *arrays) for i in range(threads)])

    def run_calls() -> None:
        for call in calls:  # each thread takes the next one
            run(*call)

    run_in_parallel(run_calls, threads)
