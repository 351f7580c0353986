"""The source of a user's own model: the file that defines it, and everything that this file imports.

Files of the user's project count with their text, installed packages with their version, the standard library and Assay
not at all. torch and numpy do not count either: a record names their versions, as it does for the built-in models.
Imports are read from the text, also those inside functions, and nothing is imported here. What a program imports by a
computed name, or reads from a data file, is not seen.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from assay.description import digest

NOT_COUNTED = {"assay", "torch", "numpy"}
INSTALLED = {"site-packages", "dist-packages"}  # names of folders


def source_digest(factory: Callable[..., Any]) -> str:
    """A digest of everything that a class or function is made of; empty if it was defined at a prompt."""
    root = _find(factory.__module__)
    if root is None or root.file is None:
        try:
            return digest(inspect.getsource(factory))
        except (OSError, TypeError):
            return ""
    modules, distributions = _parts(root)
    texts = {name: _text(module.file) if module.file else "" for name, module in modules.items()}
    return digest(texts | {name: metadata.version(name) for name in distributions})


def project_files(module: str) -> dict[str, bytes]:
    """A module and what it imports of its project: the files by their paths below a folder to import them from."""
    root = _find(module)
    if root is None or root.file is None or root.is_installed or root.is_standard or root.top in NOT_COUNTED:
        return {}
    modules = [module for module in _parts(root)[0].values() if module.file]
    return {module.relative_path: module.file.read_bytes() for module in modules if module.file}


def _parts(root: _Module) -> tuple[dict[str, _Module], set[str]]:
    """The modules of a project that a module is made of, itself included, and the installed distributions."""
    modules, distributions = {root.name: root}, set[str]()
    queue = [*_imported_modules(root), *filter(None, map(_find, _prefixes(root.name)))]
    while queue:
        module = queue.pop()
        if module.name in modules or module.top in NOT_COUNTED or module.is_standard:
            continue
        if module.is_installed and (names := _distributions().get(module.top)):
            distributions.update(names)
        else:
            modules[module.name] = module
            queue += _imported_modules(module)
    return modules, distributions


class _Module(NamedTuple):
    """Where a module is, without importing it. `file` is None for a folder without __init__.py."""

    name: str
    file: Path | None
    folders: tuple[str, ...] | None  # of a package

    @property
    def top(self) -> str:
        return self.name.partition(".")[0]

    @property
    def relative_path(self) -> str:
        """
        >>> _Module("a.b", Path("x/a/b.py"), None).relative_path
        'a/b.py'
        >>> _Module("a", Path("x/a/__init__.py"), ()).relative_path
        'a/__init__.py'
        """
        folders = self.name.split(".") if self.folders is not None else self.name.split(".")[:-1]
        return "/".join([*folders, self.file.name if self.file else ""])

    @property
    def is_installed(self) -> bool:
        return self.file is not None and bool(INSTALLED & set(self.file.parts))

    @property
    def is_standard(self) -> bool:
        return (
            self.file is not None and not self.is_installed and self.file.resolve().is_relative_to(_standard_library())
        )


def _find(name: str) -> _Module | None:
    """A module by its name; None if there is none, or if it is built into Python."""
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None):
        return _of_loaded(name, loaded)
    parent_name, _, _ = name.rpartition(".")
    parent = _find(parent_name) if parent_name else None
    if parent_name and (parent is None or parent.folders is None):
        return None
    spec = PathFinder.find_spec(name, list(parent.folders or ())) if parent else _top_level_spec(name)
    if spec is None or (spec.origin is None and spec.submodule_search_locations is None):
        return None
    if spec.origin is not None and not spec.has_location:  # built-in or frozen
        return None
    folders = spec.submodule_search_locations
    file = Path(spec.origin).absolute() if spec.origin else None
    return _Module(name, file, None if folders is None else tuple(folders))


def _of_loaded(name: str, module: ModuleType) -> _Module:
    folders = getattr(module, "__path__", None)
    return _Module(name, Path(str(module.__file__)).absolute(), None if folders is None else tuple(folders))


def _top_level_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a loaded module without a spec, such as __main__
        return None


def _imported_modules(module: _Module) -> Iterator[_Module]:
    """The modules that a module's text imports, with the packages that contain them."""
    if module.file is None or module.file.suffix != ".py":
        return
    package = module.name if module.folders is not None else module.name.rpartition(".")[0]
    package = getattr(sys.modules.get(module.name), "__package__", None) or package  # of a __main__ in a package
    imports = (_absolute(name, package) for name in _imports(_text(module.file)))
    for name in sorted({prefix for imported in imports for prefix in _prefixes(imported)}):
        if found := _find(name):
            yield found


@lru_cache(maxsize=1024)
def _imports(text: str) -> frozenset[str]:
    """The names in a text's import statements; a relative one begins with a dot for each level.

    >>> sorted(_imports("import a.b\\nfrom c import d\\nfrom . import e\\nfrom ..f import g"))
    ['..f', '..f.g', '.e', 'a.b', 'c', 'c.d']
    """
    names = set[str]()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # an optional import that this Python cannot read
        return frozenset()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names |= {start} - {"." * node.level}
            separator = "." if node.module else ""
            names |= {f"{start}{separator}{alias.name}" for alias in node.names if alias.name != "*"}
    return frozenset(names)


def _absolute(name: str, package: str) -> str:
    """
    >>> _absolute("..f.g", "a.b"), _absolute(".e", "a.b"), _absolute("c", "a.b")
    ('a.f.g', 'a.b.e', 'c')
    """
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    parents = package.split(".")
    return ".".join([*parents[: len(parents) - level + 1], name.lstrip(".")])


def _prefixes(name: str) -> list[str]:
    """
    >>> _prefixes("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _text(file: Path) -> str:
    """The text of a file; bytes that are not text (of an extension module) become escapes."""
    try:
        return file.read_bytes().replace(b"\r\n", b"\n").decode(errors="surrogateescape")
    except OSError:
        return ""


@cache
def _standard_library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"]).resolve()


@cache
def _distributions() -> dict[str, list[str]]:
    """The installed distributions by the names of the packages that they contain; reading them takes a moment."""
    return {package: sorted(set(names)) for package, names in metadata.packages_distributions().items()}
