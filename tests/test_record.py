"""The store: what was finished stays, whatever happens."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.record import LengthScore, Point, Record, Score, Verdict
from assay.spec import run_spec
from assay.store import Store

SPEC = run_spec("parity", "lstm").plain()


def record(name: str, verdict: Verdict = "solved", **facts: Any) -> Record:
    stopped: Any = "error" if verdict == "failed" else "solved"
    return Record(digest=name, spec=SPEC, verdict=verdict, stopped=stopped, **facts)


def test_a_record_comes_back_as_it_was(tmp_path: Path):
    lengths = (LengthScore(length=5, rows=2, sequences=0.5, answers=0.9),)
    score = Score(bin="Bin0", rows=2, shared=0, sequences=0.5, answers=0.9, favourite=0.6, lengths=lengths)
    kept = record("a", scores=(score,), seconds={"train": 1.5}, first_failing_length=5)
    with_others = record("b", scores=(score,), other_scores=(score, score))
    store = Store.create(tmp_path / "s")
    store.add(kept, with_others)
    assert Store.open(tmp_path / "s").records() == [kept, with_others]
    store.pack(tmp_path / "p.jsonl.xz")
    assert Store.open(tmp_path / "p.jsonl.xz").records() == [kept, with_others]
    assert "other_scores" not in kept.plain()


def test_nan_and_inf_survive(tmp_path: Path):
    curve = tuple(Point(step=i, loss=loss, sequences={}, answers={}) for i, loss in enumerate((math.nan, math.inf)))
    store = Store.create(tmp_path / "s")
    store.add(record("a", "diverged", curve=curve))
    store.pack(tmp_path / "p.jsonl.xz")
    for kept in (store.records()[0], Store.open(tmp_path / "p.jsonl.xz").records()[0]):
        assert math.isnan(kept.curve[0].loss)
        assert kept.curve[1].loss == math.inf


def test_failures_stand_beside_successes_until_the_run_succeeds(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    store.add(record("a"), record("b", "failed", error="out of memory"))
    assert [(r.digest, r.verdict) for r in store.records()] == [("a", "solved"), ("b", "failed")]
    store.add(record("b", "censored"))
    assert [(r.digest, r.verdict) for r in store.records()] == [("a", "solved"), ("b", "censored")]
    store.add(record("a", "failed", error="later and worse"))
    assert store.records()[0].verdict == "solved", "a failure never hides what was finished"
    assert len(list(store.history())) == 4


def test_the_later_of_two_records_is_valid_whatever_the_clocks_say(tmp_path: Path):
    """The machine that wrote the first one has a clock that is years ahead."""
    Store.create(tmp_path / "s").add(record("a", steps=1))
    (segment,) = (tmp_path / "s" / "segments").glob("*.jsonl")
    for path in (segment, segment.with_suffix(".index")):
        path.rename(path.with_name("2999" + path.name[4:]))
    for steps in (2, 3):
        Store.create(tmp_path / "s").add(record("a", steps=steps))
        assert [r.steps for r in Store.open(tmp_path / "s").records()] == [steps]
        assert [r.steps for r in Store.open(tmp_path / "s").select("a")] == [steps]


def test_a_pack_has_the_same_bytes_for_the_same_records(tmp_path: Path):
    packs = []
    for i, order in enumerate(("abc", "cab")):
        store = Store.create(tmp_path / f"s{i}")
        for name in order:
            store.add(record(name))
        assert store.pack(tmp_path / f"p{i}.jsonl.xz") == 3
        packs.append((tmp_path / f"p{i}.jsonl.xz").read_bytes())
    assert packs[0] == packs[1]
    assert {r.digest for r in Store.open(tmp_path / "p0.jsonl.xz").records()} == set("abc")


def _write_many(path: str, writer: int, count: int) -> None:
    store = Store.create(path)
    for i in range(count):
        store.add(record(f"{writer}-{i}"))


def test_two_writers_lose_nothing(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(str(tmp_path / "s"), w, 40)) for w in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert {r.digest for r in Store.open(tmp_path / "s").records()} == {f"{w}-{i}" for w in range(2) for i in range(40)}


WRITE_FOREVER = """
import sys
from assay.record import Record
from assay.store import Store
store, i = Store.create(sys.argv[1]), 0
while True:
    store.add(Record(digest=str(i), spec={}, verdict="solved", stopped="solved"))
    print(i, flush=True)
    i += 1
