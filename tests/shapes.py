"""Checks the shapes that signatures state with jaxtyping, and leaves all other annotations to mypy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import beartype

SHAPES = ("Bool[", "Float[", "Int[", "Shaped[")


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The type checker of jaxtyping's import hook (`conftest.py`)."""
    stated = {name: hint for name, hint in function.__annotations__.items() if any(s in str(hint) for s in SHAPES)}
    if not stated:
        return function
    function.__annotations__ = stated
    return beartype(function)
