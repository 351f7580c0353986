"""Claims and sizes from the command line: lines that fit, exit codes, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.theory.registry import CLAIMS
from tests.test_cli import assay, mistake


def test_a_claim_is_one_line_and_a_failure_is_exit_code_1(tmp_path: Path):
    good = assay("prove", "lookup-binary", "dyck-bits", "--length", "20", cwd=tmp_path)
    assert good.returncode == 0
    header, *lines = good.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [["lookup-binary", "yes", "20"], ["dyck-bits", "yes", "20"]]
    assert max(map(len, good.stdout.splitlines())) <= 100
    assert header.split() == ["claim", "holds", "N", "inputs", "width", "bits", "margin", "sec", "checked"]
    bad = assay("prove", "lookup-quadratic", "--length", "512", "--numbers", "float16", cwd=tmp_path)
    assert bad.returncode == 1
    assert "wrong" in bad.stdout
    assert bad.stdout.splitlines()[1].split()[:6:5] == ["lookup-quadratic", "16"], "the bits of the format"


def test_claims_as_json(tmp_path: Path):
    done = assay("prove", "parity-elman", "--length", "30", "--attention", "hard", "--json", cwd=tmp_path)
    assert done.returncode == 2, "it has no attention"
    done = assay("prove", "recall-pairs", "--length", "4", "--attention", "hard", "--json", cwd=tmp_path)
    (verdict,) = json.loads(done.stdout)["verdicts"]
    assert verdict["holds"]
    assert verdict["inputs"] > 10_000
    failed = assay("prove", "dyck-two-layers", "--length", "6", "--attention", "linear", "--json", cwd=tmp_path)
    assert failed.returncode == 1
    assert not json.loads(failed.stdout)["verdicts"][0]["holds"]


def test_options_of_a_claim(tmp_path: Path):
    done = assay("prove", "k-dnf", "--set", "formula=(x1 & ~x3) | (x2 & x4)", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split()[2] == "4"
    pattern = json.dumps({"kind": "regex", "pattern": "(ab|ba)*"})
    assert assay("prove", "dfa-srwm", "--length", "20", "--set", f"task={pattern}", cwd=tmp_path).returncode == 0


def test_a_claim_of_one_s_own(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from assay.theory.constructions.parity import ElmanParity\n"
        "class Broken(ElmanParity):\n"
        "    '''A network that forgets what it reads computes parity.'''\n"
        "    def build(self, length):\n"
        "        model = super().build(length)\n"
        "        model.blocks[0].mixer.R.zero_()\n"
        "        return model\n"
    )
    done = assay("prove", "mine:Broken", "--length", "20", cwd=tmp_path)
    assert done.returncode == 1
    assert "mine:Broken" in done.stdout


def test_sizes_fit_the_terminal_and_are_data_too(tmp_path: Path):
    shown = assay("size", "index-lookup", "--length", "400", cwd=tmp_path)
    assert shown.returncode == 0
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert "lookup-quadratic: width 10, 1 layer, 32 bits" in shown.stdout
    for bits, width in (("32", 38), ("16", 75)):  # the first 2 x width numbers of so many bits that hold 2,400
        words = ("size", "index-lookup", "--length", "400", "--precision", bits, "--json")
        rows = json.loads(assay(*words, cwd=tmp_path).stdout)["sizes"]
        lstm = next(row for row in rows if row["model"] == "lstm")
        assert (lstm["bits"], lstm["width"]) == (2400, width)


def test_claims_are_listed_and_explained():
    listed = CliRunner().invoke(app, ["list", "claims"], env={"COLUMNS": "100"}).output
    assert all(name in listed for name in CLAIMS.entries)
    assert max(map(len, listed.splitlines())) <= 100
    shown = CliRunner().invoke(app, ["show", "dyck-rnn"]).output
    assert "depth = 2" in shown
    assert "Source: " in shown


def test_names_mean_one_thing():
    from assay.models.registry import MODELS
    from assay.tasks import TASKS

    assert not set(CLAIMS.entries) & {*TASKS.entries, *MODELS.entries}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("prove lookup-tracy", "did you mean 'lookup-trace'"),
        ("prove lookup-trace --length 0", "no length 0"),
        ("prove equality-two-layers --length 7", "no length 7"),
        ("prove reset-dyck-delta --length 9000", "exact up to 2894"),
        ("prove lookup-trace --length 8 --largest", "not both"),
        ("prove --set k=2", "name the claim"),
        ("prove dyck-rnn --set kk=2", "did you mean 'k'"),
        ("prove dyck-rnn --set k", "NAME=VALUE"),
        ("prove dyck-rnn --set k=many", "k = 'many' is not valid"),
        ("prove dyck-rnn --set k=0", "k = 0 is not valid"),
        ("prove dyck-rnn --set k=1.5", "k = 1.5 is not valid"),
        ("prove dfa-rnn --set task=5", "no table of a finite automaton"),
        ("prove rnn-protocol --length 1", "at least 2"),
        ("prove k-dnf --set formula=x9999", "x1 to x999"),
        ("prove k-dnf --set formula=x1&&x2", "no clause of a DNF"),
        ("prove dfa-rnn --set task=dyck-1", "no table of a finite automaton"),
        ("prove lookup-trace --numbers flaot16", "did you mean 'float16'"),
        ("prove lookup-trace --numbers fixed:3", "fixed:WHOLE.FRACTION"),
        ("prove lookup-trace --numbers float16 --part weight", "did you mean 'weights'"),
        ("prove lookup-trace --part weights", "give --numbers too"),
        ("prove lookup-trace --attention soft", "did you mean 'softmax'"),
        ("prove lookup-bits --numbers float16", "no numbers to round"),
        ("prove parity-lstm --attention hard", "no attention to exchange"),
        ("size partiy --length 4", "did you mean 'parity'"),
        ("size parity", "--length"),
        ("size parity --length 0", "greater than or equal to 1"),
        ("report theory --store nowhere.json", "measure-theory"),
        ("report theory --store other.json", "is not a record of theory"),
        ("show lookup-trac", "did you mean 'lookup-trace'"),
    ],
)
def test_every_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "other.json").write_text("{}")
    assert said in mistake(words, tmp_path, monkeypatch, capsys)
