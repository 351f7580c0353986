"""docs/clusters.md is true: its study and its commands run as they stand, on each engine, with the same records."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app
from assay.store import Store
from tests.lab.slurm_cluster import slurm

__all__ = ["slurm"]  # a fixture

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "clusters.md").read_text()
COMMANDS = [
    line.split("  #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.S)
    for line in block.splitlines()
]


def commands(part: str) -> list[str]:
    """The commands of the page that have a part, but not those that install something."""
    return [command for command in COMMANDS if part in command and command.startswith("assay ")]


def assay(command: str) -> Result:
    words = shlex.split(command)
    assert words[0] == "assay", command
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{command}: {result.output} {result.exception}"
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (study,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    (tmp_path / "rates.py").write_text(study)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return tmp_path


def results(store: Path) -> dict[str, str]:
    records = list(Store.open(store).history())
    assert len(records) == len({record.digest for record in records}) == 6
    return {record.digest: record.result for record in records}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The results of one process."""
    folder = tmp_path_factory.mktemp("expected")
    (study,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    (folder / "rates.py").write_text(study)
    assay(f"assay study {folder}/rates.py --store {folder}/results --jobs 1 --device cpu")
    return results(folder / "results")


def test_this_machine_and_the_commands_about_stores(folder: Path, expected: dict[str, str]):
    (study,) = (command for command in commands("assay study") if "--engine" not in command)
    assay(f"{study} --device cpu")
    assert results(folder / "results") == expected
    (status,) = commands("assay status")
    assert re.search(r"done +6 .*\nunder way +0\nfailed +0\nleft +0\n", assay(status).output)
    Store.create("results-of-another-cluster")
    (merge,) = commands("assay merge")
    assert "0 runs copied into results" in assay(merge).output


def test_ray(folder: Path, expected: dict[str, str]):
    """On a cluster of this machine that the command starts, and on one of two nodes that it joins."""
    cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
    alone, joined = commands("--engine ray")
    assay(f"{alone} --device cpu")
    assert results(folder / "results") == expected
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        command = joined.replace("head-node:6379", cluster.address).replace("--store results", "--store joined")
        assay(f"{command} --device cpu")
    finally:
        cluster.shutdown()
    assert results(folder / "joined") == expected


@pytest.mark.usefixtures("slurm")
def test_slurm(folder: Path, expected: dict[str, str]):
    dry, submitted = commands("--engine slurm")
    assert dry == f"{submitted} --dry-run"
    text = assay(dry).output
    assert "#SBATCH --partition=cpu" in text
    assert not (folder / "results").exists(), "nothing is written"
    assay(submitted)
    assert results(folder / "results") == expected
    (script,) = (folder / "results" / "logs").glob("*_submission.sh")
    assert script.read_text() in text


def test_every_command_of_the_page_is_run_here():
    parts = ("assay status", "assay merge", "--engine ray", "--engine slurm")
    covered = [command for part in parts for command in commands(part)]
    others = [command for command in COMMANDS if command not in covered]
    assert others == ["assay study rates.py --store results", "pip install 'assay[ray]'", "pip install 'assay[slurm]'"]


def test_the_tables_of_the_page_are_what_the_records_give():
    words = [sys.executable, str(ROOT / "scripts" / "update-clusters"), "--check"]
    assert subprocess.run(words, check=False).returncode == 0, "run scripts/update-clusters"
