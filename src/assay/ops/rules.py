"""Every op's signature, in one table: what it takes, what it gives, and a check of what it is given.

An axis is a letter: B batch, G groups, H heads, T time, K key, V value, D head size, O another, N states; 3D+1 is a sum
of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from assay.description import BadInput

LIMIT = 128  # the largest head size of the gpu kernels
AXES = {"B": "batch", "G": "groups", "H": "heads", "T": "time", "K": "key", "V": "value", "D": "dim"}
AXES |= {"O": "out", "N": "state"}


class Like(NamedTuple):
    """What a check looks at of a tensor."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Rule:
    """A recurrence, or what is done at every moment alone, as a function from tensors to tensors.

    `saved` counts, by kernel backend, what the forward pass returns beside its outputs for the backward pass; a backend
    that is not in it has no kernel. `bounded` are the axes that the gpu kernels hold whole, so that LIMIT binds them.
    """

    name: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    saved: dict[str, int]
    flags: tuple[str, ...] = ()
    bounded: str = ""
    parallel: bool = False  # whether there is a chunked form
    plain: bool = False  # whether a compiler does as well with the reference, which it fuses with what is around it
    weights: frozenset[str] = field(init=False)  # the inputs with one entry per group; the others have one per row

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", frozenset(n for n, axes in self.inputs.items() if axes[0] == "G"))

    def check(self, given: Mapping[str, Like]) -> None:
        """Raise BadInput where shapes, dtypes or devices do not fit together; says which argument and what would."""
        sizes: dict[str, int] = {}
        for name, spec in self.inputs.items():
            self._bind(name, list(given[name].shape), spec.split(), sizes)
        for name, spec in self.inputs.items():
            shape, expected = list(given[name].shape), [total(axis, sizes) for axis in spec.split()]
            if shape != expected:
                raise BadInput(f"{self.name}: {name} has shape {shape}; expected {expected} ({_spelt(spec)})")
        if sizes["B"] % sizes.get("G", 1):
            raise BadInput(f"{self.name}: a batch of {sizes['B']} is not a multiple of {sizes['G']} groups")
        (first, x), *others = given.items()
        for name, other in others:
            if other.device != x.device:
                raise BadInput(f"{self.name}: {name} is on {other.device}; expected {x.device}, where {first} is")
        self._check_dtypes(given)

    def _bind(self, name: str, shape: list[int], axes: list[str], sizes: dict[str, int]) -> None:
        if len(shape) != len(axes):
            named = _spelt(" ".join(axes))
            raise BadInput(f"{self.name}: {name} has shape {shape}; expected {len(axes)} axes ({named})")
        for axis, size in zip(axes, shape, strict=True):
            if size < 1 and axis != "B":
                named = _spelt(" ".join(axes))
                raise BadInput(f"{self.name}: {name} has shape {shape}; expected every axis but batch >= 1 ({named})")
            if axis.isalpha():
                sizes.setdefault(axis, size)

    def _check_dtypes(self, given: Mapping[str, Like]) -> None:
        first = next(iter(self.inputs))
        dtype = given[first].dtype
        valid = (torch.float32, torch.float64, torch.bfloat16)
        if dtype not in valid and not (dtype.is_complex and self.name == "diagonal_scan"):
            said = str(dtype).removeprefix("torch.")
            raise BadInput(f"{self.name}: {first} is {said}; expected float32, float64 or bfloat16")
        for name, axes in self.inputs.items():
            of_state = axes[0] == "B" and "T" not in axes.split()
            expected = state_dtype(dtype) if of_state else dtype
            returned = name in self.outputs and given[name].dtype == state_dtype(dtype)  # a state given as a weight
            if given[name].dtype != expected and not returned:
                said, wanted, since = (str(d).removeprefix("torch.") for d in (given[name].dtype, expected, dtype))
                raise BadInput(f"{self.name}: {name} is {said}; expected {wanted}, since {first} is {since}")

    def size(self, given: Mapping[str, Like]) -> int:
        """The largest of the head sizes that the gpu kernels bound."""
        named = ((axis, i, name) for name, spec in self.inputs.items() for i, axis in enumerate(spec.split()))
        return max([1, *(given[name].shape[i] for axis, i, name in named if axis in self.bounded)])


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """bfloat16 inputs keep a float32 state."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def total(axis: str, sizes: Mapping[str, int]) -> int:
    """The size of an axis such as T or 3D+4."""
    return sum(_term(part, sizes) for part in axis.split("+"))


def _term(part: str, sizes: Mapping[str, int]) -> int:
    letter = part.lstrip("0123456789")
    factor = int(part.removesuffix(letter) or 1)
    return factor * sizes[letter] if letter else factor


def _spelt(spec: str) -> str:
    """
    >>> _spelt("B H T 2K+V")
    'batch, heads, time, 2 key + value'
    """
    spaced = spec.replace(" ", ", ").replace("+", " + ")
    return re.sub("[A-Z]", lambda found: AXES[found[0]], re.sub(r"(\d)([A-Z])", r"\1 \2", spaced))


_FAST = {"q": "B H T K", "k": "B H T K", "v": "B H T V"}
_W = {"W": "B H V K"}
_READ = {"o": "B H T V", **_W}

RULES = {
    rule.name: rule
    for rule in (
        Rule("linear_attention", _FAST | _W, _READ, {"gpu": 1}, bounded="KV", parallel=True),
        Rule("retention", _FAST | {"decay": "G H"} | _W, _READ, {"gpu": 1}, bounded="KV", parallel=True),
        Rule("delta_rule", _FAST | {"beta": "B H T"} | _W, _READ, {"cpu": 2, "gpu": 3}, bounded="KV", parallel=True),
        Rule(
            "recurrent_delta",
            _FAST
            | {"beta": "B H T", "R_q": "G H K V", "R_k": "G H K V", "R_v": "G H V V", "r_b": "G H V"}
            | _W
            | {"last": "B H V"},
            _READ,
            {"cpu": 5, "gpu": 2},
            flags=("additive",),
            bounded="KV",
        ),
        Rule(
            "srwm",
            {"x": "B H T D", "W_y": "G H D D", "W_q": "G H D D", "W_k": "G H D D", "w_b": "G H D 4"},
            {"y": "B H T D", "W_y": "B H D D", "W_q": "B H D D", "W_k": "B H D D", "w_b": "B H D 4"},
            {"cpu": 4, "gpu": 2},
            flags=("read_after_write", "fixed_y", "fixed_q", "fixed_k", "fixed_b"),
            bounded="D",
        ),
        Rule(
            "elman",
            {"a": "B H T D", "R": "G H D D", "h": "B H D"},
            {"h": "B H T D"},
            {"cpu": 0, "gpu": 0},
            flags=("relu",),
            bounded="D",
        ),
        Rule(
            "gru",
            {"a": "B H T 3D", "R": "G H 3D D", "b": "G H D", "h": "B H D"},
            {"h": "B H T D"},
            {"cpu": 1, "gpu": 1},
            bounded="D",
        ),
        Rule(
            "lstm",
            {"a": "B H T 4D", "R": "G H 4D D", "h": "B H D", "c": "B H D"},
            {"h": "B H T D", "c": "B H D"},
            {"cpu": 1, "gpu": 2},
            bounded="D",
        ),
        Rule(
            "elementwise_lstm",
            {"z": "B H T D", "f": "B H T D", "w_z": "G H D", "w_f": "G H D", "c": "B H D"},
            {"c": "B H T D"},
            {"cpu": 0, "gpu": 0},
        ),
        Rule(
            "diagonal_scan",
            {"a": "B H T D", "b": "B H T D", "h": "B H D"},
            {"h": "B H T D"},
            {"cpu": 0, "gpu": 0},
            parallel=True,
        ),
        Rule(
            "selective_scan",
            {"x": "B H T D", "dt": "B H T D", "A": "G H D N", "B": "B H T N", "C": "B H T N", "h": "B H D N"},
            {"y": "B H T D", "h": "B H D N"},
            {"cpu": 1, "gpu": 1},
            bounded="N",
            parallel=True,
        ),
        Rule(
            "affine",
            {"x": "B H T D", "W": "G H O D", "b": "G H O"},
            {"y": "B H T O"},
            {"gpu": 0},
            flags=("relu",),
            plain=True,
        ),
        Rule("layer_norm", {"x": "B H T D", "w": "G H D", "b": "G H D"}, {"y": "B H T D"}, {"gpu": 1}, plain=True),
    )
}