"""


@pytest.mark.parametrize("after", [0.0, 0.003, 0.01, 0.02])
def test_a_kill_at_any_moment_loses_nothing_that_was_finished(tmp_path: Path, after: float):
    child = subprocess.Popen(
        [sys.executable, "-c", WRITE_FOREVER, str(tmp_path / "s")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    said = [0, *map(int, child.stdout.read().split())]
    child.wait()
    kept = [int(r.digest) for r in Store.open(tmp_path / "s").records()]
    assert kept[: len(said)] == said
    assert len(kept) <= len(said) + 1, "one record may have been written and not yet told"
    Store.create(tmp_path / "s").add(record("after"))  # and the store goes on


def test_a_torn_file_left_by_a_kill_is_not_read(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    store.add(record("a"))
    (tmp_path / "s" / "segments" / ".half.jsonl.1-x.tmp").write_text('{"digest": "tor')
    assert [r.digest for r in store.records()] == ["a"]


class TestBadStores:
    """Each is one clear line, and nothing is lost."""

    def test_a_folder_of_something_else(self, tmp_path: Path):
        (tmp_path / "precious.txt").write_text("mine")
        for opened in (Store.create, Store.open):
            with pytest.raises(BadInput, match="is not a store"):
                opened(tmp_path)
        assert os.listdir(tmp_path) == ["precious.txt"]

    def test_nothing_there(self, tmp_path: Path):
        with pytest.raises(BadInput, match="there is no store"):
            Store.open(tmp_path / "nowhere")

    def test_a_file(self, tmp_path: Path):
        (tmp_path / "f").write_text("hello")
        with pytest.raises(BadInput, match="is a file"):
            Store.create(tmp_path / "f")
        with pytest.raises(BadInput, match="not a packed store"):
            Store.open(tmp_path / "f").records()

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path):
        (tmp_path / "f").write_text("hello")
        with pytest.raises(BadInput, match="cannot write"):
            Store.create(tmp_path / "f" / "store")

    def test_a_read_only_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        Store.create(tmp_path / "s")
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write to any folder
        with pytest.raises(BadInput, match="read-only"):
            Store.create(tmp_path / "s")

    def test_files_that_cannot_be_read(self, tmp_path: Path):
        store = Store.create(tmp_path / "s")
        (tmp_path / "s" / "segments" / "folder.jsonl").mkdir(parents=True)
        with pytest.raises(BadInput, match="cannot read"):
            store.records()
        with pytest.raises(BadInput, match="cannot write"):
            Store.create(tmp_path / "t").pack(tmp_path / "s" / "segments")
        assert not list((tmp_path / "s").glob(".*.tmp")), "nothing is left behind"

    def test_a_corrupt_record(self, tmp_path: Path):
        store = Store.create(tmp_path / "s")
        store.add(record("a"))
        segment = next((tmp_path / "s" / "segments").glob("*.jsonl"))
        whole = segment.read_bytes()
        for damage in (whole[:50], b"[]\n", b"\xff\xfe\n", whole.replace(b'"verdict":"solved"', b'"verdict":"great"')):
            segment.write_bytes(damage)
            with pytest.raises(BadInput, match=r"line 1 is not a record") as caught:
                store.records()
            assert "\n" not in str(caught.value)
            assert segment.read_bytes() == damage
        segment.write_bytes(whole)
        assert len(store.records()) == 1

    def test_a_newer_format(self, tmp_path: Path):
        Store.create(tmp_path / "s")
        (tmp_path / "s" / Store.MARK).write_text(json.dumps({"assay": "store", "format": 9}))
        with pytest.raises(BadInput, match="newer assay"):
            Store.open(tmp_path / "s")
        (tmp_path / "s" / Store.MARK).write_text("what?")
        with pytest.raises(BadInput, match="damaged"):
            Store.open(tmp_path / "s")
