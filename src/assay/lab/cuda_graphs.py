"""GPU work that is captured once as a CUDA graph and then replayed, without Python and without single launches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache

import torch

from assay.lab.locks import EXCLUSIVE
from assay.lab.pace import LOADING


class GraphedFunction:
    """A function without arguments that works on tensors in place; after `capture` a call replays its graph."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()

    def capture(self, pool: torch.cuda._POOL_HANDLE) -> str:
        """Capture the function; returns why that failed, or an empty string. After a failure calls stay direct.

        Functions that run one after the other and leave nothing in their own memory can share a memory pool. Other
        threads may use the device on other streams meanwhile.
        """
        with EXCLUSIVE:
            return self._capture(pool)

    def _capture(self, pool: torch.cuda._POOL_HANDLE) -> str:
        current = torch.cuda.current_stream()
        stream = (
            _side_stream(current.device) if current == torch.cuda.default_stream() else current
        )  # which cannot be captured
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            with LOADING:
                self.function()  # kernels are compiled and loaded, and libraries allocate what they need
            _return_unused_memory()
            graph = torch.cuda.CUDAGraph()
            try:
                self._capture_into(graph, pool)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                stream.synchronize()
                return str(error).splitlines()[0]
        current.wait_stream(stream)
        self.graph = graph
        return ""

    def _capture_into(self, graph: torch.cuda.CUDAGraph, pool: torch.cuda._POOL_HANDLE) -> None:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            self.function()
        except BaseException:
            with suppress(RuntimeError):  # a capture that has failed cannot be ended properly
                graph.capture_end()
            raise
        graph.capture_end()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all captures: graphs of one pool reuse memory only if they were captured on the same stream."""
    return torch.cuda.Stream(device)


def _return_unused_memory() -> None:
    """Return what PyTorch keeps for reuse, if that is more than what is free: a graph can only use new memory."""
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > torch.cuda.mem_get_info()[0]:
        torch.cuda.empty_cache()  # waits for the device


def wait_for_device(device: torch.device) -> None:
    """Wait until the current stream has done its work. The thread sleeps; PyTorch itself would keep a core busy."""
    if device.type == "cuda":
        event = torch.cuda.Event(blocking=True)
        event.record()
        event.synchronize()
