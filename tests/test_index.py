"""The index of a store: always what the segments say, however far behind it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import BadInput
from assay.record import Record, Verdict
from assay.spec import run_spec
from assay.store import Store

SPEC = run_spec("parity", "lstm").plain()


def record(name: str, verdict: Verdict = "solved") -> Record:
    stopped = "error" if verdict == "failed" else "solved"
    return Record(digest=name, spec=SPEC, verdict=verdict, stopped=stopped, seconds={"train": 1.25})  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two writers, a failure that was mended, and a result that was examined again."""
    store = Store.create(tmp_path / "s")
    store.add(record("a", "failed"), record("b"))
    Store.open(store.path).add(record("a"), record("c", "failed"))
    store.add(store.select(["b"])[0])
    return store


def indexes(store: Store) -> list[Path]:
    return sorted((store.path / "segments").glob("*.index"))


def facts(store: Store) -> dict[str, tuple[object, ...]]:
    """What the index of a store says, after checking that its entries lead to the records."""
    opened = Store.open(store.path)
    index, records = opened.index(), {r.digest: r for r in opened.records()}
    assert list(index) == list(records)
    assert opened.select(index) == list(records.values())
    for name, entry in index.items():
        assert (entry.verdict, entry.task, entry.model) == (records[name].verdict, "parity", "lstm")
        assert entry.seconds == 1.25
        assert entry.finished == records[name].finished
    return {name: tuple(entry) for name, entry in index.items()}


def test_the_index_says_what_the_records_say(store: Store):
    complete = facts(store)
    assert len(indexes(store)) == 3
    for path in indexes(store):
        path.unlink()
        assert facts(store) == complete, "from the segment itself"


@pytest.mark.parametrize("content", [b"", b"what?\n", b'["a", 1]\n', b"[]\n", b"\xff\n"])
def test_a_damaged_index_is_not_used(store: Store, content: bytes):
    complete = facts(store)
    indexes(store)[0].write_bytes(content)
    assert facts(store) == complete


def test_an_index_that_is_behind_or_lost_a_line(store: Store):
    complete, path = facts(store), indexes(store)[0]
    whole = path.read_bytes()
    first, second = whole.splitlines(keepends=True)
    for content in (first, first + second[:9], second):
        path.write_bytes(content)
        assert facts(store) == complete


def test_news(store: Store):
    """Each entry is told once, also while the index is behind, and whoever wrote it."""
    reader = Store.open(store.path)
    assert len(reader.news()) == 5
    assert reader.news() == []
    writer = Store.open(store.path)
    writer.add(record("d"))
    newest = indexes(store)[-1]
    line = newest.read_bytes()
    newest.write_bytes(b"")
    assert [entry.digest for entry in reader.news()] == ["d"]
    newest.write_bytes(line)
    assert reader.news() == []
    writer.add(record("e"))
    assert [entry.digest for entry in reader.news()] == ["e"]


def test_the_end_of_a_line_that_was_being_written(store: Store):
    """It is not read before it is whole."""
    writer, reader = Store.create(store.path), Store.open(store.path)
    writer.add(record("d"))
    segment = max((store.path / "segments").glob("*.jsonl"))
    assert reader.index()["d"]
    whole = segment.read_bytes()
    torn = whole.replace(b'"digest":"d"', b'"digest":"e"')
    segment.write_bytes(whole + torn[:-1])
    assert reader.news() == []
    assert "e" not in facts(store)
    segment.write_bytes(whole + torn)
    assert [entry.digest for entry in reader.news()] == ["e"]


def test_a_segment_that_is_shorter_than_its_index(store: Store):
    segment = min((store.path / "segments").glob("*.jsonl"))
    segment.write_bytes(segment.read_bytes()[:-5])
    for read in (Store.index, Store.records):
        with pytest.raises(BadInput, match=r"line \d is not a record \(the file was cut short\)"):
            read(Store.open(store.path))


def test_an_index_of_other_content(store: Store):
    opened = Store.open(store.path)
    entry = opened.index()["c"]
    segment = store.path / "segments" / entry.segment
    segment.write_bytes(segment.read_bytes().replace(b'"digest":"c"', b'"digest":"x"'))
    with pytest.raises(BadInput, match=r"is not what its index says; delete .*\.index beside it"):
        opened.load(entry)


def test_records_that_are_added_while_a_store_is_read(store: Store):
    store = Store.create(store.path.with_name("other"))
    store.add(record("a"), record("b"))
    history = Store.open(store.path).history()
    next(history)
    store.add(record("c"))
    assert [record.digest for record in history] == ["b"]


def test_a_size_that_a_network_file_system_remembers(store: Store, monkeypatch: pytest.MonkeyPatch):
    """The size of a file that is not open may be old; that of an open one is not."""
    sizes, stat = {path: path.stat() for path in (store.path / "segments").glob("*.jsonl")}, Path.stat
    store.add(record("new"))
    monkeypatch.setattr(Path, "stat", lambda path, **options: sizes.get(path) or stat(path, **options))
    assert "new" in Store.open(store.path).index()
