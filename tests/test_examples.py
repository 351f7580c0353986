"""The examples run: the commands of their README, as small as they can be, and the cells of the notebook."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from assay.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
TINY = {"python": "--steps 10 --seeds 1", "assay study": "--jobs 1 --device cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the examples in which every command of their README has run."""
    copy = tmp_path_factory.mktemp("examples") / "copy"
    shutil.copytree(EXAMPLES, copy)
    (block,) = re.findall(r"```bash\n(.*?)```", (EXAMPLES / "README.md").read_text(), flags=re.S)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(copy)
        patch.syspath_prepend(copy)
        patch.setenv("STEPS", "10")
        patch.setenv("SEEDS", "1")
        for line in block.splitlines():
            run(line + "".join(f" {options}" for start, options in TINY.items() if line.startswith(start)), patch)
    return copy


def run(command: str, patch: pytest.MonkeyPatch) -> None:
    """Run a command in this process: starting another one takes seconds."""
    program, *words = shlex.split(command)
    if program == "python":
        patch.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")
    else:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_a_mixer_stands_beside_others(folder: Path):
    text = (folder / "rotations" / "index.md").read_text()
    assert all(name in text for name in ("Rotations", "lstm", "delta-net"))


def test_a_network_is_proved_on_a_task_of_ones_own(folder: Path):
    (certificate,) = (folder / "lift" / "certificates").iterdir()
    assert CliRunner().invoke(app, ["check", str(certificate)]).exit_code == 0


def test_the_task_answers_and_has_probes_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(folder)
    task = importlib.import_module("own_task").Lift()
    assert task.explain("uuuudd") == "122210"
    rides = next(probe.inputs for probe in task.probes((2, 16), 12) if probe.name == "rides")
    answers = ["".join(task.shown(row)) for row in task.answer(rides).tolist()]
    assert answers[0] == "101010101010"
    assert answers[2] == "122100122100"


def test_the_study_judges_its_finding(folder: Path):
    assert "gates-keep" in (folder / "reports" / "own_study" / "findings.csv").read_text()


def test_the_notebook_runs_and_shows_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "tour.ipynb", tmp_path)
    assert script("run-notebook").main(["tour.ipynb"]) == 0
    assert forms(tmp_path / "tour.ipynb") == forms(EXAMPLES / "tour.ipynb")
    assert {"image/svg+xml"} in forms(tmp_path / "tour.ipynb")


def forms(notebook: Path) -> list[set[str]]:
    """The kinds of the outputs of all cells, in their order."""
    cells = json.loads(notebook.read_text())["cells"]
    return [{*output.get("data", {"stream": ""})} for cell in cells for output in cell.get("outputs", [])]


def script(name: str) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
