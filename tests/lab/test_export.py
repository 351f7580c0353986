"""A task's data as files, and a task from two text files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from assay.errors import BadInput
from assay.lab.data import held_out
from assay.lab.export import write_data
from assay.lab.splits import VALIDATE, part_of
from assay.rng import Rng
from assay.spec import RunSpec, run_spec
from assay.tasks import pairs
from assay.tasks.pairs import Pairs
from assay.tasks.task import IGNORE


def small(task: str) -> RunSpec:
    return run_spec(
        task, "lstm", training={"lengths": [2, 12]}, testing={"bins": [{"name": "B", "low": 9, "high": 12}]}
    )


def test_the_files_hold_the_test_set_of_every_run_and_nothing_of_it_trains(tmp_path: Path):
    spec = small("parity")
    write_data(spec, ["train", "test"], None, tmp_path / "data")
    train, test = (
        [json.loads(line) for line in (tmp_path / "data" / f"{split}.jsonl").read_text().splitlines()]
        for split in ("train", "test")
    )
    rows = spec.testing.rows  # another number gives other inputs
    held = held_out(spec.task, spec.testing.bins[0], spec.training.lengths, rows, "test", torch.device("cpu"))
    words = [spec.task.explain("".join(row["input"])) for row in test]
    assert words == ["".join(row["answers"]) for row in test]
    tokens = [[int(symbol) + 1 for symbol in row["input"]] for row in test]
    assert tokens == [[t for t in row if t] for row in held.batch.inputs.tolist()]
    long = [row["input"] for row in train if row["length"] > 8]
    assert long
    assert not {"".join(row) for row in long} & {"".join(row["input"]) for row in test}
    assert "path: test.jsonl" in (tmp_path / "data" / "README.md").read_text()


def test_a_task_without_questions_at_some_positions_and_real_inputs(tmp_path: Path):
    write_data(small("equality-random"), ["test"], 4, tmp_path)
    (*_, row) = (tmp_path / "test.jsonl").read_text().splitlines()
    assert [answer is None for answer in json.loads(row)["answers"]] == [True] * 10 + [False]
    nearest = run_spec("nearest-neighbour", "lstm")
    with pytest.raises(BadInput, match="real-valued inputs, which cannot be written as words"):
        write_data(nearest, ["test"], 4, tmp_path, as_text=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot write"):
        write_data(small("parity"), ["test"], 4, tmp_path / "file")


def test_files_of_others_are_never_overwritten(tmp_path: Path):
    """A second command for the same data adds its split; anything else that is there stays as it is."""
    spec, folder = small("parity"), tmp_path / "new" / "data"
    write_data(spec, ["test"], 4, folder)
    write_data(spec, ["train"], 4, folder)
    readme = (folder / "README.md").read_text()
    assert [line.strip() for line in readme.splitlines() if "path:" in line] == [
        "path: train.jsonl",
        "path: test.jsonl",
    ]
    with pytest.raises(
        BadInput, match=r"already has files of something else \(README.md, test.jsonl\); name a new folder"
    ):
        write_data(small("flip-flop"), ["test"], 4, folder)
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("README.md", "train.src"):
        (mine / name).write_text("mine")
        with pytest.raises(BadInput, match=rf"already has files of something else \({name}\)"):
            write_data(spec, ["train"], 4, mine, as_text=True)
        assert [path.read_text() for path in mine.iterdir()] == ["mine"]
        (mine / name).unlink()


def test_a_task_from_files_answers_their_lines_and_nothing_else(tmp_path: Path):
    write_data(small("parity"), ["train"], 300, tmp_path, as_text=True)
    task, parity = Pairs(path=str(tmp_path / "train")), small("parity").task
    assert (task.symbols, task.answers) == (("0", "1"), ("0", "1"))
    lengths = torch.tensor(task.lengths(*task.train_lengths)).repeat(30)
    inputs = task.inputs(lengths, Rng.seeded(0).rows(len(lengths)), 15)
    targets = task.solve(inputs)
    assert torch.equal(targets, parity.solve(inputs))
    assert (part_of(inputs[lengths > 8]) > VALIDATE).all()
    assert (targets[:, 0] != IGNORE).all()
    assert (task.solve(inputs[:, :1].repeat(1, 14)) == IGNORE).all(), "no line has fourteen words"
    assert (task.solve(inputs[:, :1].repeat(1, 40)) == IGNORE).all()
    assert not task.fits(13)
    assert 0 < task.log2_inputs(12) <= 12
    assert Pairs(**task.plain()) == task
    assert task.probes(task.train_lengths, 40) == [], "they would ask nothing, and count as passed"


def test_one_answer_for_a_line_is_asked_for_at_its_end(tmp_path: Path):
    (tmp_path / "a.src").write_text("the cat\na dog barks\n")
    (tmp_path / "a.tgt").write_text("yes\nno . yes\n")
    task = Pairs(path=str(tmp_path / "a"))
    assert task.symbols == ("a", "barks", "cat", "dog", "the")
    assert [task.explain(text) for text in ("the cat", "a dog barks", "a cat")] == [". yes", "no . yes", ". ."]


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        ("a b\n", "1\n0\n", "a.src has 1 lines and .*a.tgt has 2"),
        ("a b\nb a b\n", "1\n1 0\n", "line 2 of .*a.tgt must have 3 answers, or one, not 2"),
        ("a\n\n", "1\n1\n", "line 2 of .*a.src must have at least one word"),
        ("a\nb\na\n", "1\n1\n0\n", "line 3 of .*a.src occurs in an earlier line with another answer"),
        ("", "", "a.src has no lines"),
        ("a b\n", ". .\n", "a.tgt has no answers, only full stops"),
        ("a " * 100_001, "1", "line 1 of .*a.src has 100,001 words; a line may have 100,000"),
        (
            "".join(f"{i}\n" for i in range(700)) + "a " * 100_000,
            "1\n" * 701,
            "701 different lines of up to 100,000 words, 70,100,000 places in all; it may have 67,108,864",
        ),
        (b"a \xff\n", "1\n", r"a\.src is not text in UTF-8: see byte 2"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_files_that_are_wrong(src: str | bytes, tgt: str, message: str, tmp_path: Path):
    (tmp_path / "a.src").write_bytes(src if isinstance(src, bytes) else src.encode())
    (tmp_path / "a.tgt").write_text(tgt)
    with pytest.raises(BadInput, match=message):
        Pairs(path=str(tmp_path / "a")).lines  # noqa: B018


def test_what_is_no_file_or_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.src").mkdir()
    with pytest.raises(BadInput, match=r"cannot read .*a\.src: not a file"):
        Pairs(path=str(tmp_path / "a"))
    monkeypatch.setattr(pairs, "MOST_BYTES", 3)
    (tmp_path / "b.src").write_text("1 2\n")
    with pytest.raises(BadInput, match=r"b\.src has 4 bytes; a file may have 3"):
        Pairs(path=str(tmp_path / "b"))


def test_a_line_ends_where_a_line_ends(tmp_path: Path):
    """Not at other characters that Python takes for the end of a line; and many words take no longer than few."""
    (tmp_path / "a.src").write_text("a\x0bb\r\nc\n")
    (tmp_path / "a.tgt").write_text("1 0\n1")
    assert Pairs(path=str(tmp_path / "a")).explain("ab") == "10"
    (tmp_path / "b.src").write_text("".join(f"w{i}\n" for i in range(60_000)))
    (tmp_path / "b.tgt").write_text("1\n" * 60_000)
    assert len(Pairs(path=str(tmp_path / "b")).symbols) == 60_000


def test_a_run_belongs_to_the_content_of_its_files(tmp_path: Path):
    for suffix in ("src", "tgt"):
        (tmp_path / f"a.{suffix}").write_text("1\n")
    task = Pairs(path=str(tmp_path / "a"))
    (tmp_path / "a.src").write_text("0\n")
    assert Pairs(path=str(tmp_path / "a")) != task
    with pytest.raises(BadInput, match="are not those of this run any more"):
        Pairs(**task.plain())
    with pytest.raises(BadInput, match=r"cannot read .*b\.src: No such file"):
        Pairs(path=str(tmp_path / "b"))
