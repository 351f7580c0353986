"""What `assay show` says about a task, a model, a claim, a study, or a part of a run."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.cli_options import settings
from assay.errors import BadInput
from assay.models.options import OPTIONS as MODEL_OPTIONS
from assay.models.registry import MODELS
from assay.registry import import_path
from assay.studies import STUDIES, study_named
from assay.tasks import TASKS
from assay.theory.registry import CLAIMS
from assay.theory.registry import OPTIONS as CLAIM_OPTIONS

if TYPE_CHECKING:
    from assay.description import Description
    from assay.tasks.algebra import Algebra
    from assay.tasks.bins import Bin
    from assay.tasks.task import Task

PARTS = ("training", "testing")
Lines = Sequence[str | tuple[str, str]]  # lines of text, or of a label and a text


class Option(NamedTuple):
    """An option's default value, and what it does in one line."""

    default: Any
    meaning: str


@dataclass
class Described:
    """A description in words, and further data for JSON."""

    name: str
    text: str
    remark: str = ""
    sections: dict[str, Lines] = field(default_factory=dict)
    options_title: str = ""
    options: dict[str, Option] = field(default_factory=dict)
    closing: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        options = {
            name: {
                "default": default if isinstance(default, (bool, int, float, str)) else str(default),
                "meaning": meaning,
            }
            for name, (default, meaning) in self.options.items()
        }
        return {"name": self.name, "text": self.text, "options": options, **self.data}


def describe(name: str, pairs: list[str]) -> Described:
    """What there is under a name; `pairs` are options of a task, as task.n=5."""
    from assay.tasks.task import Task

    if name in STUDIES or name in PARTS:
        item = None
    else:
        registry = next((r for r in (TASKS, CLAIMS, MODELS) if name in r.entries), None)
        item = registry.load(name) if registry else import_path(name)
    if isinstance(item, type) and issubclass(item, Task):
        options = settings(pairs)
        if others := [part for part, values in options.items() if values and part != "task"]:
            raise BadInput(f"--set {others[0]}: `assay show` takes options of a task, as task.n=5")
        return _task(name, item, options["task"])
    if pairs:
        raise BadInput(f"--set is for tasks, and '{name}' is not a task")
    if name in STUDIES:
        return _study(name)
    return _part(name) if name in PARTS else _object(name, item)


def _object(name: str, item: Any) -> Described:
    """A claim or a model, by its name or as module:Class."""
    from assay.tasks.task import Shape
    from assay.theory.claim import Claim

    text = inspect.cleandoc(getattr(item, "__doc__", None) or "")
    if isinstance(item, type) and issubclass(item, Claim):
        options = _parameters(item, CLAIM_OPTIONS if name in CLAIMS.entries else {})
        text = f"{text}\n\nSource: {item.source}"
        return Described(name, text, options_title="options, with --set NAME=VALUE", options=options)
    if not callable(item):
        raise BadInput(f"'{name}' is not a task, a claim or a model: it should be a class or a function")
    options = _parameters(item, MODEL_OPTIONS if name in MODELS.entries else {})
    if name in MODELS.entries:
        options["state"] = Option(None, MODEL_OPTIONS["state"])
        options["initial_scale"] = Option(1.0, MODEL_OPTIONS["initial_scale"])
    else:
        options = {name: option for name, option in options.items() if name not in Shape._fields}  # the task's
    return Described(name, text, options_title="options, with --set model.NAME=VALUE", options=options)


def _part(name: str) -> Described:
    from assay.spec import Testing, Training

    part: type[Description] = Training if name == "training" else Testing
    options = _fields(part)
    for option in ("lengths", "validation", "bins"):
        if option in options:
            options[option] = options[option]._replace(default="the task's own")
    text = inspect.cleandoc(part.__doc__ or "")
    return Described(name, text, options_title=f"options, with --set {name}.NAME=VALUE", options=options)


def _study(name: str) -> Described:
    from assay.analysis.summary import piece_sizes
    from assay.terminal import counted

    study = study_named(name)
    sizes = piece_sizes(study)
    sections: dict[str, Lines] = {}
    if study.pieces:
        lines = [f"{piece}: {counted(runs, 'run')}" for piece, runs in sizes.items()]
        sections = {"pieces, each with --piece NAME": lines}
    return Described(
        name,
        study.about,
        remark=f", {counted(len(study.runs), 'run')}",
        sections=sections,
        data={"runs": len(study.runs), "pieces": sizes},
    )


# -- tasks -------------------------------------------------------------------------------------------------------------


