"""Arrows point one way: each layer imports only from those before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "assay"
ORDER = [
    "description", "registry", "rng", "record", "findings", "ops", "tasks", "models", "theory", "spec", "lab",
    "studies", "analysis", "report", "terminal", "cli_options", "cli_theory", "cli_records", "cli",
]  # fmt: skip
MAY_IMPORT = {layer: set(ORDER[: i + 1]) for i, layer in enumerate(ORDER)}
MAY_IMPORT["findings"] -= {"record"}
MAY_IMPORT["analysis"] -= {"lab"}
MAY_IMPORT["report"] = {"report", "analysis", "findings", "record", "description"}
MAY_IMPORT["tasks"] -= {"ops", "record", "findings"}
MAY_IMPORT["models"] -= {"tasks", "record", "findings"}
MAY_IMPORT["__init__"] = set(ORDER)
MAY_IMPORT["__main__"] = {"cli"}


def layer_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "assay":
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            found |= set(names)
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("assay.")}
    return found


FILES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_layer_imports_only_from_those_before_it(path: Path):
    layer = layer_of(path)
    assert layer in MAY_IMPORT, f"{layer} is a new layer: say where it stands"
    assert imported(ast.parse(path.read_text())) <= MAY_IMPORT[layer]


def test_the_check_sees_an_arrow_that_points_back():
    tree = ast.parse("def f():\n    from assay.lab.train import train\n    import assay.cli")
    assert imported(tree) == {"lab", "cli"}
    assert not imported(tree) <= MAY_IMPORT["tasks"]


def test_nothing_is_pickled_and_no_global_seed_is_set():
    for path in FILES:
        text = path.read_text()
        assert "import pickle" not in text
        assert "torch.save" not in text
        if path.name not in ("skeleton.py", "population.py"):  # a foreign module is built and trained inside fork_rng
            assert "manual_seed" not in text, path
