"""Every named model, small, and with other values of its options. The registry says which models there are."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from assay.models import MODELS, named_model
from assay.models.skeleton import Architecture, Model
from assay.models.zoo import ByConvention
from assay.rng import Rng

SMALL = {"width": 8, "heads": 2, "layers": 2, "states": 3}
SHARED = {
    "norm",
    "ff",
    "features",
    "unit",
    "output",
}  # options of code that all models share: tested with the first model that has them
NUMBERS = {"ff": (0, 4), "steps": (1, 2, 3), "convolution": (0, 1)}
VOCAB, ANSWERS = 3, 3


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{option}={value}" for option, value in self.options.items())])

    def described(self, **options: Any) -> Architecture:
        taken = inspect.signature(MODELS.load(self.name)).parameters
        small = {option: value for option, value in SMALL.items() if option in taken}
        return named_model(self.name, **{**small, **self.options, **options})

    def build(self, seed: int = 0, features: int = 0, **options: Any) -> Model:
        """The model in float64."""
        vocab = 0 if features else VOCAB
        model = self.described(**options).build(vocab, features, ANSWERS, Rng.seeded(seed))
        assert isinstance(model, Model)
        return model.double()


def _values(hint: Any) -> tuple[Any, ...]:
    """The values of a Literal, alone or in a union."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(value for part in get_args(hint) for value in _values(part))


def _cases() -> list[Case]:
    cases, covered = [], set()
    for name in MODELS.entries:
        recipe = MODELS.load(name)
        hints = get_type_hints(recipe)
        cases.append(Case(name))
        for option, parameter in inspect.signature(recipe).parameters.items():
            default = parameter.default.paper if isinstance(parameter.default, ByConvention) else parameter.default
            values = NUMBERS.get(option) or _values(hints[option])
            if option not in covered:
                cases += [Case(name, {option: value}) for value in values if value != default]
            covered |= SHARED & {option}
    return cases


NAMED = [Case(name) for name in MODELS.entries]
CASES = _cases()


def tokens(batch: int, time: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(seed))
