"""Names of things that are imported only when they are used, so that a listing needs no torch."""

from __future__ import annotations

import importlib
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
        """The class or function behind a name.

        A registered name is looked up beside the registry; `module:Name` is imported as a user's own.
        """
        if name in self.entries:
            module, _, attribute = self.entries[name].where.partition(":")
            return getattr(importlib.import_module(f"{self.package}.{module}"), attribute)
        if ":" in name:
            return import_path(name)
        raise BadInput(f"unknown {self.noun} '{name}'{suggestion(name, self.entries)}")


def import_path(path: str) -> Any:
    """Import `module:Name`."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError, TypeError) as error:
        raise BadInput(f"cannot import '{module}' for '{path}': {error}") from None
    except AttributeError:
        raise BadInput(f"'{module}' has no '{attribute}', wanted by '{path}'") from None
