"""Checks the shapes that signatures state with jaxtyping, and leaves all other annotations to mypy.

jaxtyping's import hook wraps every function of a module, and its wrapper takes longer than many of them. So functions
that state no shape stay as they are, and a call with the same objects, numbers and shapes as an earlier one is not
checked again, since training makes thousands of those.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any

import jaxtyping
from beartype import beartype
from torch import Tensor
from torch.compiler import is_compiling

SHAPES = ("Bool[", "Float[", "Int[", "Shaped[")
PLAIN = (bool, int, float, str, type(None))
Function = Callable[..., Any]


def stated(function: Any) -> dict[str, Any]:
    """The annotations of a function that state a shape."""
    hints = function.__annotations__ if inspect.isfunction(function) else {}
    return {name: hint for name, hint in hints.items() if any(s in str(hint) for s in SHAPES)}


def check_shapes(function: Function) -> Function:
    """The type checker of jaxtyping's import hook (`conftest.py`)."""
    function.__annotations__ = stated(function)
    return beartype(function)


def check_what_states_shapes() -> None:
    """Let jaxtyping's import hook wrap only functions that state shapes."""
    jaxtyped = jaxtyping.jaxtyped

    def decorator(*, typechecker: Any) -> Callable[[Any], Any]:
        checker = jaxtyped(typechecker=typechecker)
        return lambda decorated: _checked(decorated, checker) if stated(decorated) else decorated

    jaxtyping.jaxtyped = decorator  # type: ignore[assignment]


def _checked(function: Function, jaxtyped: Callable[[Function], Function]) -> Function:
    checking, seen = jaxtyped(function), set[Hashable]()

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if is_compiling():  # the compiler would trace the check, and guard every key
            return function(*args, **options)
        key = (*map(_kind, args), *((name, _kind(value)) for name, value in options.items()))
        if key in seen:
            return function(*args, **options)
        result = checking(*args, **options)
        seen.add(key)
        return result

    return call


def _kind(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, PLAIN):
        return type(value), value
    # A generator is a new object at each call, with keys of the same shape.
    return (type(value), *map(_kind, vars(value).values())) if is_dataclass(value) else id(value)
