"""Names of things that are imported only when they are used, so that a listing needs no torch."""

from __future__ import annotations

import importlib
import inspect
import operator
from dataclasses import dataclass
from typing import Any

from assay.description import BadInput, suggestion


@dataclass(frozen=True)
class Entry:
    """One line of a registry: where the thing lives and what it is, in a few words."""

    where: str
    summary: str
    source: str = ""


class Registry:
    """Names to entries of one noun; a name that is in none may be an import path `module:Name`."""

    def __init__(self, noun: str, package: str, entries: dict[str, Entry]) -> None:
        self.noun, self.package, self.entries = noun, package, entries

    def load(self, name: str) -> Any:
        """The class or function behind a name; `module:Name` is imported as a user's own."""
        if name in self.entries:
            module, _, attribute = self.entries[name].where.partition(":")
            return getattr(importlib.import_module(f"{self.package}.{module}"), attribute)
        if ":" in name:
            return import_path(name)
        raise BadInput(f"unknown {self.noun} '{name}'{suggestion(name, self.entries)}")

    def load_class(self, name: str, base: type) -> Any:
        """The class behind a name, which must be one of a kind and complete."""
        found = self.load(name)
        if not (isinstance(found, type) and issubclass(found, base)) or inspect.isabstract(found):
            raise BadInput(f"'{name}' is not a {self.noun}: it should be a complete subclass of {base.__name__}")
        return found


def import_path(path: str) -> Any:
    """Import `module:Name`, where the name may have dots."""
    module, _, attribute = path.partition(":")
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # whatever a user's own file does when it is imported
        raise BadInput(f"cannot import '{module}' for '{path}': {type(error).__name__}: {error}") from None
    try:
        return operator.attrgetter(attribute)(imported)
    except AttributeError:
        raise BadInput(f"'{module}' has no '{attribute}', wanted by '{path}'") from None
