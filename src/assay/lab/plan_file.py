"""Plans as files in a store, from which workers of several machines carry out the same runs."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from assay.description import digest
from assay.errors import BadInput, suggestion
from assay.index import Entry
from assay.lab.plan import Plan
from assay.lab.provenance import difference, provenance
from assay.lab.weights import Kept
from assay.spec import RunSpec
from assay.store import PLANS, write_synced


@dataclass(frozen=True)
class SavedPlan:
    """A plan that workers share.

    `earlier` has the place in the store of each record that a run had when the plan was made, if the run is to be
    carried out nevertheless: with any other record the run has ended. `paths` are folders of a user's own modules, and
    `origin` is the code that the plan was made with.
    """

    specs: tuple[RunSpec, ...]
    slots: int | None
    weights: Kept
    checkpoint: float
    workers: int
    earlier: Mapping[str, str]
    paths: tuple[str, ...]
    origin: Mapping[str, Any]

    @cached_property
    def name(self) -> str:
        """The same for the same plan."""
        return digest(self.plain)[:12]

    def save(self, store: Path) -> str:
        """Write the plan into a store; returns its name."""
        write_synced(_path(store, self.name), json.dumps(self.plain).encode())
        return self.name

    @contextmanager
    def kept_in(self, store: Path, plan: Plan) -> Iterator[None]:
        """Write the plan into a store; it is deleted at the end, if all of its runs have ended."""
        self.save(store)
        yield
        if not plan.pending:
            _path(store, self.name).unlink(missing_ok=True)

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The plan as JSON data, with each setting once for all of its seeds."""
        settings = dict[str, list[int]]()
        for spec in self.specs:
            settings.setdefault(json.dumps(spec.plain() | {"seed": 0}), []).append(spec.seed)
        return {
            "settings": [[json.loads(text), seeds] for text, seeds in settings.items()],
            "slots": self.slots,
            "weights": self.weights,
            "checkpoint": self.checkpoint,
            "workers": self.workers,
            "earlier": dict(self.earlier),
            "paths": list(self.paths),
            "origin": dict(self.origin),
        }

    def plan(self, index: Mapping[str, Entry], device: torch.device, jobs: int | None) -> Plan:
        """The plan without the runs that have ended since it was made."""
        ended = (entry for name, entry in index.items() if self.earlier.get(name) != entry.place)
        plan = Plan(self.specs, (), device, jobs, self.slots, self.weights, workers=self.workers)
        for entry in ended:
            plan.add(entry)
        return plan


def saved_plan(plan: Plan, index: Mapping[str, Entry], checkpoint: float, workers: int) -> SavedPlan:
    """A plan as it can be saved."""
    earlier = {name: index[name].place for name in plan.pending if name in index}
    paths = tuple(str(Path(path).resolve()) for path in dict.fromkeys(["", *_added_paths()]))
    specs = tuple(plan.specs.values())
    return SavedPlan(specs, plan.slots, plan.weights, checkpoint, workers, earlier, paths, _code())


def _added_paths() -> Iterable[str]:
    """The folders of study files that were loaded (`assay.studies` appends them)."""
    return sys.path[sys.path.index("") + 1 :] if "" in sys.path else ()


def read_plan(store: Path, name: str) -> SavedPlan:
    """A plan of a store by its name; the modules of its user can be imported afterwards."""
    path = _path(store, name)
    if not path.is_file():
        names = [file.stem for file in path.parent.glob("*.json")]
        raise BadInput(f"{store} has no plan '{name}'{suggestion(name, names)}")
    try:
        content = json.loads(path.read_bytes())
        sys.path += [folder for folder in content["paths"] if folder not in sys.path]
        specs = (RunSpec(**{**plain, "seed": seed}) for plain, seeds in content["settings"] for seed in seeds)
        options = {key: content[key] for key in ("slots", "weights", "checkpoint", "workers", "earlier", "origin")}
        return SavedPlan(tuple(specs), **options, paths=tuple(content["paths"]))
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a plan ({type(error).__name__}: {error})") from None


def require_same_code(origin: Mapping[str, Any]) -> None:
    """BadInput if this machine has other code than that which a plan was made with: its results might differ."""
    if differing := difference(_code(), origin):
        name, ours, theirs = differing
        host = socket.gethostname()
        raise BadInput(f"{name} differs: {host} has {ours}, and the plan was made with {theirs}; install the same one")


def _code() -> dict[str, Any]:
    """The versions and the commit of the code that is running."""
    origin = provenance(torch.device("cpu"))  # to ask a GPU would take its memory
    return {"versions": origin["versions"], "commit": origin["commit"]}


def note_runs(store: Path, specs: Mapping[str, RunSpec]) -> Path:
    """Write down which runs a command is about, so that `assay status` knows what is left; returns the file."""
    path = store / PLANS / f"{digest(sorted(specs))[:12]}.runs"
    groups = dict[tuple[str, str], list[str]]()
    for name, spec in specs.items():
        groups.setdefault((spec.task.kind, spec.model.name), []).append(name)
    write_synced(path, json.dumps([[*group, names] for group, names in groups.items()]).encode())
    return path


def _path(store: Path, name: str) -> Path:
    if os.sep in name:
        raise BadInput(f"--plan {name} is not the name of a plan")
    return store / PLANS / f"{name}.json"
