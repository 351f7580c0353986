"""Imports point one way, and docs/architecture.md shows which; it names every module that a run passes through."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

from assay.cli import app

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "scripts" / "update-architecture"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# What a package must not import, directly or by way of others.
NEVER = {
    "tasks": {"models", "ops", "record", "lab"},
    "models": {"tasks", "record", "lab"},
    "theory": {"lab", "record"},
    "lab": {"theory", "studies", "analysis", "report"},
    "report": {"lab", "terminal"},
    "analysis": {"lab", "report", "terminal"},
}


def load_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("update_architecture", str(SCRIPT))
    spec = importlib.util.spec_from_loader("update_architecture", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


architecture = load_script()


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions and those for type checkers alone are counted too."""
    modules = architecture.module_graph()
    assert len(modules) > 100
    assert architecture.cycle(modules) == []
    assert architecture.cycle(architecture.package_graph(modules)) == []


def test_a_cycle_is_found():
    tree = ast.parse("def f():\n    from assay.lab import plan\n    import assay.cli")
    assert architecture.imports(tree, {"lab", "lab.plan", "cli"}) == {"lab.plan", "cli"}
    assert architecture.cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert architecture.cycle({"a": {"b"}, "b": set()}) == []


@pytest.mark.parametrize("package", NEVER)
def test_arrows_that_must_not_be(package: str):
    graph = architecture.package_graph(architecture.module_graph())
    reached, queue = set[str](), list(graph[package])
    while queue:
        target = queue.pop()
        if target not in reached:
            reached.add(target)
            queue += graph[target]
    assert not reached & NEVER[package]


def test_the_drawing_is_current():
    checked = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_walk_of_a_run_names_every_module_that_it_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    visited: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # functions, not imports
            visited.add(str(frame.f_globals.get("__name__", "")))

    monkeypatch.chdir(tmp_path)
    options = "--steps 4 --jobs 1 --set training.lengths=[2,6] --set testing.rows=4 --set training.validate_every=2"
    sys.setprofile(note)
    try:
        app(["run", "parity", "--model", "gru", *options.split()], standalone_mode=False)
    finally:
        sys.setprofile(None)
    modules = {name.removeprefix("assay.") for name in visited if name.startswith("assay.")}
    assert {"lab.plan", "lab.population", "ops.networks"} <= modules
    walk = PAGE[PAGE.index("## A run") : PAGE.index("## Key abstractions")]
    named = set(re.findall(r"`([a-z_.]+)`", walk))
    unnamed = {module for module in modules if not {module, module.split(".")[0]} & named}
    assert not unnamed


def test_nothing_is_pickled_and_no_global_seed_is_set():
    for path in sorted((ROOT / "src" / "assay").rglob("*.py")):
        text = path.read_text()
        assert "import pickle" not in text
        assert "torch.save" not in text
        if path.name not in ("skeleton.py", "population.py"):  # a user's module is built and trained inside fork_rng
            assert "manual_seed" not in text, path
