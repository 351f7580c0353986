"""Every operator as a test case, from its definition: a property is written once, and new operators are covered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from assay import ops
from assay.ops.dispatch import LIBRARIES, is_installed
from assay.ops.operator import Flags, Operator

Part = list[Tensor]
Parts = tuple[Part, Part, Part]  # sequences, weights, initial states
Backends = tuple[str, ...]
SIZES = {"H": 2, "K": 3, "V": 2, "D": 3, "O": 4, "N": 2, "M": 2}
BACKENDS = ("reference", "chunked", "cpu", "gpu")


@dataclass(frozen=True)
class Case:
    """An operator with one setting of its flags."""

    operator: Operator
    flags: Flags = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def axes(self) -> set[str]:
        """The letters of all axes of the inputs."""
        return {letter for axes in self.operator.inputs.values() for letter in axes if letter.isalpha()}

    @property
    def backends(self) -> Backends:
        chunked = ("chunked",) if self.operator.chunked else ()
        return ("reference", *chunked, *sorted(self.operator.kernels))

    def draw(self, time: int, batch: int = 2, groups: int = 1, seed: int = 0, **sizes: int) -> Parts:
        """Typical sequences, weights and initial states."""
        rng = torch.Generator().manual_seed(seed)
        inputs = self.operator.draw(SIZES | {"B": batch, "G": groups, "T": time, "S": time} | sizes, rng, torch.float64)
        sequences, weights = self.operator.sequences, self.operator.weights
        states = [x for name, x in inputs.items() if name not in sequences + weights]
        return [inputs[name] for name in sequences], [inputs[name] for name in weights], states

    def call(self, parts: Sequence[Sequence[Tensor]], backend: str) -> Any:
        """The result of the public function. States may be left out; srwm takes them in place of its weights."""
        operator, (x, w, s) = self.operator, parts
        inputs = dict(zip(operator.sequences, x, strict=True)) | dict(zip(operator.weights, w, strict=False))
        inputs |= dict(zip(operator.states, s, strict=False))
        return getattr(ops, self.name)(*operator.pack(inputs), **self.flags, backend=backend)

    def run(self, parts: Sequence[Sequence[Tensor]], backend: str = "reference") -> tuple[Tensor, ...]:
        """The outputs and every tensor of the final state; the gpu kernels run on a GPU if there is one."""
        device = "cuda" if backend == "gpu" and torch.cuda.is_available() else "cpu"
        on_device = [[tensor.to(device) for tensor in part] for part in parts]
        return tuple(tensor.cpu() for tensor in pytree.tree_leaves(self.call(on_device, backend)))

    def gradients(self, parts: Sequence[Sequence[Tensor]], backend: str = "reference") -> tuple[Tensor, ...]:
        """The outputs, the final state, and the gradient of every input that is not empty."""
        leaves = trainable(parts)
        outputs, differentiated = self.run(leaves, backend), [leaf for leaf in flat(leaves) if leaf.numel()]
        return *(o.detach() for o in outputs), *torch.autograd.grad(loss(outputs), differentiated)


def trainable(parts: Sequence[Sequence[Tensor]]) -> Parts:
    """Copies that gradients are taken of."""
    x, w, s = ([leaf.detach().requires_grad_() for leaf in part] for part in parts)
    return x, w, s


def flat(parts: Sequence[Sequence[Tensor]]) -> Part:
    return [tensor for part in parts for tensor in part]


def loss(outputs: Sequence[Tensor]) -> Tensor:
    """The sum of all entries, each times a random factor that is the same at every precision."""
    rng = torch.Generator().manual_seed(1)
    total = torch.zeros((), dtype=torch.float64)
    for o in outputs:
        total = total + (o * torch.randn(o.shape, generator=rng)).sum()
    return total


OPERATORS = ops.OPERATORS
PLAIN = {name: Case(operator) for name, operator in OPERATORS.items()}  # every flag at its default
VARIANTS = {
    f"{name}-{variant}": Case(operator, flags)
    for name, operator in OPERATORS.items()
    for variant, flags in operator.variants.items()
}
CASES = PLAIN | VARIANTS
KERNELS = [(name, backend) for name, operator in OPERATORS.items() for backend in sorted(operator.kernels)]


def installed(backend: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that needs the library of a backend."""
    library = LIBRARIES.get(backend)
    missing = library is not None and not is_installed(library)
    return [pytest.mark.skipif(missing, reason=f"{library} is not installed")]


def runs(*backends: str, among: Iterable[str] = CASES) -> list[Any]:
    """Parameters (case, backend), for every case and each of the backends that its operator has."""
    return [
        pytest.param(CASES[name], backend, id=f"{name}-{backend}", marks=installed(backend))
        for name in among
        for backend in backends
        if backend in CASES[name].backends
    ]


def with_backends(*backends: str, among: Iterable[str] = CASES) -> pytest.MarkDecorator:
    """A test of (case, backend), for every case and each of the backends that its operator has."""
    return pytest.mark.parametrize(("case", "backend"), runs(*backends, among=among))
