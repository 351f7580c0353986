"""Work on a GPU, captured once as a graph and replayed: no Python, no launches one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch

WARMUPS = 3  # calls before the capture, in which kernels are compiled and libraries choose theirs


class Program:
    """A function of nothing that works on tensors in place. It can be called; after `capture` it is replayed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()

    def capture(self, pool: torch.cuda._POOL_HANDLE) -> str:
        """Call the function a few times, then capture it; says why it could not be, and is called as before then.

        Programs that run one after the other and leave nothing in their own memory can share a pool of it.
        """
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARMUPS):
                self.work()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=pool):
                self.work()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            torch.cuda.synchronize()
            return str(error).splitlines()[0]
        self.graph = graph
        return ""
