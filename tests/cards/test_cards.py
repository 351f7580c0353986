"""Cards: what a class is, its examination, a card from the command line, and the records of the references."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.analysis.cells import Cell
from assay.cards import making as makings
from assay.cards.examination import examine_subject
from assay.cards.making import Making
from assay.cards.page import render
from assay.cards.results import Entry
from assay.cards.subject import subject_of
from assay.cards.verdicts import headline, sentence, sentences
from assay.cli import app, main
from assay.cli_card import file_name
from assay.description import digest
from assay.errors import BadInput
from assay.lab.execute import execute
from assay.models import named_model, read_model
from assay.models.foreign import ForeignLayer, InSkeleton
from assay.models.skeleton import Foreign
from assay.record import ProbeScore, Probing, Record
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.studies import study_named
from assay.studies.card import REFERENCES, SCALES, Question, Scale

from . import modules

CPU = torch.device("cpu")
HERE = modules.__name__
GUIDE = (Path(__file__).parents[2] / "docs" / "own-experiments.md").read_text()
TINY = Scale(
    questions=(
        Question("parity", "regular, a cyclic group", (2, 6)),
        Question("s3", "regular, a solvable group", (2, 6)),
        Question("index-lookup", "lookup by position", (3, 5), {"alphabet": 2, "positions": 4}),
    ),
    width=8,
    layers=1,
    steps=4,
    rates=(1e-3, 1e-2),
    seeds=1,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The laptop battery with three tasks and four steps, in a new folder."""
    monkeypatch.setitem(SCALES, "laptop", TINY)
    monkeypatch.setattr(makings, "RESULTS", tmp_path / "no results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- what a class is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Running", "Running(width=8) maps [batch, time, width] to the same shape, so it is a mixer"),
        ("InTuple", "InTuple(hidden_size=8) maps [batch, time, width] to the same shape, so it is a mixer"),
        ("Whole", "Whole(vocab=3, features=0, answers=2) maps tokens to logits, so it is a whole model"),
        ("WithLogits", "WithLogits(vocab=3, features=0, answers=2) maps tokens to logits, so it is a whole model"),
    ],
)
def test_what_a_class_is_follows_from_how_it_is_built_and_what_it_returns(name: str, found: str):
    subject = subject_of(f"{HERE}:{name}", TINY)
    assert subject.title == name
    assert subject.description.startswith(found)
    assert isinstance(subject.model, Foreign)


def test_a_mixer_in_the_skeleton_equals_itself_called_alone():
    """One block of the skeleton, written out around the user's own module."""
    model = InSkeleton.around(modules.Running, f"{HERE}:Running", "running", width=8, layers=1, scale=2.0)
    built = model.build(4, 0, 2, Rng.seeded(0))
    (layer,) = (part for part in built.modules() if isinstance(part, ForeignLayer))
    assert layer.module.scale == 2.0
    tokens = torch.randint(1, 4, (3, 7), generator=torch.Generator().manual_seed(0))
    stack: Any = built.model
    block = stack.blocks[0]
    x = stack.embed(tokens)
    x = x + layer.module(block.mixer_norm(x))
    x = x + block.ff(block.ff_norm(x))
    torch.testing.assert_close(built(tokens), stack.read_out(x))
    assert read_model(model.plain()) == model


def test_the_skeleton_s_options_are_told_from_those_of_the_class():
    model = named_model(f"mixer:{HERE}:Running", width=8, positions="sinusoidal", scale=0.5)
    assert isinstance(model, InSkeleton)
    assert (model.positions, model.options) == ("sinusoidal", {"scale": 0.5})
    with pytest.raises(BadInput, match="Running has no option 'wdith'; did you mean 'width'"):
        named_model(f"mixer:{HERE}:Running", wdith=8)


def test_the_state_of_a_user_s_mixer_is_unknown():
    training = {"steps": 2, "lengths": [2, 6], "validate_every": 1}
    record = execute(run_spec("parity", f"mixer:{HERE}:Running", training=training, testing={"rows": 4}), CPU)
    assert record.error is None
    assert (record.state_floats, record.state_bits) == (None, None)


# -- models of other packages ------------------------------------------------------------------------------------------


