"""Descriptions are strict, frozen and canonical, and registries find what they name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

import assay.tasks
from assay.description import Description, canonical, digest
from assay.errors import BadInput, suggestion
from assay.registry import Entry, Registry, import_path
from assay.tasks import TASKS, example_task, read_task, task_class


class Sketch(Description):
    """A description of everything that the tests need."""

    kind: ClassVar[str] = "sketch"
    width: int = 3
    height: float = 1.0
    title: str = ""
    points: tuple[tuple[int, ...], ...] = ()


class InNoRegistry(Description):
    width: int = 3


class Second(Sketch):
    kind: ClassVar[str] = "second"
    version: ClassVar[int] = 2


class Grown(Sketch):
    """The sketch, some versions later."""

    added: ClassVar[tuple[str, ...]] = ("ink",)
    kind: ClassVar[str] = "sketch"
    ink: str = "black"


class Framed(Description):
    kind: ClassVar[str] = "framed"
    picture: Sketch


class Album(Description):
    kind: ClassVar[str] = "album"
    pages: tuple[tuple[Framed, ...], ...]
    notes: dict[str, Any]


# -- strict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", "3"),
        ("width", 3.0),
        ("width", True),
        ("width", None),
        ("height", "1"),
        ("title", 1),
        ("points", 1),
        ("points", [1]),
        ("points", [["1"]]),
    ],
)
def test_another_type_is_refused(field: str, value: Any):
    with pytest.raises(BadInput) as caught:
        Sketch(**{field: value})
    assert str(caught.value).startswith(f"sketch: {field}")
    assert "\n" not in str(caught.value)


def test_a_whole_number_is_a_real_one():
    assert Sketch(height=2) == Sketch(height=2.0)


def test_an_unknown_field_names_the_nearest():
    with pytest.raises(BadInput, match=r"^sketch has no field 'heigth'; did you mean 'height'\?$"):
        Sketch(heigth=2.0)  # type: ignore[call-arg]
    with pytest.raises(BadInput, match=r"^sketch has no field 'zzz'; choose from: height, points, title, width$"):
        Sketch(zzz=1)  # type: ignore[call-arg]


def test_a_missing_field_is_named():
    with pytest.raises(BadInput, match=r"^framed needs the field 'picture'$"):
        Framed()  # type: ignore[call-arg]


def test_frozen():
    sketch = Sketch()
    with pytest.raises(ValidationError, match="frozen"):
        sketch.width = 4  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        del sketch.width
    assert sketch == Sketch()
    assert hash(sketch) == hash(Sketch())


def test_lists_become_tuples():
    sketch = Sketch(points=[[1, 2], [3]])  # type: ignore[arg-type]
    assert sketch.points == ((1, 2), (3,))
    assert sketch == Sketch(points=((1, 2), (3,)))
    assert hash(sketch) == hash(Sketch(points=((1, 2), (3,))))


def test_lists_become_tuples_at_every_depth():
    whole = Album(pages=((Framed(picture=Sketch(points=((1, 2),))),), ()), notes={"a": [1, {"b": [[2]]}]})
    assert whole.notes == {"a": (1, {"b": ((2,),)})}
    data = json.loads(json.dumps(whole.plain()))
    as_given = json.dumps(data)
    assert Album(**data) == whole
    assert json.dumps(data) == as_given, "what is read is not touched"


# -- plain data ------------------------------------------------------------------------------------------------


def test_plain_data_has_kind_and_version():
    assert Second(points=((1,),)).plain() == {
        "kind": "second",
        "version": 2,
        "width": 3,
        "height": 1.0,
        "title": "",
        "points": [[1]],
    }


def test_plain_data_of_a_description_inside_another():
    framed = Framed(picture=Sketch(width=5))
    assert framed.plain()["picture"]["kind"] == "sketch"
    assert framed.plain()["picture"]["width"] == 5


def test_a_class_in_no_registry_is_named_by_its_import_path():
    assert InNoRegistry.kind == f"{__name__}:InNoRegistry"
    assert TASKS.load(InNoRegistry(width=8).plain()["kind"]) is InNoRegistry
    with pytest.raises(BadInput, match="is not a task"):
        read_task(InNoRegistry(width=8).plain())


@pytest.mark.parametrize("value", [math.inf, -math.inf, 0.1, 1e300])
def test_numbers_survive_json(value: float):
    sketch = Sketch(height=value)
    assert Sketch(**json.loads(json.dumps(sketch.plain()))) == sketch


def test_canonical_text():
    assert canonical({"b": 1.0, "a": (2, None, "x", 0.5, True)}) == '{"a":[2,null,"x",0.5,true],"b":1}'
    assert canonical({2: {"z": -0.0, "y": 3e2}}) == '{"2":{"y":300,"z":0}}'


def test_one_digest_for_one_meaning():
    assert digest({"a": 1, "b": [2.0]}) == digest({"b": (2,), "a": 1.0})
    assert digest(Sketch(height=2).plain()) == digest(Sketch(height=2.0).plain())


def test_other_digests_for_other_meanings():
    values = [1, 1.5, "1", True, None, [1], [], {}, {"a": 1}, {"a": 2}, {"b": 1}, [1, 2], [2, 1], [[1], 2]]
    assert len({digest(value) for value in values}) == len(values)
    plains = [Sketch(), Sketch(width=4), Second(), Framed(picture=Sketch())]
    assert len({digest(sketch.plain()) for sketch in plains}) == len(plains)


def test_digests_never_change():
    assert digest({"kind": "parity", "version": 1}) == "30149ab1babb83c5"


# -- registered tasks ------------------------------------------------------------------------------------------

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("regex", {"pattern": "(ab)*", "alphabet": "c"}),
    ("bounded-dyck", {"k": 3, "depth": 4, "negatives": "count-balanced"}),
    ("nearest-neighbour", {"margin": 0.05}),
    ("multi-query-recall", {"power": 1, "pairs_bound": 64}),
    ("cyclic", {"n": 60}),
]


@pytest.mark.parametrize(("name", "options"), [*((name, task_class(name).example) for name in TASKS.entries), *OPTIONS])
def test_a_task_survives_its_plain_data(name: str, options: dict[str, Any]):
    task = read_task({"kind": name, **options})
    assert task.kind == name
    plain = json.loads(json.dumps(task.plain()))
    again = read_task(plain)
    assert again == type(task)(**plain)
    assert type(again) is type(task) is TASKS.load(name)
    assert again == task
    assert hash(again) == hash(task)
    assert again.plain() == task.plain()
    # What a task keeps for itself once it was used is no part of what it is.
    assert task.shape.answers > 0
    assert again == task
    assert again.plain() == task.plain()


def test_every_task_has_another_digest():
    assert len({digest(example_task(name).plain()) for name in TASKS.entries}) == len(TASKS.entries)


def test_task_by_name_stays_a_function():
    """Loading a task imports its module into the package, which must not take the function's place."""
    TASKS.load("parity")
    assert isinstance(assay.tasks.named_task, FunctionType)
    assert assay.tasks.named_task("cyclic", n=4).n == 4


