"""Registries of names whose classes are imported when they are used, so that a listing needs no torch."""

from __future__ import annotations

import importlib
import inspect
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import USER_CODE_ERRORS, BadInput, suggestion


@dataclass(frozen=True)
class Entry:
    """One line of a registry: `module:Name`, a short summary, and the source."""

    where: str
    summary: str
    source: str = ""


class Registry:
    """The entries of one noun (task, model, ...) by name; a user's own class is named as `module:Name`."""

    def __init__(self, noun: str, package: str, entries: dict[str, Entry]) -> None:
        self.noun, self.package, self.entries = noun, package, entries

    def load(self, name: str) -> Any:
        """Import the class or function behind a name or a `module:Name`."""
        if name in self.entries:
            module, _, attribute = self.entries[name].where.partition(":")
            return getattr(importlib.import_module(f"{self.package}.{module}"), attribute)
        if ":" in name:
            return import_path(name)
        file = Path(f"{name.removesuffix('.py')}.py")
        if file.is_file():
            raise BadInput(f"unknown {self.noun} '{name}'; a class of {file} is {file.with_suffix('')}:Class")
        raise BadInput(f"unknown {self.noun} '{name}'{suggestion(name, self.entries)}")

    def load_class(self, name: str, base: type) -> Any:
        """The class behind a name; it must be a subclass of `base` without abstract methods."""
        loaded = self.load(name)
        if not (isinstance(loaded, type) and issubclass(loaded, base)) or inspect.isabstract(loaded):
            raise BadInput(f"'{name}' is not a {self.noun}: it should be a complete subclass of {base.__name__}")
        return loaded


def import_path(path: str) -> Any:
    """Import `module:Name`; the name may contain dots."""
    module, _, attribute = path.partition(":")
    if module.endswith(".py") or "/" in module:
        name = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise BadInput(f"'{path}' is not valid: write the module, not its file, as {name}:{attribute or 'Name'}")
    try:
        imported = importlib.import_module(module)
    except USER_CODE_ERRORS as error:  # a user's file may do anything when it is imported
        raise BadInput(f"cannot import '{module}' for '{path}': {type(error).__name__}: {error}") from None
    try:
        return operator.attrgetter(attribute)(imported)
    except AttributeError:
        file = getattr(imported, "__file__", None)  # another module of this name may come first on the path
        where = f"; it is {file}" if file else ""
        raise BadInput(f"'{module}' has no '{attribute}', wanted by '{path}'{where}") from None