def test_a_model_of_transformers_is_built_small_and_random():
    pytest.importorskip("transformers")
    model = named_model("hf:GPT2", width=8, layers=1, heads=2)
    module = model.build(4, 0, 3, Rng.seeded(0))
    tokens = torch.ones(2, 5, dtype=torch.int64)
    assert module(tokens).shape == (2, 5, 3)
    assert sum(p.numel() for p in module.parameters()) < 20_000
    torch.testing.assert_close(model.build(4, 0, 3, Rng.seeded(0)).eval()(tokens), module.eval()(tokens))
    with pytest.raises(BadInput, match="transformers has no model 'gtp2'; did you mean 'GPT2'"):
        named_model("hf:gtp2")
    subject = subject_of("hf:GPT2", TINY, heads=2)
    examination = examine_subject(subject, TINY, CPU)
    assert {check.name: check.outcome for check in examination.checks}["causality and batch"] == "passed"
    assert RunSpec(**examination.runs[0].plain()) == examination.runs[0]


def test_packages_that_are_missing_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "fla.layers", None)
    with pytest.raises(BadInput, match=r"flash-linear-attention is not installed; .* pip install 'assay\[fla\]'"):
        named_model("fla:GatedDeltaNet")


def test_kernels_for_gpus_alone_are_refused_before_training():
    model = InSkeleton(name="fla:Layer", path="fla.layers:Layer")
    runs = {"parity": run_spec("parity", model)}
    with pytest.raises(BadInput, match="fla:Layer has kernels for GPUs only"):
        examine_subject(assay.cards.subject.Subject("fla:Layer", "fla:Layer", model, ""), TINY, CPU)
    assert execute(runs["parity"], CPU).error


# -- bad input ---------------------------------------------------------------------------------------------------------

