"""The shapes at which the operators are measured, and inputs such as a model would give them, from the definitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch

from assay.ops import OPERATORS
from assay.ops.operator import Operator, shape_of, state_dtype
from peers import FIXED, NETWORKS, Tensors


@dataclass(frozen=True)
class Case:
    op: str
    time: int
    size: int
    members: int = 1
    rows: int = 32  # per member
    heads: int = 1
    states: int = 0
    dtype: str = "float32"

    @property
    def operator(self) -> Operator:
        return OPERATORS[self.op]

    @property
    def sizes(self) -> dict[str, int]:
        """By the letters of the axes."""
        d = self.size
        axes = {"B": self.rows * self.members, "G": self.members, "H": self.heads, "T": self.time, "S": self.time}
        axes |= {"K": d, "V": d, "D": d, "O": d, "N": self.states, "M": self.operator.usual.get("M", 1)}
        return self.operator.all_sizes(axes)

    @property
    def bounded(self) -> int:
        """The head size that the kernels' limit is about."""
        return max((self.sizes[axis] for axis in self.operator.bounded), default=1)

    @property
    def floor(self) -> int:
        """The fewest bytes that forward and backward move; no gradient arrives at the final states."""
        dtype, operator = getattr(torch, self.dtype), self.operator
        output, *states = operator.outputs.values()
        inputs = [operator.inputs[name] for name in operator.sequences + operator.weights]
        twice = sum(prod(shape_of(axes, self.sizes)) for axes in (*inputs, output))
        once = sum(prod(shape_of(axes, self.sizes)) for axes in states)
        return int(2 * twice * dtype.itemsize + once * state_dtype(dtype).itemsize)

    def draw(self, device: torch.device) -> Tensors:
        """Typical inputs, without states: these are zero then."""
        rng, dtype = torch.Generator(device).manual_seed(0), getattr(torch, self.dtype)
        inputs = self.operator.draw(self.sizes, rng, state_dtype(dtype))
        inputs |= {name: value(inputs[name]) for name, value in FIXED.get(self.op, {}).items()}
        names = self.operator.sequences + self.operator.weights
        return {name: x.to(dtype).contiguous() for name, x in inputs.items() if name in names}


def usual_case(operator: Operator) -> Case:
    """The sizes of a usual model with the operator, at 50 steps."""
    sizes = operator.usual
    size = sizes.get("D") or sizes.get("K") or sizes["N"]
    return Case(operator.name, 50, size, heads=sizes["H"], states=sizes.get("N", 0))


CASES = [usual_case(operator) for operator in OPERATORS.values()]
SOFTMAX = [case for case in CASES if case.op == "attention"]
STATELESS = [case for case in CASES if not case.operator.states and case not in SOFTMAX]
ATTENTION = [case for case in CASES if case.operator.chunked and "K" in case.operator.bounded]
FAST = [case for case in CASES if case.heads > 1 and case not in ATTENTION + SOFTMAX]
SINGLE = [case for case in CASES if case not in SOFTMAX + STATELESS + ATTENTION + FAST]


def quick() -> list[Case]:
    """One small shape of every operator."""
    return [
        replace(case, time=9, size=4, rows=3, heads=min(case.heads, 2), states=min(case.states, 2)) for case in CASES
    ]


def usual(cuda: bool) -> list[Case]:
    """On a CPU fewer tokens, and no populations of operators with one head. fla's chunked delta rule takes bfloat16."""
    counts = (1, 16, 64, 256) if cuda else (1, 16, 64)
    fast = [replace(case, members=members) for case in FAST for members in counts]
    fast += [replace(case, time=100, members=members) for case in FAST for members in (1, 16, 64)]
    fast += [replace(case, time=100, size=size) for case in FAST for size in (8, 32, 64)]
    attention = [
        replace(case, time=length, size=size, rows=(16384 if cuda else 2048) // length, dtype=dtype)
        for case in ATTENTION
        for dtype in (("float32", "bfloat16") if cuda and case.op in ("delta_rule", "dplr") else ("float32",))
        for size in (16, 64)
        for length in (64, 256, 2048)
    ]
    members = (1, 64) if cuda else (1,)
    populations = [
        replace(case, time=length, size=size, members=count)
        for case in SINGLE
        for size in ((64, 128) if case.op in NETWORKS else (case.size,))
        for length in (50, 100)
        for count in members
    ]
    softmax = [
        replace(case, time=length, size=size, members=count)
        for case in SOFTMAX
        for size in (16, 64)
        for length in (50, 400, 1600)
        for count in ((1, 16) if cuda and size * length <= 6400 else (1,))
    ]
    stateless = [
        replace(case, size=size, members=count) for case in STATELESS for size in (64, 128, 256) for count in members
    ]
    return attention + softmax + fast + populations + stateless
