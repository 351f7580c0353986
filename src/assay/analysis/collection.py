"""Records without a study: those of a store or of a command, with comparable ones of published studies beside them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from assay.analysis.cells import Cell, bins, differing_fields
from assay.analysis.grid import Grid
from assay.analysis.titles import task_title
from assay.description import canonical
from assay.errors import BadInput, in_one_line, suggestion
from assay.record import Record
from assay.store import Store, noted_runs
from assay.studies import RESULTS, STUDIES, study_named


@dataclass(frozen=True)
class Collection:
    """Records by model and task, whatever they are about.

    `beside` has records of published studies by study and variant. Two tasks with the same name but other options,
    training lengths or test bins are two tasks here.
    """

    title: str
    command: str  # that makes the page
    records: list[Record]
    beside: Mapping[str, Mapping[str, Sequence[Record]]] = field(default_factory=dict)
    pending: int = 0  # runs that commands on the store have named and that have no record
    kind: Literal["collection"] = "collection"

    @property
    def source(self) -> Path:
        return next((record.origin for record in self.records if record.origin), Path(self.title))

    @cached_property
    def grid(self) -> Grid:
        """All finished runs by variant and task: our models, and then the variants of published studies."""
        names, digests = task_names(self.everything), dict[str, dict[str, list[str]]]()
        for variant, records in self._by_variant.items():
            for record in records:
                if record.finished:
                    digests.setdefault(variant, {}).setdefault(names[_setup(record.spec)], []).append(record.digest)
        return Grid(digests, self.everything)

    @cached_property
    def _by_variant(self) -> dict[str, list[Record]]:
        variants: dict[str, list[Record]] = {}
        for record in self.records:
            variants.setdefault(record.model, []).append(record)
        for study, published in self.beside.items():
            variants |= {f"{variant} ({study})": [*records] for variant, records in published.items()}
        return variants

    @cached_property
    def everything(self) -> list[Record]:
        """All records, also those of published studies."""
        return [record for records in self._by_variant.values() for record in records]

    @cached_property
    def failed(self) -> Counter[tuple[str, str]]:
        """The number of runs that failed with an error, by model and task: they are no evidence of either kind."""
        names = task_names(self.everything)
        return Counter((r.model, names[_setup(r.spec)]) for r in self.records if not r.finished)

    @property
    def variants(self) -> list[str]:
        ours = dict.fromkeys(record.model for record in self.records)
        return list(dict.fromkeys([*ours, *self.grid.digests]))

    @property
    def tasks(self) -> list[str]:
        finished = (task for tasks in self.grid.digests.values() for task in tasks)
        return list(dict.fromkeys([*finished, *(task for _, task in self.failed)]))

    @property
    def chosen(self) -> list[Cell]:
        """For each task and variant the setting that validation chose."""
        grid = self.grid
        return [grid.chosen[v, task] for task in self.tasks for v in self.variants if (v, task) in grid.chosen]

    @property
    def cells(self) -> list[Cell]:
        """Every setting of each task and variant."""
        grid = self.grid
        return [c for task in self.tasks for v in self.variants for c in grid.cells.get((v, task), [])]


def collect(path: Path, command: str, studies: Sequence[str] = ()) -> Collection:
    """All records of a store or packed file, with those of published studies beside them."""
    records = Store.open(path).records()
    if not records:
        raise BadInput(f"{path} has no records; `assay run`, `assay compare` and `assay study` make them")
    require_readable(path, records)
    title = path.resolve().name.removesuffix(".jsonl.xz")
    specs = [record.spec for record in records]
    beside = {name: comparable(name, specs) for name in studies}
    return Collection(title, command, records, beside, _pending(path, records))


def _pending(path: Path, records: Sequence[Record]) -> int:
    """The number of runs that commands on a store have named and that have no record."""
    return len(noted_runs(path).keys() - {record.digest for record in records})


def require_readable(path: Path, records: Sequence[Record]) -> None:
    """BadInput for a record that cannot be shown: anyone may have written its spec and its scores."""
    for record in records:
        try:
            _setup(record.spec)
            if not all(isinstance(record.spec[part], dict) for part in ("task", "model")):
                raise ValueError("task and model should be dictionaries")
            if record.seed < 0 or not all(0 <= seconds < math.inf for seconds in record.seconds.values()):
                raise ValueError("seed and seconds should not be negative")
            for time in filter(None, (record.started, record.ended)):
                datetime.fromisoformat(time)
            shares = [share for score in record.scores for share in (score.sequences, score.answers)]
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError("a share is not between 0 and 1")
            lengths = [*record.spec["training"]["lengths"], record.rate]
            if not all(0 < number < math.inf for number in lengths) or len(lengths) != 3:
                raise ValueError("training.lengths and training.lr should be three positive numbers")
            if not {score.bin for score in record.scores if not score.probe} <= {*record.bins}:
                raise ValueError("a score of a test bin that its spec does not name")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise BadInput(
                f"{path}: the record {record.digest[:16]!r} cannot be shown ({in_one_line(error)}); restore the file "
                "or move it out of the store"
            ) from None


def comparable(name: str, specs: Sequence[dict[str, Any]]) -> dict[str, list[Record]]:
    """The runs of a published study, by variant, whose task, training lengths and test bins are those of a spec.

    They are those of the study's first comparison, which holds its unchanged models.
    """
    published = [study for study in STUDIES if (RESULTS / f"{study}.jsonl.xz").exists()]
    if name not in published:
        raise BadInput(f"no published records are named '{name}'{suggestion(name, published)}")
    setups, study = {_setup(spec) for spec in specs}, study_named(name)
    names = study.comparisons[0].variants if study.comparisons else tuple(study.variants)
    tasks = {spec["task"]["kind"] for spec in specs}
    digests = {variant: [run.digest for run in study.variants[variant] if run.task.kind in tasks] for variant in names}
    wanted = dict.fromkeys(digest for runs in digests.values() for digest in runs)
    by_digest = {record.digest: record for record in Store.open(RESULTS / f"{name}.jsonl.xz").select([*wanted])}
    variants = {
        variant: [by_digest[d] for d in runs if d in by_digest and _setup(by_digest[d].spec) in setups]
        for variant, runs in digests.items()
    }
    if not any(variants.values()):
        raise BadInput(f"no run of {name} has a task, training lengths and test bins of these records")
    return {variant: runs for variant, runs in variants.items() if runs}


def task_names(records: Iterable[Record]) -> dict[str, str]:
    """The name of every setup of a task: its title, and where several have the same, the fields that differ."""
    setups: dict[str, dict[str, Any]] = {}
    by_title: dict[str, list[str]] = {}
    for record in records:
        if (key := _setup(record.spec)) not in setups:
            setups[key] = _setup_data(record.spec)
            by_title.setdefault(task_title(setups[key]["task"]), []).append(key)
    return {key: name for title, keys in by_title.items() for key, name in _named(title, keys, setups).items()}


def _named(title: str, keys: Sequence[str], setups: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Names for setups with the same title: with as few details as tell them apart."""
    details: list[dict[str, Any]] = [{} for _ in keys]
    names = [title for _ in keys]
    for detail in (_options, _trained, _tested):
        if len({*names}) == len(names):
            break
        details = [known | detail(setups[key]) for known, key in zip(details, keys, strict=True)]
        names = [f"{title} {label}".replace('"', "").strip() for label in differing_fields(details)]
    return dict(zip(keys, names, strict=True))


