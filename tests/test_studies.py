"""Studies: built piece by piece, and one clear line for each mistake in a study file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.studies import irie2023_runs, study_named

HEAD = """
from assay.findings import Comparison, Finding
from assay.spec import run_spec

RUN = run_spec("parity", "gru", model_options={"width": 8})
"""


def study(folder: Path, text: str, name: str = "some_study.py") -> Path:
    path = folder / name
    path.write_text(HEAD + text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "some_study.py does not end in RUNS"),
        ("RUNS = ()", "some_study.py does not end in RUNS"),
        ("RUNS = RUN", "RUNS must be a list of runs made by assay.run_spec, not a RunSpec"),
        ("RUNS = [RUN, 'parity']", "RUNS must hold runs made by assay.run_spec, not a str"),
        ("RUNS = [RUN]; PIECES = [RUN]", "PIECES must be a dictionary of names and lists of runs, not a list"),
        ("PIECES = {1: [RUN]}", "PIECES: the name 1 is not a string"),
        ("PIECES = {'a': RUN}", r"PIECES\['a'\] must be a list of runs made by assay.run_spec, not a RunSpec"),
        ("PIECES = {'a': [1]}", r"PIECES\['a'\] must hold runs made by assay.run_spec, not a int"),
        ("PIECES = {'a': lambda: 7}", r"PIECES\['a'\]\(\) must be a list of runs made by assay.run_spec, not a int"),
        ("PIECES = {'a': lambda: 1 / 0}", r"PIECES\['a'\] does not run: ZeroDivisionError"),
        ("RUNS = [RUN]; VARIANTS = [RUN]", "VARIANTS must be a dictionary of names and lists of runs, not a list"),
        ("RUNS = [RUN]; VARIANTS = {'a': [None]}", r"VARIANTS\['a'\] must hold runs .*, not a NoneType"),
        ("RUNS = [RUN]; COMPARISONS = Comparison('', '', ())", "COMPARISONS must be a list of Comparison"),
        ("RUNS = [RUN]; COMPARISONS = ['gru']", "COMPARISONS must hold Comparison objects, not a str"),
        ("RUNS = [RUN]; FINDINGS = {}", "FINDINGS must be a list of Finding, not a dict"),
        ("RUNS = [RUN]; FINDINGS = ['it learns']", "FINDINGS must hold Finding objects, not a str"),
    ],
)
def test_a_mistake_in_a_study_file_is_one_line(tmp_path: Path, text: str, message: str):
    with pytest.raises(BadInput, match=message) as caught:
        _ = study_named(str(study(tmp_path, text))).runs
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("some_study.py")


@pytest.mark.parametrize("name", ["json.py", "test.py", "typer.py", "numpy.py", "sys.py", "__main__.py"])
def test_a_study_file_must_not_hide_a_module(tmp_path: Path, name: str):
    with pytest.raises(BadInput, match=rf"{name}: a module .* is named '{name[:-3]}' too: rename the file"):
        study_named(str(study(tmp_path, "RUNS = [RUN]", name)))
    assert sys.modules["json"] is json
    assert str(tmp_path) not in sys.path


def test_files_of_the_same_name_in_two_folders_are_two_studies(tmp_path: Path):
    for count in (1, 2):
        (tmp_path / str(count)).mkdir()
        path = study(tmp_path / str(count), f"RUNS = ({'RUN, ' * count})")
        assert len(study_named(str(path)).runs) == count, "a tuple of runs will do"


def test_pieces_give_the_runs_and_models_the_variants(tmp_path: Path):
    text = "PIECES = {'a': [RUN], 'b': lambda: [RUN.with_seed(1)]}"
    loaded = study_named(str(study(tmp_path, text)))
    assert [run.seed for run in loaded.runs] == [0, 1]
    assert [run.seed for run in loaded.variants["gru"]] == [0, 1]


def test_a_piece_is_built_alone(tmp_path: Path):
    loaded = study_named(str(study(tmp_path, "PIECES = {'a': lambda: [RUN], 'b': lambda: 1 / 0}")))
    assert len(loaded.runs_of(["a"])) == 1
    assert loaded.runs_of(["a", "a"])[0] is loaded.runs_of(["a"])[0]
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        loaded.runs_of(["a", "b"])
    assert all(callable(runs) for runs in (*irie2023_runs.PIECES.values(), *irie2023_runs.VARIANTS.values()))
