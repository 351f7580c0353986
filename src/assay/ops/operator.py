"""What an operator is: a step, axes of inputs and outputs, and flags. Checks and the reference follow from these.

An axis is a letter: B batch, G groups, H heads, T time, S past and time, K key, V value, D head size, O output size, N
states, M writes of a token, L decays, R corrections; 3D+1 and N-1 are sums of them. An input with T or S is a sequence,
one with G a weight (the rows of a group share it), any other a state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay.errors import BadInput
from assay.ops.products import per_row

AXES = {"B": "batch", "G": "groups", "H": "heads", "T": "time", "K": "key", "V": "value", "D": "dim"}
AXES |= {"O": "out", "N": "state", "S": "past + time", "M": "writes", "L": "decays", "R": "corrections"}
Tensors = tuple[Tensor, ...]
Flag = bool | int | str
Flags = Mapping[str, Flag]


class TensorMeta(NamedTuple):
    """The properties of a tensor that a check looks at."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Checked(NamedTuple):
    """The result of a check: the largest head size that the gpu kernels bound, the length with the past, and the
    shapes of the missing states."""

    size: int
    time: int
    missing: dict[str, list[int]]


def scaled(weight: Tensor) -> Tensor:
    """Divided so that a product with a random vector has entries of the same size as the vector."""
    return weight / math.sqrt(max(1, *weight.shape[2:]))


