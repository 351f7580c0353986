"""The picture, the page and the command: everything of an automaton is shown, and mistakes get one line."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from assay.errors import BadInput
from assay.extract.graphs import graph_of, programs_graph
from assay.extract.learning import learn_automaton
from assay.extract.page import own_task, run_command
from assay.extract.picture import Graph, draw, png
from assay.extract.questions import Questions
from assay.extract.self_modifying import extract_programs
from assay.spec import run_spec
from assay.store import Store
from assay.tasks import named_task
from assay.tasks.automaton import Machine, Regex
from assay.tasks.minimal import minimal
from assay.tasks.regular import FlipFlop, Parity
from assay.tasks.words import tokens_of
from assay.theory.constructions.parity import SrwmParity
from tests.test_cli import assay, mistake

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str, kind: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text") if text.get("class") == kind]


def twelve_states() -> Machine:
    generator = torch.Generator().manual_seed(1)
    moves = torch.randint(0, 12, (12, 3), generator=generator)
    return minimal(Machine(moves, torch.randint(0, 2, (12,), generator=generator)))


def test_a_picture_has_every_state_and_every_label():
    machine, task = twelve_states(), FlipFlop()
    svg = draw(graph_of(machine, task))
    count = len(machine.moves)
    assert count == 12
    assert texts(svg, "name") == [f"q{q}" for q in range(count)]
    between = {(q, int(after)) for q in range(count) for after in machine.moves[q]}
    labels = texts(svg, "label")
    assert len(labels) == len(between)
    assert sorted(", ".join(labels).split(", ")) == sorted([*task.symbols] * count)
    assert {"answer 0", "answer 1", "start"} <= set(texts(svg, "small"))
    assert png(svg).startswith(b"\x89PNG")


def test_states_and_labels_do_not_cover_each_other():
    """Centres of states are apart, and no label stands on a state."""
    root = ElementTree.fromstring(draw(graph_of(twelve_states(), FlipFlop())))
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter(f"{SVG}circle") if c.get("r") == "24"]
    labels = [
        (float(t.get("x", 0)), float(t.get("y", 0))) for t in root.iter(f"{SVG}text") if t.get("class") == "label"
    ]
    assert len(circles) == 12
    assert all(abs(complex(*p) - complex(*q)) > 60 for i, p in enumerate(circles) for q in circles[:i])
    assert all(abs(complex(*p) - complex(*q)) > 22 for p in labels for q in circles)


def test_the_arrows_of_a_wrong_word_are_red():
    graph = graph_of(Parity().machine, Parity(), wrong=(2, 1))
    assert graph.wrong == {(0, 1), (1, 1)}
    assert draw(graph).count('marker-end="url(#wrong)"') == 2


def test_the_outside_is_not_drawn():
    task = Regex(pattern="(ab)*")
    machine = Questions(task).machine
    assert machine is not None
    graph = graph_of(machine, task)
    assert len(graph.names) == 2
    assert graph.arrows == {(0, 1): ["a"], (1, 0): ["b"]}
    assert "dead prefix" in graph.caption


def test_brackets_and_markup_are_escaped():
    svg = draw(Graph(names=["<"], texts=[""], colours=["#fff"], start=0, arrows={(0, 0): ["<", "&"]}))
    assert texts(svg, "label") == ["<, &"]


def test_a_picture_that_cannot_be_read_is_refused():
    with pytest.raises(BadInput, match="41 states are too many for a picture that can be read; at most 40"):
        draw(Graph(names=["q"] * 41, texts=[""] * 41, colours=["#fff"] * 41, start=0))
    with pytest.raises(BadInput, match="120 symbols are too many"):
        graph_of(named_task("s5").machine, named_task("s5"))  # type: ignore[attr-defined]


def test_programs_show_answers_on_their_arrows():
    graph = programs_graph(extract_programs(SrwmParity().build(10), Parity(), length=3))
    assert graph.arrows == {(0, 0): ["0 / 1"], (0, 1): ["1 / 0"], (1, 1): ["0 / 0"], (1, 0): ["1 / 1"]}
    assert [meaning for _, meaning in graph.legend] == ["answers 1, 0 to 0, 1", "answers 0, 1 to 0, 1"]


@pytest.mark.parametrize("name", ["parity", "s3", "dyck-1"])
def test_the_automaton_is_a_task_that_assay_run_accepts(name):
    task = named_task(name)
    own = own_task(learn_automaton(task.answer, task, max_states=8, extra_states=0))
    assert own is not None
    words = shlex.split(run_command(own, "srwm"))
    options = dict(word.removeprefix("task.").split("=", 1) for word in words if word.startswith("task."))
    spec = run_spec("dfa", "srwm", task_options={key: json.loads(value) for key, value in options.items()})
    assert spec.task == own
    if name == "parity":
        inputs = torch.tensor([tokens_of("1 0 1 1", "01")])
        assert torch.equal(own.solve(inputs), task.solve(inputs))


# -- the command ---------------------------------------------------------------------------------------------------

TRAIN = "run parity --model {} --steps 20 --store store --device cpu --jobs 1 --set training.lengths=[2,8]"
TRAIN += " --set model.width=8 --set testing.rows=8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("extract")
    assert assay(*TRAIN.format("srwm").split(), "--weights", "all", cwd=path).exit_code == 0
    assert assay(*TRAIN.format("elman").split(), "--weights", "none", cwd=path).exit_code == 0
    return path


def digest(folder: Path, model: str) -> str:
    return next(record.digest for record in Store.open(folder / "store").records() if record.model == model)


def test_extract_writes_a_page_with_pictures_tables_and_a_task(folder: Path):
    run = digest(folder, "srwm")[:10]
    result = assay("extract", run, "--store", "store", "--out", "page", "--length", "5", cwd=folder)
    assert result.exit_code == 0, result.output
    files = {path.name for path in (folder / "page").iterdir()}
    assert {"index.html", "index.md", "picture.svg", "picture.png", "table.json", "table.csv", "programs.csv"} <= files
    data = json.loads((folder / "page" / "table.json").read_text())
    assert data["self_modifying"]["every_string_to"] == 5
    assert data["self_modifying"]["strings"] == 62
    page = (folder / "page" / "index.md").read_text()
    assert data["automaton"]["statement"] in page
    assert re.search(r"^\| q0 \|", page, re.MULTILINE)
    again = assay("extract", run, "--store", "store", "--length", "5", "--json", cwd=folder)
    assert json.loads(again.output) == {**data, "files": []}
    assert not (folder / "reports").exists()


def test_mistakes_get_one_line(folder: Path, monkeypatch, capsys):
    def said(words: str) -> str:
        return mistake(f"extract {words} --store store", folder, monkeypatch, capsys)

    assert "there are no weights of elman on parity, seed 0" in said(digest(folder, "elman"))
    assert "store has no run with a digest that begins with xyz; it has " in said("xyz")
    with pytest.raises(BadInput, match="store has 2 runs with a digest that begins with ;"):
        Store.open(folder / "store").run("")
