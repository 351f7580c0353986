"""Which of two methods is faster at which sizes, measured on one H200 in strict float32.

`bench/crossovers.py` measures the times again, and tests/ops/test_crossovers.py compares the choices with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from assay.ops.gpu.common import padded

Sizes = Mapping[str, int]


class Measured(NamedTuple):
    """Milliseconds of both methods at some sizes."""

    sizes: dict[str, int]
    below: float
    above: float


@dataclass(frozen=True)
class Crossover:
    """Two methods for some work: `above` where every size is at least as large as in `least`, otherwise `below`."""

    work: str
    below: str
    above: str
    least: dict[str, int]
    measured: tuple[Measured, ...]

    def choice(self, sizes: Sizes) -> str:
        return self.above if all(sizes[name] >= least for name, least in self.least.items()) else self.below


def _product(groups: int, rows: int, depth: int, out: int, below: float, above: float) -> Measured:
    return Measured({"groups": groups, "rows": rows, "depth": depth, "out": out}, below, above)


# A linear map of `rows` vectors of size `depth` in every group.
PRODUCT = Crossover(
    "product",
    below="kept weight",
    above="large tiles",
    least={"depth": 129},
    measured=(
        _product(64, 1600, 64, 256, 0.055, 0.084),
        _product(16, 25600, 128, 128, 0.192, 0.212),
        _product(64, 1600, 128, 512, 0.181, 0.220),
        _product(64, 1600, 256, 64, 0.064, 0.064),
        _product(16, 25600, 192, 192, 0.642, 0.511),
        _product(4, 64, 1024, 256, 0.110, 0.036),
        _product(4, 25600, 1024, 256, 0.735, 0.543),
        _product(1, 25600, 1024, 4096, 2.799, 2.105),
    ),
)


def _gradient(groups: int, rows: int, small: int, large: int, below: float, above: float) -> Measured:
    return Measured({"groups": groups, "rows": rows, "small": small, "large": large}, below, above)


# Its weight's gradient, a sum of `rows` outer products of vectors of two sizes.
WEIGHT_GRADIENT = Crossover(
    "weight gradient",
    below="small tiles",
    above="large tiles",
    least={"small": 65},
    measured=(
        _gradient(64, 1600, 64, 64, 0.035, 0.089),
        _gradient(64, 1600, 64, 256, 0.091, 0.119),
        _gradient(16, 25600, 64, 256, 0.310, 0.404),
        # From here on, small tiles were measured in an earlier form, which took up to 1.9 times as long.
        _gradient(16, 25600, 96, 96, 0.623, 0.301),
        _gradient(9, 1600, 128, 512, 0.118, 0.051),
        _gradient(4, 64, 256, 1024, 0.020, 0.013),
        _gradient(1, 25600, 1024, 4096, 9.650, 2.591),
    ),
)


def _network(gates: int, groups: int, rows: int, time: int, dim: int, below: float, above: float) -> Measured:
    sizes = {"gates": gates, "groups": groups, "rows": rows, "time": time, "dim": dim}
    return Measured(sizes | {"bytes": matrix_bytes(gates, dim, 4)}, below, above)


def matrix_bytes(gates: int, dim: int, itemsize: int) -> int:
    """What the recurrent matrices of one head take on chip, where sizes are powers of two."""
    return gates * padded(dim, 16) ** 2 * itemsize


TOO_LARGE = inf  # for one launch

# A recurrent network, forward and backward: one gate is Elman's, three are the GRU's, four the LSTM's.
RECURRENCE = Crossover(
    "recurrence",
    below="one launch",
    above="step by step",
    least={"bytes": 2**16 + 1},
    measured=(
        _network(4, 1, 32, 50, 64, 0.320, 0.505),
        _network(4, 64, 32, 100, 64, 1.122, 2.188),
        _network(1, 16, 64, 100, 128, 0.752, 1.381),
        _network(4, 16, 64, 100, 96, TOO_LARGE, 1.902),
        _network(4, 64, 32, 100, 128, TOO_LARGE, 4.451),
        _network(3, 16, 64, 100, 128, TOO_LARGE, 2.193),
        _network(4, 4, 64, 400, 256, TOO_LARGE, 6.93),  # these two are sums of passes that were measured alone
        _network(4, 1, 64, 400, 1024, TOO_LARGE, 14.93),
    ),
)
CROSSOVERS = {crossover.work: crossover for crossover in (PRODUCT, WEIGHT_GRADIENT, RECURRENCE)}


def choice(work: str, **sizes: int) -> str:
    """The method for some work at some sizes."""
    return CROSSOVERS[work].choice(sizes)
