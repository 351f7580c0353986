"""The scratch memory of a kernel: a layout declares its areas once, each with a name and a number of vectors.

`launch` allocates the areas of a layout one after the other, and `areas(scratch)` in a kernel returns them in the same
order. With ASSAY_DEBUG=1 in the environment every access is checked, and one outside of its area raises IndexError.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from numba.extending import overload

LANES = 16  # numbers in a vector
DEBUG = os.environ.get("ASSAY_DEBUG") == "1"

Layout = dict[str, int]


def allocate(layout: Layout, threads: int, dtype: torch.dtype) -> list[tuple[Any, tuple[int, ...]]]:
    """For every thread its uninitialised memory and the sizes of the areas in it."""
    sizes = tuple(layout.values())
    memory = torch.empty(threads, sum(sizes) * LANES, dtype=dtype).numpy()
    return [(memory[thread], sizes) for thread in range(threads)]


def areas(scratch): ...


@overload(areas, jit_options={"forceinline": True})
def _areas(scratch):
    if len(scratch[1]) == 1:
        return lambda scratch: (scratch[0],)

    def split(scratch):
        memory, sizes = scratch
        end = sizes[0] * LANES
        return (memory[:end], *areas((memory[end:], sizes[1:])))

    return split
