"""Claims and sizes from the command line: lines that fit, exit codes, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from assay.cli import app
from assay.studies import RESULTS
from assay.theory.measurements import PARTS
from assay.theory.registry import CLAIMS
from tests.test_cli import mistake


def assay(*words: str) -> Result:
    """In this process, since starting one takes seconds."""
    return CliRunner().invoke(app, words, env={"COLUMNS": "100"})


def test_a_claim_is_one_line_and_a_failure_is_exit_code_1():
    good = assay("prove", "dyck-rnn", "dyck-bits", "--length", "20")
    assert good.exit_code == 0
    header, *lines = good.stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [["dyck-rnn", "yes", "20"], ["dyck-bits", "yes", "20"]]
    assert max(map(len, good.stdout.splitlines())) <= 100
    assert header.split() == ["claim", "holds", "N", "inputs", "width", "bits", "margin", "sec", "checked"]
    bad = assay("prove", "dyck-two-layers", "--length", "4", "--numbers", "fixed:1.1")
    assert bad.exit_code == 1
    assert "wrong" in bad.stdout
    assert bad.stdout.splitlines()[1].split()[:6:5] == ["dyck-two-layers", "3"], "the bits of the format"


def test_claims_as_json():
    done = assay("prove", "recall-pairs", "--length", "4", "--attention", "hard", "--json")
    (result,) = json.loads(done.stdout)["verdicts"]
    assert result["holds"]
    assert result["inputs"] > 10_000
    failed = assay("prove", "dyck-two-layers", "--length", "6", "--attention", "linear", "--json")
    assert failed.exit_code == 1
    assert not json.loads(failed.stdout)["verdicts"][0]["holds"]


def test_options_of_a_claim():
    done = assay("prove", "k-dnf", "--set", "formula=(x1 & ~x3) | (x2 & x4)")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split()[2] == "4"
    pattern = json.dumps({"kind": "regex", "pattern": "(ab|ba)*"})
    assert assay("prove", "dfa-srwm", "--length", "20", "--set", f"task={pattern}").exit_code == 0


OWN_CLAIM = """
from assay.theory.constructions.parity import ElmanParity
class Broken(ElmanParity):
    '''A network that forgets its input computes parity.'''
    def build(self, length):
        model = super().build(length)
        model.blocks[0].mixer.R.zero_()
        return model
"""


def test_a_claim_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "own_claim.py").write_text(OWN_CLAIM)
    monkeypatch.syspath_prepend(tmp_path)
    done = assay("prove", "own_claim:Broken", "--length", "20")
    assert done.exit_code == 1
    assert "own_claim:Broken" in done.stdout


def test_sizes_fit_the_terminal_and_are_data_too():
    shown = assay("size", "index-lookup", "--length", "400")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert "lookup-quadratic: width 10, 1 layer  (1)" in shown.stdout
    assert "…" not in assay("size", "parity", "--length", "4000").stdout
    for bits, width in (("32", 38), ("16", 75)):  # the least width with 2 x width numbers that hold 2,400 bits
        words = ("size", "index-lookup", "--length", "400", "--precision", bits, "--json")
        rows = json.loads(assay(*words).stdout)["sizes"]
        lstm = next(row for row in rows if row["model"] == "lstm")
        assert (lstm["bits"], lstm["width"]) == (2400, width)


def test_a_record_is_measured_in_part(tmp_path: Path):
    """In processes of its own, from the record that ships."""
    record = tmp_path / "theory.json"
    before = json.loads((RESULTS / "theory.json").read_text())
    record.write_text(json.dumps(before))
    done = assay("measure-theory", "--out", str(record), "--only", "bits")
    assert done.exit_code == 0, done.output
    assert f"assay report theory --store {record}" in done.stdout
    after = json.loads(record.read_text())
    assert after["command"] == "assay measure-theory"
    assert after["made"]["bits"] != before["made"]["bits"]
    assert {part: after[part] for part in PARTS} == {part: before[part] for part in PARTS}
    assert [*tmp_path.iterdir()] == [record]


def test_claims_are_listed_and_explained():
    listed = CliRunner().invoke(app, ["list", "claims"], env={"COLUMNS": "100"}).output
    assert all(name in listed for name in CLAIMS.entries)
    assert max(map(len, listed.splitlines())) <= 100
    shown = CliRunner().invoke(app, ["show", "dyck-rnn"]).output
    assert "depth = 2" in shown
    assert "Source: " in shown


def test_names_mean_one_thing():
    from assay.models import MODELS
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
        ("prove k-dnf --set formula=x1&&x2", "not a clause of a DNF"),
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
        ("measure-theory --only claim", "did you mean 'claims'"),
        ("measure-theory --claim parity-ltsm", "did you mean 'parity-lstm'"),
        ("measure-theory --only bits", "cannot read the record of theory at theory.json"),
        ("measure-theory --only bits --out other.json", "is not a record of theory"),
        ("measure-theory --out .", "it is a folder"),
        ("show lookup-trac", "did you mean 'lookup-trace'"),
    ],
)
def test_every_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "other.json").write_text("{}")
    assert said in mistake(words, tmp_path, monkeypatch, capsys)
