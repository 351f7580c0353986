"""The models. Importing this package does not import torch; `named_model` gives a description by name."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from assay.description import BadInput, suggestion
from assay.models.registry import MIXERS, MODELS
from assay.registry import import_path

if TYPE_CHECKING:
    from assay.models.skeleton import Architecture

__all__ = ["MIXERS", "MODELS", "named_model", "read_model"]


def named_model(name: str, /, **options: Any) -> Architecture:
    """A named model with its options, or a user's model as `module:factory`."""
    from assay.models.skeleton import Architecture, Foreign, StateChange

    if ":" in name and name not in MODELS.entries:
        factory = import_path(name)
        if not callable(factory):
            raise BadInput(f"'{name}' is not a model: it should be a class or function that makes a torch module")
        if isinstance(factory, type) and issubclass(factory, Architecture):
            return factory(**options)
        return Foreign.of(factory, **options)
    recipe, state = MODELS.load(name), options.pop("state", None)
    parameters = inspect.signature(recipe).parameters
    for option in options:
        if option not in parameters:
            raise BadInput(f"{name} has no option '{option}'{suggestion(option, (*parameters, 'state'))}")
    model: Architecture = recipe(**options)
    if not state:
        return model
    if not isinstance(state, (dict, StateChange)):
        raise BadInput(f'state = {state!r} is not valid: write it as {{"numbers": "fixed:2.4"}} or {{"noise": 0.1}}')
    return model.model_copy(update={"state": StateChange(**state) if isinstance(state, dict) else state})


def read_model(data: Any) -> Any:
    """An architecture from its plain data."""
    from assay.models import skeleton

    if not isinstance(data, dict):
        return data
    kinds: dict[str, Any] = {"stack": skeleton.Stack, "foreign": skeleton.Foreign}
    kind = str(data.get("kind"))
    return (kinds[kind] if kind in kinds else import_path(kind))(**data)
