"""Records as lines: what is cut apart comes back whole, and damage is one clear line."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadInput
from assay.lines import Lazy, read_lines, write_lines
from assay.record import LengthScore, Point, Record, Score
from assay.spec import run_spec
from assay.store import Store

SPEC = run_spec("parity", "lstm", seed=7).plain()
FILE = Path("records.jsonl")


def record(name: str = "Bin0", spec: dict[str, Any] = SPEC, lengths: int = 2, points: int = 3) -> Record:
    """A record with two scores in bins of this name."""
    rows = tuple(LengthScore(length=n, rows=4, sequences=0.5, answers=0.75) for n in range(lengths))
    numbers: dict[str, Any] = {"rows": 4, "shared": 0, "sequences": 0.5, "answers": 0.75, "favourite": 0.5}
    scores = tuple(Score(bin=name, probe=probe, lengths=rows, **numbers) for probe in ("", name))
    curve = tuple(Point(step=n, loss=1.0, sequences={name: 0.5}, answers={name: 0.25}) for n in range(points))
    return Record(
        digest="d", spec=spec, verdict="censored", stopped="steps", scores=scores, curve=curve, population={name: [1]}
    )


RECORDS = {
    "as runs are": record(),
    "without lists": record(lengths=0, points=0),
    "a name with a bracket": record("a]b"),
    "a name with quotes and brackets": record('}],"curve":[{"lengths":['),
    "a name that is no ASCII": record("Länge"),
    "a spec with our keys": record(spec=SPEC | {"curve": [{"kind": "point"}], "scores": [{"lengths": [1, [2]]}]}),
    "a spec with two seeds": record(spec={"model": {"kind": "x", "seed": 3}, "seed": 4}),
    "a spec that does not end in its seed": record(spec={"seed": 4, "model": {"options": [[1], {"a": [2]}]}}),
    "an empty spec": record(spec={}),
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("lazily", [False, True])
def test_a_line_comes_back_as_it_was(name: str, lazily: bool):
    lines = write_lines([RECORDS[name]] * 2)
    for again in read_lines(FILE, lines.splitlines(), lazily):
        assert again == RECORDS[name] == Record(**json.loads(lines.splitlines()[0]))
        assert again.plain() == RECORDS[name].plain()
        assert again.spec == RECORDS[name].spec
    assert write_lines(read_lines(FILE, lines.splitlines(), lazily)) == lines, "also if nothing was looked at"


def test_a_line_in_another_order_is_read_as_well():
    """Here the first keys that look like ours are within the population."""
    plain = record().plain()
    inside = {"population": {"spec": {"seed": 1}, "scores": [{"lengths": [2]}], "curve": [3]}}
    for data in (inside | {k: v for k, v in plain.items() if k != "population"}, plain | inside, inside | plain):
        (again,) = read_lines(FILE, [json.dumps(data, separators=(",", ":")).encode()], lazily=True)
        assert again == Record(**data)


def test_long_lists_are_parsed_when_they_are_needed():
    (lazy,) = read_lines(FILE, [write_lines([record()])], lazily=True)
    assert isinstance(lazy.curve, Lazy)
    assert "items" not in vars(lazy.curve)
    assert lazy.curve[1].step == 1
    assert "items" in vars(lazy.curve)
    assert lazy.curve == record().curve
    assert lazy.curve[1:] == record().curve[1:]
    assert hash(lazy.scores[0]) == hash(record().scores[0])
    (eager,) = read_lines(FILE, [write_lines([record()])])
    assert {type(eager.curve), type(eager.scores[0].lengths)} == {tuple}


def test_the_last_item_of_a_long_list_is_parsed_alone():
    for points, name in ((0, "Bin0"), (1, "Bin0"), (3, "Bin0"), (3, "kind"), (3, '{"kind":"point"')):
        whole = record(name, points=points)
        (lazy,) = read_lines(FILE, [write_lines([whole])], lazily=True)
        assert lazy.tested == whole.tested
        assert ("items" in vars(lazy.curve)) == (not points)
        assert [*reversed(lazy.curve)] == [*reversed(whole.curve)]
    (lazy,) = read_lines(FILE, [write_lines([record()]).replace(b'"step":2', b'"stop":2')], lazily=True)
    with pytest.raises(BadInput, match="line 1 is not a record"):
        lazy.tested  # noqa: B018


DAMAGE = {
    b'"loss":1.0': b'"loss":"1"',
    b'"step":1': b'"stop":1',
    b'"kind":"point"': b'"kind":"pint"',
    b'"length":1': b'"length":1.5',
    b'"kind":"length-score","version":1': b'"kind":"length-score","version":2',
    b'"answers":0.75}': b'"answers":0.75',
}


@pytest.mark.parametrize("part", DAMAGE)
def test_damage_in_a_long_list_is_one_clear_line(part: bytes, tmp_path: Path):
    good = write_lines([record()])
    bad = good.replace(part, DAMAGE[part], 1)
    assert bad != good
    said = r"^.*: line 2 is not a record \(.*\); restore the file or move it out of the store$"
    with pytest.raises(BadInput, match=said):
        list(read_lines(FILE, [good, bad]))
    header = json.dumps({"assay": "pack", "format": 1}).encode() + b"\n"
    (tmp_path / "p.jsonl.xz").write_bytes(lzma.compress(header + good.replace(b'"d"', b'"c"') + bad))
    for use in (lambda r: r.plain(), lambda r: [len(r.curve), *(len(score.lengths) for score in r.scores)]):
        with pytest.raises(BadInput, match=said):
            [use(r) for r in Store.open(tmp_path / "p.jsonl.xz").records()]
    with pytest.raises(BadInput, match=said):
        Store.open(tmp_path / "p.jsonl.xz").pack(tmp_path / "q.jsonl.xz")
    assert not (tmp_path / "q.jsonl.xz").exists()


@pytest.mark.parametrize("lost", [1, 40, 2000])
def test_a_packed_file_that_is_cut_short_is_no_packed_store(lost: int, tmp_path: Path):
    store, packed = Store.create(tmp_path / "s"), tmp_path / "p.jsonl.xz"
    for seed in range(300):
        store.add(record(spec=SPEC | {"seed": seed}).model_copy(update={"digest": f"{seed * 7919 % 65536:04x}"}))
    store.pack(packed)
    whole = packed.read_bytes()
    for damaged in (whole[:-lost], whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :], whole + b"?"):
        packed.write_bytes(damaged)
        with pytest.raises(BadInput, match="is not a packed store"):
            Store.open(packed).records()
