"""README and docs are true: commands run, examples run, figures come from records, links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.store import Store

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
GUIDES = ("tutorial", "quick", "results", "own-experiments", "claims")
DOCS = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in GUIDES}
TUTORIAL, OWN = DOCS["tutorial"], DOCS["own-experiments"]
BIN = Path(sys.executable).parent


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, flags=re.S)


SHELL = [block for page in (README, *DOCS.values()) for block in blocks("bash", page)]
LINES = [line.split("  #")[0].strip() for block in SHELL for line in block.splitlines() if line.strip()]
COMMANDS = list(dict.fromkeys(LINES))


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_its_targets_are_those_of_the_makefile():
    for command in ("make demo", "make test", "make site"):
        assert f"`{command}`" in README
        assert run([*shlex.split(command), "--dry-run"], ROOT).returncode == 0


def assay(command: str) -> None:
    """Run a command in this process: starting another one takes seconds."""
    words = shlex.split(command)
    assert words[0] == "assay", command
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{command}: {result.output}"


def test_the_commands_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (mixer,) = blocks("python", TUTORIAL)
    (tmp_path / "mine.py").write_text(mixer)
    commands = [command for command in COMMANDS if not command.startswith("make ")]
    assert len(commands) >= 5
    for command in commands:
        assay(command)
    (first,) = [record for record in Store.open(tmp_path / "assay-store").records() if record.task == "parity"]
    assert first.model == "lstm"
    scores = [first.score(bin_) for bin_ in ("Bin0", "Bin1")]
    assert all(score and score.sequences == 1 for score in scores)
    assert "mine:Net" in (tmp_path / "reports" / "comparison" / "table.tex").read_text()


def test_the_example_runs(tmp_path: Path):
    *_, example = blocks("python", OWN)
    (tmp_path / "example.py").write_text(example)
    done = run([sys.executable, "example.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.match(r"(solved|refuted|partly solved|censored) \{'Bin0': ", done.stdout), done.stdout


def test_the_example_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    study, *_ = blocks("python", OWN)
    (tmp_path / "rates.py").write_text(study)
    for command in ("assay study rates.py", "assay report rates.py"):
        assert f"`{command}`" in OWN
        assay(command)
    assert (tmp_path / "reports" / "rates" / "index.html").exists()


def test_the_example_of_python_runs(tmp_path: Path):
    first, *_ = blocks("python", (ROOT / "docs" / "python.md").read_text())
    (tmp_path / "example.py").write_text(first)
    done = run([sys.executable, "example.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^model +flip-flop +Z_3\ngru ", done.stdout, flags=re.M), done.stdout
    assert (tmp_path / "comparison" / "table.tex").exists()


def test_the_operators_example_runs(tmp_path: Path):
    (example,) = blocks("python", (ROOT / "docs" / "operators.md").read_text())
    (tmp_path / "example.py").write_text(example)
    done = run([sys.executable, "example.py"], tmp_path)
    assert done.stdout.split("\n") == ["cpu", "torch.Size([5, 32, 8, 100, 16])", ""], done.stderr


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not link.startswith("https://"):
            assert (page.parent / link).exists(), link
