"""Certificates and their checker: what holds, what was tampered with, and what is false although its seal is right."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from assay.certify import check as checker
from assay.certify.certificate import certificate
from assay.certify.machine import NotCarried, StateMachine
from assay.certify.methods import certify
from assay.certify.runs import check_file
from assay.certify.seal import sealed, unsealed
from assay.certify.search import Limits
from assay.certify.statement import problem_of, same_automaton
from assay.certify.table import table_of
from assay.cli import app
from assay.errors import BadInput
from assay.lab.weights import load_model, serialize
from assay.models import named_model
from assay.models.skeleton import Architecture, Foreign
from assay.record import Record
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.store import Store
from assay.tasks import named_task

from .modules import Sign

PARITY = named_task("parity")
TABLE = table_of(PARITY)
SHORT = Limits(seconds=5, states=2000)
PROOF, WORD = 0, 1


def certificates(folder: Path) -> tuple[Path, Path]:
    """A proof of the right machine, and a refutation of its broken twin."""
    paths = folder / "proof", folder / "word"
    for path, decay, outcome in zip(paths, (1.0, 0.5), ("proved", "refuted"), strict=True):
        model = Sign(3, 0, 2, decay=decay)
        (result,) = certify(model, TABLE, "closure", "fixed:2.6", SHORT)
        assert result.outcome == outcome
        path.write_bytes(certificate(result, model, Foreign.of(Sign), PARITY, TABLE))
    return paths


def test_right_certificates_hold(tmp_path: Path):
    proof, word = certificates(tmp_path)
    rounded = "tests.certify.modules:Sign with its state rounded to fixed:2.6 is"
    assert check_file(proof, own_module=True) == ("", f"{rounded} right on every input of parity")
    assert check_file(word, own_module=True) == ("", f"{rounded} wrong on 0^4, an input of parity")


def test_one_changed_byte_anywhere_is_found(tmp_path: Path):
    for path in certificates(tmp_path):
        data = path.read_bytes()
        digest = data.index(json.loads(unsealed_text(data))["sha256"].encode())
        for place in {*range(0, len(data), 97), 0, 7, 8, digest, digest + 63, len(data) - 1}:
            path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
            with pytest.raises(BadInput, match="was changed or damaged"):
                check_file(path)
        for changed in (data[:-1], data + b"0", b"", data[:100]):
            path.write_bytes(changed)
            with pytest.raises(BadInput, match="was changed or damaged"):
                check_file(path)


def unsealed_text(data: bytes) -> str:
    return str(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["certificate"])


Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]


@pytest.mark.parametrize(
    ("which", "change", "problem"),
    [
        (PROOF, lambda s, t: s.update(pairs=s["pairs"] + 1), "its pairs are not the 2 that are reached"),
        (PROOF, lambda s, t: s.update(pairs_sha256="0f" * 32), "its pairs are not the 2 that are reached"),
        (PROOF, lambda s, t: s.update(fixed=[0, 0]), "a word of 1 tokens is answered wrongly"),
        (PROOF, lambda s, t: s.update(fixed=[3, 6], pairs=3), "its pairs are not the 2 that are reached"),
        (PROOF, lambda s, t: t["weights.factors"][1].fill_(0.5), "a word of 4 tokens is answered wrongly"),
        (PROOF, lambda s, t: t["weights.threshold"].fill_(1.0), "a word of 1 tokens is answered wrongly"),
        (PROOF, lambda s, t: t["answers"].fill_(-100), "the table is not that of parity"),
        (PROOF, lambda s, t: t["moves"].fill_(-1), "the table is not that of parity"),
        (PROOF, lambda s, t: s.update(task=named_task("cyclic", n=2).plain()), "the table is not that of cyclic"),
        (WORD, lambda s, t: s.update(word=[1, 1, 1]), "the word is answered rightly"),
        (WORD, lambda s, t: s.update(word=[]), "the word is answered rightly"),
        (WORD, lambda s, t: s.update(outcome="proved", length=None), "a word of 4 tokens is answered wrongly"),
        (WORD, lambda s, t: s.update(outcome="proved", length=4), "a word of 4 tokens is answered wrongly"),
        (WORD, lambda s, t: t["weights.factors"][1].fill_(1.0), "the word is answered rightly"),
    ],
)
def test_false_certificates_with_a_right_seal_do_not_hold(tmp_path: Path, which: int, change: Change, problem: str):
    path = certificates(tmp_path)[which]
    statement, tensors = unsealed(path)
    change(statement, tensors)
    path.write_bytes(sealed(statement, tensors))
    assert check_file(path, own_module=True)[0].startswith(problem)


def test_what_cannot_be_run_is_bad_input(tmp_path: Path):
    path, _ = certificates(tmp_path)
    statement, tensors = unsealed(path)
    path.write_bytes(sealed(statement | {"shape": [3]}, dict(tensors)))
    with pytest.raises(BadInput, match="cannot be checked"):
        check_file(path)


@pytest.mark.parametrize(
    "architecture",
    [
        named_model("hybrid", mixers=("elman",), width=4, positions="sinusoidal"),
        named_model("retnet", width=4, heads=1),
    ],
    ids=["sinusoidal", "retnet"],
)
def test_positions_are_not_ignored(tmp_path: Path, architecture: Architecture):
    """Neither those of the whole model, nor those that a layer counts (retention rotates by them)."""
    _, tensors = unsealed(certificates(tmp_path)[PROOF])
    statement = {"model": architecture.plain(), "task": PARITY.plain()}
    assert "counts positions" in problem_of(statement, tensors)
    with pytest.raises(NotCarried):
        StateMachine(architecture.build(3, 0, 2, Rng.seeded(0)), "fixed:2.2")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"block": -1}, "the block"),
        ({"block": 10**15}, "the block"),
        ({"length": 2.5}, "the length"),
        ({"length": -3}, "the length"),
        ({"outcome": "open"}, "the outcome"),
        ({"fixed": [2, 2, 8]}, "the number format"),
        ({"fixed": [2000, 2]}, "the number format"),
        ({"shape": [["touch", "x"], -1, None]}, "the shape"),
    ],
)
def test_a_statement_of_another_form_is_refused_before_it_is_run(tmp_path: Path, change: dict[str, Any], problem: str):
    path = certificates(tmp_path)[PROOF]
    statement, tensors = unsealed(path)
    path.write_bytes(sealed(statement | change, tensors))
    with pytest.raises(BadInput, match=problem):
        check_file(path, own_module=True)


def test_the_table_is_compared_on_words_of_every_length(tmp_path: Path):
    """A language that differs from the table only from 13 tokens on."""
    long = named_task("dfa", alphabet="a", table=tuple((min(i + 1, 13),) for i in range(14)), accept=(13,))
    moves, answers = torch.tensor([[0]]), torch.tensor([0])
    assert not same_automaton(long, moves, answers)
    path = certificates(tmp_path)[PROOF]
    statement, tensors = unsealed(path)
    cut = {"moves": tensors["moves"][:, :1].contiguous()}
    path.write_bytes(sealed(statement, tensors | cut))
    with pytest.raises(BadInput, match="the table"):
        check_file(path, own_module=True)


def test_the_code_of_a_module_is_not_run_unasked(tmp_path: Path):
    with pytest.raises(BadInput, match="allow that with --own-module"):
        check_file(certificates(tmp_path)[PROOF])


class OtherStep(Sign):
    """A module whose forward pass is not its step, repeated."""

    def forward(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        logits, state = super().forward(x, state)
        return logits.flip(-1), state


def test_a_step_that_is_not_the_forward_pass_is_refused():
    with pytest.raises(BadInput, match="is not its `forward`: their answers differ at token 1"):
        certify(OtherStep(3, 0, 2), table_of(PARITY), "closure", "fixed:2.2")


def test_the_checker_is_small_and_independent():
    source = Path(checker.__file__).read_text()
    assert len(source.splitlines()) <= 100
    imported = {node.module for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("assay")} == {
        "assay.models",
        "assay.rng",
        "assay.tasks",
    }


@pytest.mark.parametrize("model", ["mamba", "dss", "delta-net-signed", "srwm", "e-lstm", "gru"])
def test_the_checker_reaches_the_same_pairs_as_the_prover(tmp_path: Path, model: str):
    """On a task whose answer is always 1, with states of every kind: complex numbers, tuples, initial matrices."""
    heads = {} if model in ("mamba", "dss", "e-lstm", "gru") else {"heads": 1}
    architecture = named_model(model, width=2, layers=1, **heads)
    task = named_task("dfa", alphabet="ab", table=((0, 0),), accept=(0,))
    network: Any = architecture.build(*task.shape, Rng.seeded(1))
    with torch.no_grad():
        network.read_out.bias.copy_(torch.tensor([-99.0, 99.0]))
    (result,) = certify(network, table_of(task), "closure", "fixed:3.1", SHORT)
    assert result.outcome == "proved"
    path = tmp_path / "proof"
    path.write_bytes(certificate(result, network, architecture, task, table_of(task)))
    assert check_file(path)[0] == ""


# -- the commands ------------------------------------------------------------------------------------------------------


def small_store(path: Path) -> Record:
    """A store with one run that was never trained."""
    testing = {"bins": ({"kind": "bin", "name": "Bin0", "low": 2, "high": 6},), "rows": 4}
    spec = run_spec("parity", "gru", model_options={"width": 2}, training={"lengths": (2, 6)}, testing=testing)
    module = spec.model.build(*spec.task.shape, Rng.seeded(0, "initial"))
    record = Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved")
    Store.create(path).add(record.with_weights({"": serialize(module)}))
    return record


def test_a_run_is_refuted_and_its_record_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record = small_store(tmp_path / "store")
    app(["certify", record.digest[:6], "--store", str(tmp_path / "store"), "--seconds", "4"], standalone_mode=False)
    printed = capsys.readouterr().out
    (stored,) = Store.open(tmp_path / "store").records()
    assert {result.method for result in stored.certified} == {"lasso", "exhaustive", "closure"}
    assert stored.rung == "refuted"
    assert f"REFUTED by lasso, float32: {stored.wrong_word}" in printed
    file = tmp_path / "store" / "certificates" / stored.certified[0].certificate
    app(["check", str(file)], standalone_mode=False)
    assert "holds" in capsys.readouterr().out


def test_a_shorter_search_does_not_replace_a_longer_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store, task = tmp_path / "store", named_task("dfa", alphabet="ab", table=((0, 0),), accept=(0,))
    spec = run_spec(task, "lstm", model_options={"width": 4})
    module: Any = spec.model.build(*spec.task.shape, Rng.seeded(0))
    with torch.no_grad():
        module.read_out.bias.copy_(torch.tensor([-9.0, 9.0]))  # every answer is 1, and right
    record = Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved")
    Store.create(store).add(record.with_weights({"": serialize(module)}))
    arguments = ["certify", str(store), "--method", "exhaustive", "--states"]
    for states, length, note in (
        ("1000", 9, ""),
        ("100", 9, " (an earlier result, which says more)"),
        ("3000", 11, ""),
    ):
        app([*arguments, states], standalone_mode=False)
        assert f"PROVED to {length} by exhaustive, float32{note}\n" in capsys.readouterr().out
        (stored,) = Store.open(store).records()
        assert [result.length for result in stored.certified] == [length]
        assert unsealed(store / "certificates" / stored.certified[0].certificate)[0]["length"] == length


def test_a_module_is_certified_from_its_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file(Sign(3, 0, 2).state_dict(), "sign.safetensors")
    arguments = "certify tests.certify.modules:Sign --task parity --weights sign.safetensors --method closure --json"
    app(arguments.split(), standalone_mode=False)
    (found,) = json.loads(capsys.readouterr().out)["certified"]
    assert (found["results"][0]["outcome"], found["results"][0]["states"]) == ("proved", 2)
    assert (Path("certificates") / found["results"][0]["certificate"]).is_file()


def test_weights_of_another_model_are_named(tmp_path: Path):
    save_file({"factors": torch.zeros(3)}, tmp_path / "w.safetensors")
    arguments = ["certify", "tests.certify.modules:Sign", "--task", "parity", "--weights"]
    with pytest.raises(BadInput, match=r"not those of tests\.certify\.modules:Sign: Missing key.*threshold"):
        app([*arguments, str(tmp_path / "w.safetensors")], standalone_mode=False)
    path = certificates(tmp_path)[PROOF]
    statement, tensors = unsealed(path)
    path.write_bytes(sealed(statement, tensors | {"weights.factors": torch.zeros(4)}))
    with pytest.raises(BadInput, match=r"not those of tests\.certify\.modules:Sign: size mismatch for factors"):
        check_file(path, own_module=True)


def test_errors_name_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    save_file(Sign(3, 0, 2).state_dict(), "sign.safetensors")
    arguments = "--task parity --weights sign.safetensors --method closure --format fixed:0.0"
    with pytest.raises(BadInput, match=r"^tests\.certify\.modules:Sign on parity: fixed:0\.0 is too coarse"):
        app(["certify", "tests.certify.modules:Sign", *arguments.split()], standalone_mode=False)
    with pytest.raises(BadInput, match="BatchSign depends on the other rows of its batch"):
        app(["certify", "tests.certify.modules:BatchSign", *arguments.split()], standalone_mode=False)
    with pytest.raises(BadInput, match="Future sees the future: changing token"):
        app(["certify", "tests.certify.modules:Future", *arguments.split()], standalone_mode=False)


def test_a_repaired_network_is_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("assay.certify.repair.STEPS", 5)
    monkeypatch.setattr("assay.certify.repair.TRY_EVERY", 5)
    parent, store = small_store(tmp_path / "store"), str(tmp_path / "store")
    arguments = ["certify", parent.digest, "--store", store, "--method", "closure", "--format", "fixed:3.5", "--repair"]
    app([*arguments, "--states", "1000"], standalone_mode=False)
    before, after = Store.open(store).records()
    assert (before.digest, len(before.certified), before.spec) == (parent.digest, 1, parent.spec)
    assert after.spec["model"]["parent"] == parent.digest
    assert after.digest == RunSpec(**after.spec).digest != parent.digest
    assert (after.steps, after.spec["model"]["steps"], len(after.certified)) == (5, 5, 1)
    repaired: Any = load_model(after)
    assert not torch.equal(repaired.read_out.bias, load_model(before).read_out.bias)  # type: ignore[union-attr, arg-type]
    _, (_, (state,)) = repaired(torch.tensor([[1, 2, 2]]))
    assert torch.allclose(state * 32, (state * 32).round(), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("zz", "has no run with a digest that begins with zz; it has "),
        ("m:C --task parity", "m:C is a module: give its weights with --weights FILE"),
        ("STORE --task cyclic", "has no run of cyclic with weights"),
        ("RUN --method magic", "--method magic is not valid"),
        ("RUN --task cyclic", "is a run on parity, not on cyclic"),
        ("RUN --weights x", "a run has its own weights"),
        ("RUN --method lasso --format fixed:6.4", "--format is for the methods closure and auto"),
        ("RUN --method exhaustive --repair --format fixed:6.4", "exhaustive does not round"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: str, message: str):
    record = small_store(tmp_path / "store")
    words = arguments.replace("RUN", record.digest).replace("STORE", str(tmp_path / "store")).split()
    with pytest.raises(BadInput, match=message):
        app(["certify", *words, "--store", str(tmp_path / "store")], standalone_mode=False)


def test_runs_that_cannot_be_certified_are_left_out_of_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small_store(tmp_path / "store")
    spec = run_spec("dyck-1", "gru", model_options={"width": 2})
    module = spec.model.build(*spec.task.shape, Rng.seeded(0))
    counter = Record(digest=spec.digest, spec=spec.plain(), verdict="solved", stopped="solved")
    Store.open(tmp_path / "store").add(counter.with_weights({"": serialize(module)}))
    app(["certify", str(tmp_path / "store"), "--method", "exhaustive", "--json"], standalone_mode=False)
    printed = capsys.readouterr()
    assert [found["task"] for found in json.loads(printed.out)["certified"]] == ["parity"]
    assert f"left out: gru on dyck-1, seed 0 ({spec.digest[:8]}): dyck-1 has no finite automaton" in " ".join(
        printed.err.split()
    )


def test_a_record_without_weights_is_bad_input(tmp_path: Path):
    record = small_store(tmp_path / "store")
    (tmp_path / "store" / "weights" / f"{record.digest}.safetensors").unlink()
    with pytest.raises(BadInput, match=r"there are no weights of gru on parity, seed 0 .* run it with --weights all"):
        app(["certify", record.digest, "--store", str(tmp_path / "store")], standalone_mode=False)


def test_a_store_or_a_folder_is_checked_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "store" / "certificates"
    folder.mkdir(parents=True)
    for path in certificates(tmp_path):
        path.rename(folder / f"{path.name}.certificate")
    app(["check", str(tmp_path / "store"), "--own-module"], standalone_mode=False)
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 certificates hold"
    (folder / "damaged.certificate").write_bytes(b"")
    assert app(["check", str(folder), "--own-module", "--json"], standalone_mode=False) == 2  # the others are checked
    report = json.loads(capsys.readouterr().out)["certificates"]
    assert [(entry["file"], entry["holds"]) for entry in report] == [
        ("damaged.certificate", None),
        ("proof.certificate", True),
        ("word.certificate", True),
    ]
    with pytest.raises(BadInput, match="cannot read"):
        app(["check", 5000 * "x"], standalone_mode=False)
