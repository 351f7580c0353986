"""The shapes at which the ops are measured, and inputs such as a model would give them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.ops.rules import RULES, state_dtype, total
from peers import NETWORKS, Tensors


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
    def sizes(self) -> dict[str, int]:
        """By the letters of the rules."""
        d = self.size * self.states if self.op == "diagonal_scan" else self.size
        axes = {"B": self.rows * self.members, "G": self.members, "H": self.heads, "T": self.time}
        return axes | {"K": d, "V": d, "D": d, "O": d, "N": self.states}

    @property
    def bounded(self) -> int:
        """The head size that the kernels' limit is about."""
        return max((self.sizes[axis] for axis in RULES[self.op].bounded), default=1)

    @property
    def floor(self) -> int:
        """The fewest bytes that forward and backward move; no gradient arrives at the final states."""
        dtype = getattr(torch, self.dtype)
        output, *states = RULES[self.op].outputs.values()
        twice = sum(prod(shape) for shape in self._inputs().values()) + prod(self._shape(output))
        once = sum(prod(self._shape(axes)) for axes in states)
        return 2 * twice * dtype.itemsize + once * state_dtype(dtype).itemsize

    def draw(self, device: torch.device) -> Tensors:
        """Without states, which are zero then."""
        rng, dtype = torch.Generator(device).manual_seed(0), getattr(torch, self.dtype)
        raw = {
            name: torch.randn(shape, generator=rng, device=device, dtype=state_dtype(dtype))
            for name, shape in self._inputs().items()
        }
        return {name: self._usual(name, x).to(dtype).contiguous() for name, x in raw.items()}

    def _shape(self, axes: str) -> list[int]:
        return [total(axis, self.sizes) for axis in axes.split()]

    def _inputs(self) -> dict[str, list[int]]:
        rule = RULES[self.op]
        given = {n: axes for n, axes in rule.inputs.items() if n in rule.weights or "T" in axes.split()}
        return {name: self._shape(axes) for name, axes in given.items()}

    def _usual(self, name: str, raw: Tensor) -> Tensor:
        match self.op, name:
            case (("linear_attention" | "retention" | "delta_rule"), ("q" | "k")):
                return raw.softmax(-1)
            case "delta_rule", "beta":
                return raw.sigmoid()
            case "retention", "decay":
                return (1 - 2.0 ** (-5 - torch.arange(self.heads, device=raw.device))).expand_as(raw)
            case "diagonal_scan", "a":
                return torch.polar(raw.real.sigmoid(), raw.imag)
            case "selective_scan", "dt":
                return F.softplus(raw - 2)
            case "selective_scan", "A":
                return -raw.exp()
        return raw * self.size**-0.5 if name in RULES[self.op].weights else raw


SCANS = (
    Case("elementwise_lstm", 50, 64),
    Case("diagonal_scan", 50, 64, states=16, dtype="complex64"),
    Case("selective_scan", 50, 128, states=16),
)
FAST, ATTENTION = ("srwm", "recurrent_delta"), ("delta_rule", "linear_attention", "retention")
STATELESS = ("affine", "layer_norm")


def quick() -> list[Case]:
    """One small shape of every op."""
    small = [Case(op, 9, 4, rows=3, heads=2) for op in FAST + ATTENTION]
    networks = [Case(op, 9, 4, rows=3) for op in (*NETWORKS, *STATELESS)]
    return small + networks + [replace(scan, time=9, size=4, rows=3, states=min(scan.states, 2)) for scan in SCANS]


def usual(cuda: bool) -> list[Case]:
    """On a CPU fewer tokens, and no populations of what has one head. fla's chunks of the delta rule take bfloat16."""
    fast = [Case(op, 50, 16, m, heads=8) for op in FAST for m in ((1, 16, 64, 256) if cuda else (1, 16, 64))]
    fast += [Case(op, 100, 16, members, heads=8) for op in FAST for members in (1, 16, 64)]
    fast += [Case(op, 100, size, heads=8) for op in FAST for size in (8, 32, 64)]
    attention = [
        Case(op, length, size, rows=(16384 if cuda else 2048) // length, heads=4, dtype=dtype)
        for op in ATTENTION
        for dtype in (("float32", "bfloat16") if cuda and op == "delta_rule" else ("float32",))
        for size in (16, 64)
        for length in (64, 256, 2048)
    ]
    single = [Case(op, 50, size) for op in NETWORKS for size in (64, 128)] + list(SCANS)
    populations = [
        replace(case, time=length, members=members)
        for case in single
        for length in (50, 100)
        for members in ((1, 64) if cuda else (1,))
    ]
    members = (1, 64) if cuda else (1,)
    stateless = [Case(op, 50, size, m) for op in STATELESS for size in (64, 128, 256) for m in members]
    return fast + populations + attention + stateless