def _options(setup: dict[str, Any]) -> dict[str, Any]:
    return {"task": setup["task"]}


def _trained(setup: dict[str, Any]) -> dict[str, Any]:
    return {"trained": "to".join(map(str, setup["lengths"]))}


def _tested(setup: dict[str, Any]) -> dict[str, Any]:
    return {"tested": ",".join(f"{low}to{high}" for _, low, high in setup["bins"])}


def _setup(spec: dict[str, Any]) -> str:
    """What must be equal for results to be comparable, as text."""
    return canonical(_setup_data(spec))


def _setup_data(spec: dict[str, Any]) -> dict[str, Any]:
    bins = [[bin_["name"], bin_["low"], bin_["high"]] for bin_ in spec["testing"]["bins"]]
    return {"task": spec["task"], "lengths": spec["training"]["lengths"], "bins": bins}


def run_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row of plain values for each run; options of tasks and models are `task.NAME` and `model.NAME`."""
    records = list(records)
    names = bins([Cell(record.task, record.model, "", (record,)) for record in records])
    rows = [_run_row(record, names) for record in records]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _run_row(record: Record, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"digest": record.digest, "task": record.task, "model": record.model, "seed": record.seed}
    for part in ("task", "model"):
        row |= {
            f"{part}.{name}": value
            for name, value in record.spec.get(part, {}).items()
            if name not in ("kind", "version", "name") and isinstance(value, (bool, int, float, str))
        }
    row |= {"lr": record.rate, "verdict": record.verdict, "rung": record.rung, "stopped": record.stopped}
    row |= {"steps": record.steps, "solved_at": record.solved_at}
    scores = {name: record.score(name) for name in names}
    row |= {f"sequences.{name}": score.sequences if score else None for name, score in scores.items()}
    row |= {f"answers.{name}": score.answers if score else None for name, score in scores.items()}
    row |= {"first_wrong_length": record.first_failing_length, "wrong_word": record.wrong_word}
    row |= {"parameters": record.parameters, "state_floats": record.state_floats, "state_bits": record.state_bits}
    return row | {"seconds": sum(record.seconds.values()), "device": record.device, "commit": record.commit}
