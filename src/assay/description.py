"""Frozen, validated descriptions of tasks, models and runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from assay.errors import BadInput, suggestion

CONTAINERS = (list, tuple, dict)


class Description(BaseModel):
    """Plain data from which an object can be built: frozen, strictly typed, without unknown fields.

    `kind` is the name in a registry, or `module:Class` for a class outside of the registries. `version` is raised when
    the same data takes on another meaning. Fields listed in `added` were introduced later: at their default they are
    left out of plain data, so that older digests stay valid.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_inf_nan="constants")
    kind: ClassVar[str]
    version: ClassVar[int] = 1
    added: ClassVar[tuple[str, ...]] = ()
    _nested: ClassVar[frozenset[str]]  # fields that hold descriptions, which convert their own data

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"
        cls._nested = frozenset(
            name for name, field in cls.model_fields.items() if _holds_descriptions(field.annotation)
        )

    def __init__(self, **data: Any) -> None:
        self._pop_kind(data)
        for name, value in data.items():
            if isinstance(value, CONTAINERS):
                data[name] = with_tuples(value, name not in self._nested)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise BadInput(explanation(error, self.kind, type(self).model_fields)) from None

    @classmethod
    def _pop_kind(cls, data: dict[str, Any]) -> None:
        """Remove kind and version from plain data; they must be those of this class."""
        for name, expected in (("kind", cls.kind), ("version", cls.version)):
            if (value := data.pop(name, expected)) != expected:
                raise BadInput(f"data of {name} {value!r} cannot be read as {cls.kind} of {name} {expected!r}")

    @model_serializer(mode="wrap")
    def _with_kind(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data = {name: value for name, value in fields(self).items() if not self._is_omitted(name)}
        return {"kind": self.kind, "version": self.version, **data}

    def _is_omitted(self, name: str) -> bool:
        return name in self.added and getattr(self, name) == type(self).model_fields[name].default

    def plain(self) -> dict[str, Any]:
        """This description as JSON data, with its kind and version."""
        return self.model_dump(mode="json")


def explanation(error: ValidationError, kind: str, fields: Iterable[str]) -> str:
    """The first mistake in data of this kind, in one line."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{kind} has no field '{field}'{suggestion(field, fields)}"
    if first["type"] == "missing":
        return f"{kind} needs the field '{field}'"
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":  # raised by one of our validators: already a full sentence
        return message
    where = f"{field} = {first['input']!r} is " if field else ""  # a text that is no JSON has no fields
    return f"{kind}: {where}not valid: {message[0].lower()}{message[1:]}"


def _holds_descriptions(annotation: Any) -> bool:
    """Whether a type is a description, or a container of descriptions."""
    if isinstance(annotation, type) and issubclass(annotation, Description):
        return True
    return any(map(_holds_descriptions, get_args(annotation)))


def with_tuples(value: Any, in_dicts: bool = True) -> Any:
    """Lists as tuples: JSON has only lists, and frozen data only tuples."""
    # Most values are numbers and texts, which need no call.
    if isinstance(value, (list, tuple)):
        return tuple([with_tuples(item, in_dicts) if isinstance(item, CONTAINERS) else item for item in value])
    if in_dicts and isinstance(value, dict):
        return {key: with_tuples(item) if isinstance(item, CONTAINERS) else item for key, item in value.items()}
    return value


def canonical(value: Any) -> str:
    """JSON text that is equal for equal data: keys are sorted, and 1.0 is written as 1.

    >>> canonical({"b": 1.0, "a": [2, None]})
    '{"a":[2,null],"b":1}'
    """
    return json.dumps(_whole(value), sort_keys=True, separators=(",", ":"))


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _whole(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def digest(value: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of plain data."""
    return digest_of_text(canonical(value))


def digest_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
