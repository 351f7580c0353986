"""Every task explains itself by an example, and every example is true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import assay.tasks
from assay.tasks import TASKS

MODULES = [
    "assay.description",
    "assay.registry",
    "assay.tasks",
    *(f"assay.tasks.{module.name}" for module in pkgutil.iter_modules(assay.tasks.__path__)),
]
WITH_TASKS = sorted({"assay.tasks." + entry.where.partition(":")[0] for entry in TASKS.entries.values()})


@pytest.mark.parametrize("name", TASKS.entries)
def test_every_task_has_an_example(name: str):
    assert ">>> " in (TASKS.load(name).__doc__ or "")


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_true(module: str):
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
    if module in WITH_TASKS:
        assert result.attempted > 0


def test_every_module_of_a_task_is_looked_at():
    assert set(WITH_TASKS) < set(MODULES)