def _task(name: str, kind: type[Task], given: dict[str, Any]) -> Described:
    task = kind(**{**kind.example, **given})
    used = ", ".join(f"{option}={value}" for option, value in {**kind.example, **given}.items())
    lengths = _lengths(task)
    sections: dict[str, Lines] = {
        f"lengths and steps (with {used})" if used else "lengths and steps": list(lengths.items())
    }
    data: dict[str, Any] = {"task": task.plain(), "lengths": lengths}
    _add_algebra(task, sections, data)
    return Described(
        name,
        inspect.cleandoc(kind.__doc__ or ""),
        sections=sections,
        options_title="options, with --set task.NAME=VALUE",
        options=_fields(kind),
        closing="`assay show training` and `assay show testing` list the other options.",
        data=data,
    )


def _lengths(task: Task) -> dict[str, str]:
    """The lengths and steps that a run of this task has by default."""
    from assay.spec import run_spec

    spec = run_spec(task, "lstm")

    def range_of(bin_: Bin) -> str:
        lengths = f"{bin_.low} to {bin_.high}" if bin_.low < bin_.high else str(bin_.low)
        options = "".join(f" with {option} = {value}" for option, value in bin_.options)
        return f"{bin_.name} {lengths}{options}"

    return {
        "training lengths": "{} to {}".format(*spec.training.lengths),
        "validation bins": ", ".join(map(range_of, spec.training.validation)),
        "test bins": ", ".join(map(range_of, spec.testing.bins)),
        "maximum steps": f"{spec.training.steps:,}",
    }


def _add_algebra(task: Task, sections: dict[str, Lines], data: dict[str, Any]) -> None:
    """The algebra of a regular task, and what theory says about each class of models."""
    from assay.tasks.algebra import algebra_of
    from assay.tasks.predictions import predictions

    try:
        algebra = algebra_of(task)
    except BadInput as error:
        sections["algebra"] = [("not computed", str(error))]
        data["algebra"] = None
        return
    data["algebra"] = algebra and algebra.plain()
    if algebra:
        theory = predictions(algebra)
        data["theory"] = [prediction.plain() for prediction in theory]
        sections["algebra"] = _algebra_lines(algebra)
        sections["what theory says, for every string and whatever training finds"] = [
            (p.answer, f"{p.models}: {p.reason}" + (f" [{p.assumes}; {p.source}]" if p.source else "")) for p in theory
        ]


def _algebra_lines(algebra: Algebra) -> Lines:
    from assay.terminal import counted

    def group(order: int, commutative: bool, cyclic: bool, steps: int | None, dihedral: bool) -> str:
        solvable = "not solvable" if steps is None else f"solvable in {counted(steps, 'Abelian step')}"
        facts = [
            "commutative" if commutative else f"not commutative, {solvable}",
            *["dihedral"] * dihedral,
            *["cyclic"] * cyclic,
        ]
        return f"one of {order} elements ({', '.join(facts)})"

    def yes(fact: bool) -> str:
        return "yes" if fact else "no"

    counting = [f"{symbol} modulo {period}" for symbol, period in algebra.periods.items() if period > 1]
    return [
        ("minimal automaton", counted(algebra.states, "state")),
        ("syntactic monoid", counted(algebra.elements, "element") + (", a group" if algebra.group else "")),
        ("commutative", yes(algebra.commutative)),
        ("aperiodic", yes(algebra.aperiodic) + (" (star-free)" if algebra.aperiodic else "")),
        ("quasi-aperiodic", yes(algebra.quasi_aperiodic)),
        ("R-trivial, J-trivial", f"{yes(algebra.r_trivial)}, {yes(algebra.j_trivial)}"),
        ("groups in it", "; ".join(group(*facts) for facts in algebra.groups) or "none"),
        ("symbols that count", ", ".join(counting[:8]) + (" ..." if len(counting) > 8 else "") or "none"),
        ("circuits", algebra.complexity),
    ]


# -- options -----------------------------------------------------------------------------------------------------------


def _fields(description: type[Description]) -> dict[str, Option]:
    return {
        name: Option("required" if field.is_required() else field.default, field.description or "")
        for name, field in description.model_fields.items()
    }


def _parameters(function: Any, meanings: dict[str, str]) -> dict[str, Option]:
    return {
        p.name: Option("required" if p.default is p.empty else p.default, meanings.get(p.name, ""))
        for p in inspect.signature(function).parameters.values()
        if p.kind != p.VAR_KEYWORD
    }