@dataclass(frozen=True, eq=False)
class Operator:
    """The one definition of an operator; the public function, kernels, test cases and benchmarks are derived from it.

    `step` takes every input of one moment (in the order of `inputs`, without time) and the flags; it returns `outputs`.
    Without states it takes whole sequences. A state and an output of the same name are one: the output becomes the next
    state. A weight with the name of an output is the initial state of every row of its group.
    """

    name: str
    step: Callable[..., Tensors]
    inputs: dict[str, str]
    outputs: dict[str, str]  # the output sequence, then the final states that are not its last moment
    kernels: dict[str, int]  # kernel backends; each with the number of tensors it saves for the backward pass
    flags: dict[str, Flag] = field(default_factory=dict)  # with their defaults
    bundles: dict[str, tuple[str, ...]] = field(default_factory=dict)  # inputs that are one argument of the function
    integers: tuple[str, ...] = ()  # inputs that hold integers, and so have no gradient
    by_group: tuple[str, ...] = ()  # weights that the step takes as [groups, ...]; it takes the others row by row
    shortest: dict[str, int] = field(default_factory=dict)  # the time from which a kernel is faster than other forms
    widest: dict[str, int] = field(default_factory=dict)  # the head size up to which it is
    bounded: str = ""  # the axes that the gpu kernels keep on chip, so that a limit binds them
    head_limit: int = 128  # the largest size of these axes
    chunked: Callable[..., Tensors] | None = None  # the parallel form, if there is one
    fusible: bool = False  # whether torch.compile makes the reference as fast as a kernel
    typical: dict[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)  # from random numbers to usual values
    variants: dict[str, Flags] = field(default_factory=dict)  # settings of the flags that tests cover, by name
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)  # axes of two possible sizes, the usual one last
    usual: dict[str, int] = field(default_factory=dict)  # sizes of axes in a usual model: those that are measured
    sequences: tuple[str, ...] = field(init=False)
    weights: tuple[str, ...] = field(init=False)
    states: tuple[str, ...] = field(init=False)
    arguments: tuple[str, ...] = field(init=False)  # of the public function

    def __post_init__(self) -> None:
        weights = tuple(name for name, axes in self.inputs.items() if axes[0] == "G")
        sequences = tuple(name for name, axes in self.inputs.items() if {"T", "S"} & {*axes.split()})
        carried = (name for name in self.inputs if name not in weights + sequences or name in self.outputs)
        names = {part: bundle for bundle, parts in self.bundles.items() for part in parts}
        arguments = tuple(dict.fromkeys(names.get(name, name) for name in self.inputs))
        derived = {"weights": weights, "sequences": sequences, "states": tuple(carried), "arguments": arguments}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    # -- arguments -----------------------------------------------------------------------------------------------------

    def unpack(self, arguments: Sequence[Any]) -> dict[str, Tensor | None]:
        """The inputs by name, from the arguments of the public function; None for a state that is left out."""
        inputs: dict[str, Tensor | None] = {}
        for name, value in zip(self.arguments, arguments, strict=True):
            parts = self.bundles.get(name)
            if parts is None:
                inputs[name] = value
            elif value is None:
                inputs |= dict.fromkeys(parts)
            elif len(value) != len(parts):
                expected = f"{len(parts)} ({', '.join(parts)})"
                raise BadInput(f"{self.name}: {name} has {len(value)} tensors; expected {expected}")
            else:
                inputs |= dict(zip(parts, value, strict=True))
        return inputs

    def pack(self, inputs: Mapping[str, Tensor]) -> list[Any]:
        """The arguments of the public function, from inputs by name; None for states that are not among them."""
        arguments: list[Any] = []
        for name in self.arguments:
            parts = self.bundles.get(name, ())
            present = tuple(inputs[part] for part in parts if part in inputs)
            arguments.append((present or None) if parts else inputs.get(name))
        return arguments

    # -- the reference -------------------------------------------------------------------------------------------------

    def reference(self, *inputs: Tensor, **flags: Flag) -> Tensors:
        """The step at every moment, one after the other: every other backend must equal it."""
        if not self.states:
            return self.step(*inputs, **flags)
        now = dict(zip(self.inputs, inputs, strict=True))
        for name in self.weights:
            if name not in self.by_group:
                now[name] = per_row(now[name], len(inputs[0]))
        outputs = []
        for moment in zip(*(now[name].unbind(2) for name in self.sequences), strict=True):
            now |= dict(zip(self.sequences, moment, strict=True))
            after = dict(zip(self.outputs, self.step(*now.values(), **flags), strict=True))
            now |= {name: after[name] for name in self.states}
            outputs.append(next(iter(after.values())))
        return torch.stack(outputs, dim=2), *(now[name] for name in list(self.outputs)[1:])

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self, inputs: Mapping[str, TensorMeta | None]) -> Checked:
        """Raise BadInput where shapes, dtypes or devices do not fit together; says which argument and what would."""
        present = {name: x for name, x in inputs.items() if x is not None}
        sizes: dict[str, int] = {}
        for name, x in present.items():
            self._bind(name, list(x.shape), self.inputs[name].split(), sizes)
        for name, x in present.items():
            shape, expected = list(x.shape), shape_of(self.inputs[name], sizes)
            if shape != expected:
                axes = axis_names(self.inputs[name])
                raise BadInput(f"{self.name}: {name} has shape {shape}; expected {expected} ({axes})")
        self._check_choices(sizes)
        if sizes.get("S", sizes["T"]) < sizes["T"]:
            queries, keys = (next(name for name, axes in self.inputs.items() if axis in axes) for axis in "TS")
            least = f"at least {sizes['T']}, the time of {queries}"
            raise BadInput(f"{self.name}: {keys} has {sizes['S']} positions; expected {least}")
        if sizes["B"] % sizes.get("G", 1):
            raise BadInput(f"{self.name}: a batch of {sizes['B']} is not a multiple of {sizes['G']} groups")
        (first, reference), *others = present.items()
        for name, x in others:
            if x.device != reference.device:
                raise BadInput(f"{self.name}: {name} is on {x.device}; expected {reference.device}, where {first} is")
        self._check_dtypes(present)
        missing = {name: shape_of(self.inputs[name], sizes) for name in inputs if name not in present}
        size = max([1, *(sizes[axis] for axis in self.bounded)])
        return Checked(size, sizes.get("S", sizes["T"]), missing)

    def _bind(self, name: str, shape: list[int], axes: list[str], sizes: dict[str, int]) -> None:
        """Note the size of every axis that is a single letter, where no input before had it."""
        named = f"({axis_names(' '.join(axes))})"
        if len(shape) != len(axes):
            raise BadInput(f"{self.name}: {name} has shape {shape}; expected {len(axes)} axes {named}")
        for axis, size in zip(axes, shape, strict=True):
            if size < 1 and axis.isalpha() and axis != "B" and "0" not in self.choices.get(axis, ()):
                raise BadInput(f"{self.name}: {name} has shape {shape}; expected every axis but batch >= 1 {named}")
            if axis.isalpha():
                sizes.setdefault(axis, size)

    def _check_choices(self, sizes: Mapping[str, int]) -> None:
        for axis, options in self.choices.items():
            valid = [shape_of(option, sizes)[0] for option in options]
            if all(sizes[axis] != size for size in valid):  # `in` is wrong for the symbolic sizes of torch.compile
                name = next(name for name, axes in self.inputs.items() if axis in axes.split())
                expected = " or ".join(map(str, dict.fromkeys(valid)))
                raise BadInput(f"{self.name}: {name} has {sizes[axis]} {AXES[axis]}; expected {expected}")

    def _check_dtypes(self, inputs: Mapping[str, TensorMeta]) -> None:
        first = next(name for name in inputs if name not in self.integers)
        dtype = inputs[first].dtype
        valid = (torch.float32, torch.float64, torch.bfloat16)
        if dtype not in valid:
            raise BadInput(f"{self.name}: {first} is {_spelt(dtype)}; expected float32, float64 or bfloat16")
        for name, x in inputs.items():
            expected = dtype if name in self.sequences + self.weights else state_dtype(dtype)
            expected = torch.int64 if name in self.integers else expected
            final_state = name in self.states and x.dtype == state_dtype(dtype)  # of an earlier call, as a weight
            if x.dtype != expected and not final_state:
                since = f"since {first} is {_spelt(dtype)}"
                raise BadInput(f"{self.name}: {name} is {_spelt(x.dtype)}; expected {_spelt(expected)}, {since}")

    # -- inputs for tests and benchmarks -------------------------------------------------------------------------------

    def all_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """With the usual sizes of axes that have a choice."""
        usual = {axis: shape_of(options[-1], sizes)[0] for axis, options in self.choices.items()}
        return usual | dict(sizes)

    def draw(self, sizes: Mapping[str, int], rng: torch.Generator, dtype: torch.dtype) -> dict[str, Tensor]:
        """Random inputs as a trained network might hold them, so that nothing grows without bound along time."""
        inputs, sizes = {}, self.all_sizes(sizes)
        for name, axes in self.inputs.items():
            raw = 0.6 * torch.randn(shape_of(axes, sizes), generator=rng, device=rng.device, dtype=dtype)
            change = self.typical.get(name, scaled if name in self.weights else Tensor.contiguous)
            inputs[name] = change(raw).contiguous()
        return inputs


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """bfloat16 inputs keep a float32 state."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def shape_of(axes: str, sizes: Mapping[str, int]) -> list[int]:
    """
    >>> shape_of("B H 3D+4 D-1", {"B": 5, "H": 1, "D": 2})
    [5, 1, 10, 1]
    """
    return [sum(_term(part, sizes) for part in re.findall("-?[^+-]+", axis)) for axis in axes.split()]


def _term(part: str, sizes: Mapping[str, int]) -> int:
    letter = part.lstrip("-0123456789")
    factor = int(part.removesuffix(letter) or 1)
    return factor * sizes[letter] if letter else factor


def axis_names(axes: str) -> str:
    """
    >>> axis_names("B H T 2K+V")
    'batch, heads, time, 2 key + value'
    """
    spaced = axes.replace(" ", ", ").replace("+", " + ").replace("-", " - ")
    return re.sub("[A-Z]", lambda letter: AXES[letter[0]], re.sub(r"(\d)([A-Z])", r"\1 \2", spaced))


def _spelt(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