def test_what_is_already_a_task_is_left_alone():
    task = read_task({"kind": "parity"})
    assert read_task(task) is task


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(BadInput, match=r"^unknown task 'partiy'; did you mean 'parity'\?$"):
        read_task({"kind": "partiy"})
    with pytest.raises(BadInput, match=r"^unknown task 'None'"):
        read_task({})


# -- registries ------------------------------------------------------------------------------------------------


def test_suggestions():
    assert suggestion("DYCK1", ["parity", "dyck-1"]) == "; did you mean 'dyck-1'?"
    assert suggestion("zzz", ["b", "a"]) == "; choose from: a, b"


def test_a_registry_imports_beside_itself():
    registry = Registry("number", "math", {"circle": Entry("no_such_module:pi", "the ratio")})
    with pytest.raises(ImportError):
        registry.load("circle")
    assert registry.load("math:pi") == math.pi


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no_such_module:Thing", "cannot import 'no_such_module' for 'no_such_module:Thing'"),
        ("math:Thing", "'math' has no 'Thing', wanted by 'math:Thing'"),
    ],
)
def test_a_bad_import_path_is_one_line(path: str, said: str):
    with pytest.raises(BadInput) as caught:
        import_path(path)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "empty.py").write_text("")
    for path, message in {
        "exits:Net": "cannot import 'exits' for 'exits:Net': SystemExit: 0",
        "empty:Net": f"'empty' has no 'Net', wanted by 'empty:Net'; it is {tmp_path / 'empty.py'}",
        "./empty.py:Net": "'./empty.py:Net' is not valid: write the module, not its file, as empty:Net",
        "nets/mine.py:": "'nets/mine.py:' is not valid: write the module, not its file, as nets.mine:Name",
    }.items():
        with pytest.raises(BadInput) as caught:
            import_path(path)
        assert str(caught.value) == message
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "empty.py"):
        with pytest.raises(BadInput, match=f"^unknown task '{name}'; a class of empty.py is empty:Class$"):
            TASKS.load(name)


def test_a_field_that_came_later_leaves_old_names_as_they_were():
    assert Grown(width=4).plain() == Sketch(width=4).plain()
    assert digest(Grown(width=4).plain()) == digest(Sketch(width=4).plain())
    assert Grown(**Sketch(width=4).plain()) == Grown(width=4)
    assert Grown(ink="red").plain() == Sketch().plain() | {"ink": "red"}
    assert Grown(**Grown(ink="red").plain()) == Grown(ink="red")