WRONG = {
    "Unbuildable": "Unbuildable(width=8) raises RuntimeError: no such luck",
    "Needy": "Needy(width=8) raises TypeError",
    "Halved": "Halved(width=8) on [batch, time, width] = [2, 5, 8] gives torch.float32 of shape [2, 5, 4]",
    "Moving": "Moving(width=8) on [batch, time, width] = [2, 5, 8] on cpu gives its output on meta",
    "ForwardOnly": "ForwardOnly with vocab=3, features=0, answers=2 on inputs [4, 6] raises in backward",
    "Nothing": "Nothing with vocab=3, features=0, answers=2 has no parameters that can be trained",
    "Double": "Double(width=8) on [batch, time, width] = [2, 5, 8] of torch.float32 gives torch.float64 of shape",
    "NotANumber": "NotANumber with vocab=3, features=0, answers=2 on inputs [4, 6] gives NaN before the first step",
    "Remembering": "Remembering keeps something of an earlier call: after other inputs [4, 6], its output of row 0",
    "Once": "Once cannot be called twice: the second call raises RuntimeError: out of tape",
    "Exits": "Exits(width=8) on [batch, time, width] = [2, 5, 8] raises SystemExit: 0",
    "Lazy": "Lazy with vocab=3, features=0, answers=2 has parameters without a size (nn.Lazy...): make them when it is "
    "built, and so on all 3 tasks",
    "SeesFuture": "SeesFuture sees the future: changing token",
    "Neither": "Neither can be built neither as a mixer nor as a model",
    "not_a_module": "not_a_module(8) is a int, not a torch.nn.Module",
    "Absent": "has no 'Absent'",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_class_is_told_before_any_training(name: str, tiny: Path):
    result = CliRunner().invoke(app, ["card", f"{HERE}:{name}", "--device", "cpu"])
    assert isinstance(result.exception, BadInput)
    message = str(result.exception)
    assert WRONG[name] in message
    assert "\n" not in message
    assert list(tiny.iterdir()) == []


def test_one_reason_is_one_sentence():
    with pytest.raises(BadInput) as caught:
        subject_of(f"{HERE}:Unbuildable", TINY)
    assert str(caught.value) == "Unbuildable(width=8) raises RuntimeError: no such luck"
    with pytest.raises(BadInput) as caught:
        examine_subject(subject_of(f"{HERE}:NotANumber", TINY), TINY, CPU)
    call = "NotANumber with vocab=3, features=0, answers=2 on inputs [4, 6]"
    assert str(caught.value) == f"{call} gives NaN before the first step, and so on all 3 tasks"


def test_numbers_that_are_lost_at_the_longest_inputs_are_told():
    checks = examine_subject(subject_of(f"{HERE}:NotANumberLater", TINY), TINY, CPU).checks
    assert ("precision", "failed", "it gives NaN at 60 tokens") in checks


def test_a_task_on_which_a_class_fails_is_left_out_and_the_others_go_on():
    examination = examine_subject(subject_of(f"{HERE}:FewAnswers", TINY), TINY, CPU)
    assert {run.task.kind for run in examination.runs} == {"parity"}
    call = "FewAnswers with vocab=7, features=0, answers=6"
    assert examination.left_out["s3"] == f"{call} cannot be built: ValueError: 6 answers are too many"


def test_a_table_that_is_too_short_is_tested_on_what_it_can_read():
    examination = examine_subject(subject_of(f"{HERE}:ShortTable", TINY), TINY, CPU)
    assert "cannot read 60 tokens: IndexError" in examination.shortened["parity"]
    assert "it is tested up to 24 tokens" in examination.shortened["parity"]
    (bins,) = {run.testing.bins for run in examination.runs if run.task.kind == "parity"}
    assert [bin_.name for bin_ in bins] == ["1x", "2x", "4x"]
    assert "index-lookup" not in examination.shortened


def test_a_folder_that_cannot_be_written_is_told_before_any_training(tiny: Path):
    (tiny / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot write .*file/cards: .*file is not a folder"):
        assay.card("elman", out=tiny / "file" / "cards", device="cpu")
    result = CliRunner().invoke(app, ["card", "elman", "--device", "cpu", "--out", "file"])
    assert "cannot write file: file is not a folder" in str(result.exception)
    assert [path.name for path in tiny.iterdir()] == ["file"]


# -- cards -------------------------------------------------------------------------------------------------------------


def test_the_card_of_the_mixer_in_the_docs(tiny: Path):
    """The mixer and the command of docs/own-experiments.md, with fewer steps."""
    mixer = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, flags=re.S) if "class Decay" in block)
    body = [line for line in mixer.splitlines() if line.strip() and not line.startswith("import")]
    assert len(body) == 12
    (tiny / "mine.py").write_text(mixer)
    assert "`assay card mine:Decay`" in GUIDE
    command = ["card", "mine:Decay", "--device", "cpu", "--jobs", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tiny))
        made = CliRunner().invoke(app, ["card", "elman", *command[2:], "--out", "elman"])
        assert made.exit_code == 0, made.output
        printed = CliRunner().invoke(app, [*command, "--against", "elman,srwm", "--json"])
    data = json.loads(printed.output)
    assert printed.exit_code == 0, printed.output
    assert data["without_records"] == ["srwm"]
    assert [row["architecture"] for row in data["results"]] == ["mine:Decay"] * 3 + ["elman"] * 3
    assert len(data["verdicts"]) == 3
    assert data["sizes"]["mine:Decay"]["state_bits"] is None
    folder = tiny / "cards" / "Decay"
    page = (folder / "index.html").read_text()
    assert "Card of Decay" in page
    assert "Without records: SRWM" in page
    assert not re.search(r'(src|href)="?https?:', page)
    rows = list(csv.DictReader((folder / "card.csv").open()))
    assert [row["solved"] for row in rows] == [str(row["solved"]) for row in data["results"]]
    table = (folder / "card.tex").read_text()
    assert table.count("\\\\\n") == 3  # a header and two architectures
    assert {"assay", "elman1990", "irie2023"} <= set(re.findall(r"@\w+\{(\w+),", (folder / "card.bib").read_text()))
    badge = ElementTree.fromstring((folder / "badge.svg").read_text())
    solved = data["results"][0]["solved"]
    assert f"parity: solved {solved}/1" in [text.text for text in badge.iter("{http://www.w3.org/2000/svg}text")]
    assert (folder / "lengths.pdf").read_bytes().startswith(b"%PDF")


def test_the_folder_of_a_card_names_its_options():
    assert file_name("fla:GatedDeltaNet", ["width=32", "init=a/b"]) == "fla-GatedDeltaNet-width=32-init=a-b"


def test_a_card_from_python_keeps_what_is_in_the_store(tiny: Path):
    first = assay.card("elman", against=[], device="cpu", jobs=1)
    again = Making("elman", [], store=tiny / "assay-store")
    records = again.carry_out()
    assert [record.digest for record in records] == [run.digest for run in again.examination.runs]
    assert records == first.records["elman"]
    assert (len(again.pending), again.left) == (6, [])
    with pytest.raises(BadInput, match="a list of names"):
        assay.card("elman", against="lstm")
    with pytest.raises(BadInput, match="unknown scale 'labtop'; did you mean 'laptop'"):
        assay.card("elman", scale="labtop")
    with pytest.raises(BadInput, match="unknown model 'lstn'; did you mean 'lstm'"):
        assay.card("elman", against=["lstn"])


