"""Frozen, validated descriptions, and the one error that a person's mistake becomes."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer


class BadInput(ValueError):
    """A mistake in what was asked for: one line that says what is wrong and what would be right."""


def in_one_line(error: BaseException) -> str:
    """
    >>> in_one_line(RuntimeError("no such luck\\nand more"))
    'RuntimeError: no such luck'
    """
    return f"{type(error).__name__}: {error}".splitlines()[0]


def suggestion(name: str, valid: Iterable[str]) -> str:
    """
    >>> suggestion("partiy", ["parity", "dyck-1"])
    "; did you mean 'parity'?"
    >>> suggestion("zzz", ["parity", "dyck-1"])
    '; choose from: dyck-1, parity'
    """
    valid = sorted(valid)
    if not valid:
        return "; it has none"
    close = difflib.get_close_matches(name.lower(), valid, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; choose from: {', '.join(valid)}"


class Description(BaseModel):
    """Plain data that describes a thing to be built: frozen, strict, and closed to unknown fields.

    A description's `kind` is its name in a registry (or `module:Class` for a class that is in none) and stands in its
    plain data. Its `version` is raised whenever the same data begins to mean something else. Fields that came later
    are `added`: at their default they are not written down, so that what was described before keeps its name.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_inf_nan="constants")
    kind: ClassVar[str]
    version: ClassVar[int] = 1
    added: ClassVar[tuple[str, ...]] = ()
    _described: ClassVar[frozenset[str]]  # fields that hold descriptions, which see to their own data

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "kind" not in cls.__dict__:
            cls.kind = f"{cls.__module__}:{cls.__qualname__}"
        cls._described = frozenset(name for name, field in cls.model_fields.items() if _is_described(field.annotation))

    def __init__(self, **data: Any) -> None:
        self._take_kind(data)
        for name, value in data.items():
            if isinstance(value, (list, tuple, dict)):
                data[name] = _tuples(value, name not in self._described)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise BadInput(self._explain(error)) from None

    @classmethod
    def _take_kind(cls, data: dict[str, Any]) -> None:
        """Take kind and version, which must be this class's, out of plain data."""
        for name, here in (("kind", cls.kind), ("version", cls.version)):
            if (said := data.pop(name, here)) != here:
                raise BadInput(f"data of {name} {said!r} cannot be read as {cls.kind} of {name} {here!r}")

    @model_serializer(mode="wrap")
    def _with_kind(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        told = {name: value for name, value in fields(self).items() if not self._as_before(name)}
        return {"kind": self.kind, "version": self.version, **told}

    def _as_before(self, name: str) -> bool:
        return name in self.added and getattr(self, name) == type(self).model_fields[name].default

    def plain(self) -> dict[str, Any]:
        """This description as JSON data, with its kind and version."""
        return self.model_dump(mode="json")

    @classmethod
    def _explain(cls, error: ValidationError) -> str:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            return f"{cls.kind} has no field '{field}'{suggestion(field, cls.model_fields)}"
        if first["type"] == "missing":
            return f"{cls.kind} needs the field '{field}'"
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "value_error":  # raised by a part, in words of its own
            return message
        return f"{cls.kind}: {field} = {first['input']!r} is not valid: {message[0].lower()}{message[1:]}"


def _is_described(annotation: Any) -> bool:
    """Whether it is a description, or made of them."""
    if isinstance(annotation, type) and issubclass(annotation, Description):
        return True
    return any(map(_is_described, get_args(annotation)))


def _tuples(value: Any, in_dicts: bool = True) -> Any:
    """Lists as tuples: JSON has no other way to write one, and what is frozen has no lists."""
    if isinstance(value, (list, tuple)):
        return tuple([_tuples(item, in_dicts) for item in value])
    return {key: _tuples(item) for key, item in value.items()} if in_dicts and isinstance(value, dict) else value


def canonical(value: Any) -> str:
    """One text for one meaning: keys sorted, 1 and 1.0 alike.

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
    """A stable name for plain data: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]
