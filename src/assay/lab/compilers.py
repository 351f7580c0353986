"""Processes that compile GPU kernels, so that the process that trains finds them in Triton's cache.

Compiling is mostly Python, so threads would take turns, also with the groups that train already. The processes are
forked from a server process, which imports PyTorch while the command does. This module imports nothing heavy itself.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver
from pathlib import Path

MOST_PROCESSES = 12
GPU_BYTES = 4 << 30  # of free GPU memory per process: each takes half a GiB


class Compilers:
    """Compiles every distinct kernel once: in processes if they were prepared, otherwise in threads.

    What has been compiled is noted in Triton's cache: starting the processes takes longer than looking there.
    """

    def __init__(self) -> None:
        self.prepared, self.lock = False, threading.Lock()
        self.pool: ProcessPoolExecutor | ThreadPoolExecutor | None = None
        self.calls: dict[tuple[str, str, str], Future[None]] = {}

    def prepare(self) -> None:
        """Start the server process, if there is an NVIDIA GPU."""
        if not self.prepared and os.path.exists("/dev/nvidiactl"):
            multiprocessing.set_forkserver_preload([compile_call.__module__, "torch", "triton", "assay.ops"])
            forkserver.ensure_running()
            self.prepared = True

    def compile(self, call: str, products: str, device: str, memory: float) -> Future[None] | None:
        """Compile the kernels of an operator call, unless they are; `memory` is the free memory of the device."""
        key = call, products, device
        if self.prepared and _note(*key).exists():
            return None
        with self.lock:
            self.pool = self.pool or self._new_pool(memory)
            if key not in self.calls:
                self.calls[key] = self.pool.submit(compile_call, *key)
            return self.calls[key]

    def _new_pool(self, memory: float) -> ProcessPoolExecutor | ThreadPoolExecutor:
        cores = os.cpu_count() or 1
        if not self.prepared:
            return ThreadPoolExecutor(cores)
        processes = max(1, min(MOST_PROCESSES, cores, int(memory // GPU_BYTES)))
        context = multiprocessing.get_context("forkserver")
        return ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))

    def stop(self) -> None:
        """End the processes; a later call starts new ones."""
        with self.lock:
            if self.pool:
                self.pool.shutdown(wait=False, cancel_futures=True)
            self.pool, self.calls = None, {}


compilers = Compilers()


def compile_call(call: str, products: str, device: str) -> None:
    """Make a call with zeros, which compiles its kernels; in a process or thread of `Compilers`."""
    import torch

    from assay.lab.tracing import repeat_call

    with suppress(Exception):  # the step itself will meet and report it
        if multiprocessing.parent_process() is None:
            repeat_call(call, torch.device(device))
            return
        torch.set_float32_matmul_precision(products)
        repeat_call(call, torch.device(device))
        note = _note(call, products, device)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.touch()


def _note(call: str, products: str, device: str) -> Path:
    """The file which says that the kernels of a call have been compiled from the present code."""
    folder = os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache"
    text = "\n".join([_code(), call, products, device])
    return Path(folder) / "assay" / hashlib.sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """A hash of the code of the kernels, and the version of PyTorch, which comes with their compiler."""
    import torch

    files = sorted((Path(__file__).parent.parent / "ops" / "gpu").glob("*.py"))
    sources = b"".join(file.read_bytes() for file in files)
    return f"{hashlib.sha256(sources).hexdigest()} {torch.__version__}"