def test_the_battery_stays_as_it_was_recorded():
    """Its runs are those of the references: another battery would need other records."""
    digests = {name: digest([run.digest for run in scale.runs(scale.named("gru"))]) for name, scale in SCALES.items()}
    assert digests == {"laptop": "42924d0e3332956a", "gpu": "1a414c0075e715b5"}
    assert [q.task for q in SCALES["laptop"].questions if q.bins()[-1]["name"] != "10x"] == ["index-lookup", "recall"]


def test_references_ship_and_are_shown_without_training(tmp_path: Path):
    making = Making("lstm", ["gru"], store=tmp_path / "store")
    assert making.pending == []
    card = making.card(making.carry_out())
    assert not (tmp_path / "store").exists()
    runs = {run.digest for run in study_named("card-laptop").runs}
    assert len(runs) == 48 * len(REFERENCES)
    assert set(making.shipped) <= runs
    parity = card.entry("lstm", "parity")
    assert parity
    assert len(parity.cell.records) == 3
    words = [text for text in sentences(card) if "parity" in text]
    assert len(words) == 1
    assert f"{len(parity.cell.right_on_random)} of 3 seeds" in words[0] or "all 3 seeds" in words[0]
    assert "none of their failures follows from these bounds" in "\n".join(render(card).markdown)


def proved_right(record: Record) -> Record:
    """A record as if its run had been right on everything."""
    scores = tuple(score.model_copy(update={"sequences": 1.0, "answers": 1.0}) for score in record.scores)
    probing = Probing(probes=1, scores=(ProbeScore(name="p", rows=1, wrong=0),), seconds=0.0)
    return record.model_copy(update={"verdict": "solved", "scores": scores, "probing": probing})


def test_what_was_not_tested_like_the_references_is_said(tiny: Path):
    """Shorter inputs are named wherever a verdict stands; a run that failed is no failure to learn."""
    card, name = assay.card(f"{HERE}:ShortTable", against=["elman"], device="cpu", jobs=1), f"{HERE}:ShortTable"
    records = [proved_right(record) for record in card.records[name]]
    broken = [
        r.model_copy(update={"verdict": "failed", "error": "OSError: no luck"}) if r.task == "s3" else r
        for r in records
    ]
    card = dataclasses.replace(card, records={name: broken})
    notes = "(1 of these tested on shorter inputs than the references, 1 without a result)"
    assert headline(card) == f"ShortTable solves 2 of 3 tasks, probes included, in at least one of 1 seeds {notes}."
    assert "S_3 has no result: 2 of 2 runs failed, the first with OSError: no luck." in sentences(card)
    assert "right on every random input of up to 24 tokens" in repr(card)
    assert "<li>S_3 has no result" in card._repr_html_()
    page = render(card)
    assert "1 of 1<br>1 on probes<br>to 24 tokens" in "\n".join(page.markdown)
    assert "1/1 (1)$^*$" in str(page.files["card.tex"])
    assert "solved 1/1 to 24 tokens" in str(page.files["badge.svg"])
    assert json.loads(str(page.files["card.json"]))["results"][0]["tested up to"] == 24


def test_verdicts_do_not_say_more_than_the_numbers(tiny: Path):
    card = assay.card("elman", against=[], device="cpu", jobs=1, layers=2)
    assert card.subject.description == "a model of Assay, with 2 layers of width 8; with the options layers=2"
    (parity,) = [entry for entry in card.own if entry.question.task == "parity"]
    nearly = [
        r.model_copy(
            update={
                "verdict": "censored",
                "scores": tuple(s.model_copy(update={"sequences": 0.9999}) for s in r.scores),
            }
        )
        for r in parity.cell.records
    ]
    text = sentence(card, Entry("elman", parity.question, Cell("parity", "elman", "", tuple(nearly))))
    assert "99.9 % of the sequences of training length are right, and in no seed all of them" in text
    diverged = tuple(r.model_copy(update={"verdict": "diverged", "scores": ()}) for r in nearly)
    text = sentence(card, Entry("elman", parity.question, Cell("parity", "elman", "", diverged)))
    assert text == "Elman network diverges on parity in 1 of 1 seeds."


def test_what_a_class_prints_is_not_part_of_the_json(tiny: Path, capfd: pytest.CaptureFixture[str]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["assay", "card", f"{HERE}:Loud", "--against", "", "--device", "cpu", "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
    out, err = capfd.readouterr()
    assert ended.value.code in (None, 0)
    assert json.loads(out)["kind"] == "card"
    assert "in forward" in err
