"""What a card is about: a named model, a user's mixer in the shared skeleton, or a user's whole model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.analysis.titles import row_title
from assay.errors import USER_CODE_ERRORS, BadInput, in_one_line
from assay.models import MODELS, named_model
from assay.models.foreign import ForeignMixer, InSkeleton, accepts, output_of, width_argument
from assay.models.registry import PREFIXES
from assay.models.skeleton import Architecture, Foreign, Stack
from assay.registry import import_path
from assay.rng import Rng
from assay.studies.card import Scale

ROWS, TIME, VOCAB, ANSWERS = 2, 5, 3, 2  # of the call that tells a mixer from a model


@dataclass(frozen=True)
class Subject:
    """An architecture, its short name for tables, and how it was found out what it is."""

    name: str
    title: str
    model: Architecture
    description: str

    @property
    def is_own(self) -> bool:
        """Whether it is a module of a user or of another package, whose state is unknown."""
        return isinstance(self.model, Foreign)


class CallError(BadInput):
    """What a class does wrong when it is built or called in one of the two ways."""

    def __init__(self, message: str, was_built: bool) -> None:
        super().__init__(message)
        self.was_built = was_built


def subject_of(model: str | Callable[..., nn.Module] | Architecture, scale: Scale, **options: Any) -> Subject:
    """The subject behind a name, a class or function, or an architecture; BadInput says what is wrong with it."""
    subject = _subject(model, scale, options)
    if not options:
        return subject
    chosen_options = ", ".join(f"{name}={value}" for name, value in options.items())
    return replace(subject, description=f"{subject.description}; with the options {chosen_options}")


def _subject(model: str | Callable[..., nn.Module] | Architecture, scale: Scale, options: dict[str, Any]) -> Subject:
    if isinstance(model, Architecture):
        if options:
            raise BadInput(f"{model.name} is already described; give {', '.join(options)} where it is made")
        return Subject(model.name, model.name, model, "an architecture, trained unchanged")
    if not isinstance(model, str):
        model = Foreign.of(model).path
    if model in MODELS.entries:
        architecture = scale.named(model, **options)
        size = (
            f", with {_size(len(architecture.mixers), architecture.width)}" if isinstance(architecture, Stack) else ""
        )
        return Subject(model, row_title(model), architecture, f"a model of Assay{size}")
    prefix, colon, rest = model.partition(":")
    if not colon:
        MODELS.load(model)  # BadInput with the nearest name
    sizes = {"width": scale.width, "layers": scale.layers}
    if prefix in PREFIXES:
        return _of_package(model, prefix, rest, sizes | options)
    return _of_path(model, sizes, options)


def _size(layers: int, width: int) -> str:
    """
    >>> _size(1, 32)
    '1 layer of width 32'
    """
    return f"{layers} layer{'s' * (layers != 1)} of width {width}"


def _of_package(name: str, prefix: str, rest: str, options: dict[str, Any]) -> Subject:
    architecture = named_model(name, **options)
    where = {
        "mixer": "a mixer in the shared skeleton, because its name says so",
        "fla": "a layer of flash-linear-attention in the shared skeleton",
        "hf": "a model of transformers with random weights, and a linear read-out",
    }
    title = rest.rpartition(":")[2] if prefix == "mixer" else name
    return Subject(name, title, architecture, where[prefix])


def _of_path(path: str, sizes: dict[str, Any], options: dict[str, Any]) -> Subject:
    """A class or function is what it turns out to be: built with a width or with vocab, features and answers."""
    factory = import_path(path)
    if isinstance(factory, type) and issubclass(factory, Architecture):
        return Subject(path, factory.__name__, factory(**options), "an architecture, trained unchanged")
    if not callable(factory):
        raise BadInput(
            f"'{path}' is a {type(factory).__name__}: a card needs a class or a function that returns a module"
        )
    title = path.partition(":")[2]
    mixer, whole = accepts(factory, 1, options), accepts(factory, 3, options)
    ways: list[Callable[..., Subject]] = [_as_mixer, _as_model]
    if mixer != whole:
        ways = [_as_mixer if mixer else _as_model]
    elif _takes_sizes(factory):
        ways.reverse()
    errors = []
    for way in ways:
        try:
            return way(factory, path, title, sizes, options)
        except CallError as error:
            if error.was_built:
                raise BadInput(str(error)) from None
            errors.append(str(error))
    if len(errors) == 1:
        raise BadInput(errors[0])
    raise BadInput(f"{path} can be built neither as a mixer nor as a model: {'; '.join(errors)}")


def _takes_sizes(factory: Callable[..., Any]) -> bool:
    try:
        return {"vocab", "answers"} <= inspect.signature(factory).parameters.keys()
    except (TypeError, ValueError):
        return False


def _as_mixer(
    factory: Callable[..., Any], path: str, title: str, sizes: dict[str, Any], options: dict[str, Any]
) -> Subject:
    model = InSkeleton.around(factory, path, path, **sizes | options)
    name, width = width_argument(factory), model.width
    call = f"{title}({name}={width})" if name else f"{title}({width})"
    layer = _built(call, lambda: ForeignMixer(path=path, options=model.options).build(width, Rng.seeded(0)).module)
    x = torch.zeros(ROWS, TIME, width)
    _require_shape(call, layer, x, "[batch, time, width]", list(x.shape))
    found = f"{call} maps [batch, time, width] to the same shape, so it is a mixer"
    return Subject(path, title, model, f"{found}, put into the shared skeleton ({_size(model.layers, width)})")


def _as_model(
    factory: Callable[..., Any], path: str, title: str, sizes: dict[str, Any], options: dict[str, Any]
) -> Subject:
    model = Foreign.of(factory, **options)
    call = f"{title}(vocab={VOCAB}, features=0, answers={ANSWERS})"
    module = _built(call, lambda: model.build(VOCAB, 0, ANSWERS, Rng.seeded(0)))
    tokens = torch.ones(ROWS, TIME, dtype=torch.int64)
    _require_shape(call, module, tokens, "tokens [batch, time]", [ROWS, TIME, ANSWERS])
    return Subject(path, title, model, f"{call} maps tokens to logits, so it is a whole model, trained unchanged")


def _built(call: str, build: Callable[[], Any]) -> nn.Module:
    try:
        module = build()
    except BadInput as error:
        raise CallError(str(error), was_built=False) from None
    except USER_CODE_ERRORS as error:  # the user's code may do anything
        raise CallError(f"{call} raises {in_one_line(error)}", was_built=False) from None
    if not isinstance(module, nn.Module):
        raise CallError(f"{call} gives a {type(module).__name__}, not a torch.nn.Module", was_built=False)
    return module


def _require_shape(call: str, module: nn.Module, x: Tensor, kind: str, expected: list[int]) -> None:
    """One call; the module must give a floating-point tensor of this shape on the device of its input."""
    inputs = f"on {kind} = {list(x.shape)}"
    try:
        with torch.no_grad():
            output = output_of(module(x))
    except USER_CODE_ERRORS as error:
        raise CallError(f"{call} {inputs} raises {in_one_line(error)}", was_built=True) from None
    given = f"{output.dtype} of shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    if not isinstance(output, Tensor) or list(output.shape) != expected or not output.is_floating_point():
        raise CallError(f"{call} {inputs} gives {given}; it should give floats of shape {expected}", was_built=True)
    if x.is_floating_point() and torch.promote_types(output.dtype, x.dtype) != x.dtype:
        raise CallError(
            f"{call} {inputs} of {x.dtype} gives {given}; the layers around it compute in {x.dtype}", was_built=True
        )
    if output.device != x.device:
        raise CallError(f"{call} {inputs} on {x.device} gives its output on {output.device}", was_built=True)
