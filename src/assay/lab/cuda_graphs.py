"""GPU work that is captured once as a CUDA graph and then replayed, without Python and without single launches."""

from __future__ import annotations

from collections.abc import Callable

import torch

WARMUP_CALLS = 3  # before the capture, so that kernels are compiled and libraries have chosen theirs


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

        Functions that run one after the other and leave nothing in their own memory can share a memory pool.
        """
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for _ in range(WARMUP_CALLS):
                self.function()
        torch.cuda.current_stream().wait_stream(side_stream)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool):
                self.function()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize()
            return str(error).splitlines()[0]
        self.graph = graph
        return ""
