"""Every example in a docstring is true, and every task explains itself by one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from assay.tasks import TASKS

SOURCE = Path(__file__).parent.parent / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module: str):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize("name", TASKS.entries)
def test_every_task_has_an_example(name: str):
    assert ">>> " in (TASKS.load(name).__doc__ or "")
    assert "assay.tasks." + TASKS.entries[name].where.partition(":")[0] in MODULES
