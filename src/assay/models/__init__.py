"""The models. Importing this package does not import torch; `named_model` gives a description by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from assay.errors import BadInput, suggestion
from assay.models.registry import MIXERS, MODELS, PREFIXES
from assay.registry import import_path

if TYPE_CHECKING:
    from assay.models.skeleton import Architecture

SKELETON_OPTIONS = ("state", "initial_scale")  # which every named model has, beside those of its recipe
__all__ = ["MIXERS", "MODELS", "named_model", "read_model"]


def named_model(name: str, /, **options: Any) -> Architecture:
    """A named model with its options, a user's model as `module:factory`, or a mixer or model of another package.

    `mixer:module:Class` and `fla:Layer` are put into the shared skeleton; `hf:Model` is built from its config.
    """
    from assay.models.skeleton import Architecture, Stack, StateChange

    if name.partition(":")[0] in PREFIXES:
        from assay.models.foreign import foreign_model

        return foreign_model(name, **options)
    if ":" in name and name not in MODELS.entries:
        factory = import_path(name)
        if not callable(factory):
            raise BadInput(f"'{name}' is not a model: it should be a class or function that makes a torch module")
        if isinstance(factory, type) and issubclass(factory, Architecture):
            return factory(**options)
        return _model_of(factory, name, options)
    recipe, of_all = MODELS.load(name), {key: options.pop(key) for key in SKELETON_OPTIONS if key in options}
    parameters = inspect.signature(recipe).parameters
    for option in options:
        if option not in parameters:
            raise BadInput(f"{name} has no option '{option}'{suggestion(option, (*parameters, *SKELETON_OPTIONS))}")
    model: Stack = recipe(**options)
    if isinstance(state := of_all.get("state"), dict):
        of_all["state"] = StateChange(**state)
    elif state is not None and not isinstance(state, StateChange):
        raise BadInput(f'state = {state!r} is not valid: write it as {{"numbers": "fixed:2.4"}} or {{"noise": 0.1}}')
    return Stack(**dict(model) | of_all) if any(value is not None for value in of_all.values()) else model


def as_model(model: str | Architecture | Callable[..., Any], /, **options: Any) -> Architecture:
    """A model by its name, or made by a class or function, with options; or an architecture, which has its own."""
    from assay.models.skeleton import Architecture

    if isinstance(model, str):
        return named_model(model, **options)
    if not isinstance(model, Architecture):
        return _model_of(model, getattr(model, "__qualname__", str(model)), options)
    if options:
        raise BadInput(f"{model.name} is already described; give {', '.join(options)} where it is made")
    return model


def _model_of(factory: Callable[..., Any], name: str, options: dict[str, Any]) -> Architecture:
    """A user's whole model; BadInput for a class that can be built as a mixer alone."""
    from assay.models.foreign import accepts
    from assay.models.skeleton import Foreign

    if accepts(factory, 1, options) and not accepts(factory, 3, options):
        path = f"{factory.__module__}:{factory.__qualname__}"
        raise BadInput(
            f"{name} is built with a width, as a mixer is, and not with vocab, features and answers; name it "
            f"'mixer:{path}' to put it into the shared skeleton"
        )
    return Foreign.of(factory, **options)


def read_model(data: Any) -> Any:
    """An architecture from its plain data."""
    from assay.models import foreign, skeleton

    if not isinstance(data, dict):
        return data
    described = (skeleton.Stack, skeleton.Foreign, foreign.InSkeleton, foreign.HuggingFace)
    kinds: dict[str, Any] = {model.kind: model for model in described}
    kind = str(data.get("kind"))
    return (kinds[kind] if kind in kinds else import_path(kind))(**data)
