"""Which of two methods is faster at which sizes, measured on one H200 in strict float32.

`bench/crossovers.py` measures both methods; tests/ops/test_crossovers.py compares the choices with its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.ops.gpu.common import padded


@dataclass(frozen=True)
class Crossover:
    """Two methods for some work: `above` where every size is at least as large as in `least`, otherwise `below`."""

    work: str
    below: str
    above: str
    least: dict[str, int]

    def choice(self, sizes: Mapping[str, int]) -> str:
        return self.above if all(sizes[name] >= least for name, least in self.least.items()) else self.below


CROSSOVERS = {
    crossover.work: crossover
    for crossover in (
        # A linear map of `rows` vectors of size `depth` in every group.
        Crossover("product", "kept weight", "large tiles", {"depth": 129}),
        # Its weight's gradient, a sum of `rows` outer products of vectors of two sizes, of which one is `large`.
        Crossover("weight gradient", "small tiles", "large tiles", {"small": 97, "large": 129}),
        # A recurrent network, forward and backward. One launch takes no more `bytes` of matrices than fit on chip.
        Crossover("recurrence", "one launch", "step by step", {"bytes": 2**16 + 1}),
    )
}


def matrix_bytes(gates: int, dim: int, itemsize: int) -> int:
    """What the recurrent matrices of one head take on chip, where sizes are powers of two."""
    return gates * padded(dim, 16) ** 2 * itemsize


def choice(work: str, **sizes: int) -> str:
    """The method for some work at some sizes."""
    return CROSSOVERS[work].choice(sizes)
