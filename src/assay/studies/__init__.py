"""Studies are data: a Python file with `RUNS`, a list of runs, whose docstring says what the study asks.

A long study names parts of its runs in `PIECES`, so that each can be carried out alone; then it needs no `RUNS`. A
study that repeats a paper gathers its runs by name in `VARIANTS` (by default the names of their models), says in
`COMPARISONS` which variants stand side by side, and in `FINDINGS` what the paper found, to be judged by the records.
With `ABOUT_PROBES = True` its page compares what random inputs and probes say; with `REPLICATION` it judges every
finding by two rules, the published one and ours; with `SEPARATIONS` it shows sizes and accuracies over lengths; with
`TRACKING` it sets architectures beside theory and published numbers.
`PIECES` and `VARIANTS` map names to lists of runs, or to functions that return such lists, called when needed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from assay.errors import USER_CODE_ERRORS, BadInput, in_one_line, suggestion
from assay.registry import Entry

if TYPE_CHECKING:
    from assay.findings import Comparison, Finding, Replication, Separations, Tracking
    from assay.spec import RunSpec

RESULTS = Path(__file__).parent.parent / "results"  # the packed records of published studies

STUDIES = {
    "quick": Entry("quick.py", "six architectures on four tasks, three seeds, small: the demo"),
    "irie2023": Entry(
        "irie2023.py", "seven architectures, eight languages, four learning rates, ten seeds", "Irie 2023"
    ),
    "irie2023-second": Entry("irie2023_second.py", "the same paper, judged by its own rule and by ours", "Irie 2023"),
    "separations2024": Entry(
        "separations2024.py", "attention and recurrence: ten tasks, nine architectures, many sizes", "Bhattamishra 2024"
    ),
    "separations2024-laptop": Entry(
        "separations2024_laptop.py", "lookup, Dyck, copying and recall by small machines", "Bhattamishra 2024"
    ),
    "tracking2026": Entry("tracking2026.py", "36 architectures, mostly of 2023 to 2026, on state tracking and recall"),
    "leaks": Entry("leaks.py", "thirteen recurrent models, five tasks: which remember a bit for long, and what helps"),
    "proofs": Entry("proofs.py", "six small recurrent models: which can be proved right on every input?"),
    "programs": Entry("programs.py", "three self-referential matrices, whose programs are extracted", "Irie 2023"),
    "card-laptop": Entry("card_laptop.py", "the reference architectures of `assay card`, on its battery of tasks"),
    "card-gpu": Entry("card_gpu.py", "the same with larger models, for a GPU; not recorded yet"),
    "quick-rates": Entry("quick_rates.py", "the parity of quick at two lower learning rates"),
}
_loaded: set[str] = set()  # modules of study files, which a file of the same name may replace


class NamedRuns(Mapping[str, "list[RunSpec]"]):
    """Lists of runs by name; a list that a function returns is built when it is first read."""

    def __init__(self, where: str, sources: Mapping[str, Sequence[RunSpec] | Callable[[], Sequence[RunSpec]]]) -> None:
        self._where, self._sources = where, sources
        self._built: dict[str, list[RunSpec]] = {}
        for name, source in sources.items():
            if not isinstance(name, str):
                raise BadInput(f"{where}: the name {name!r} is not a string")
            if not callable(source):
                self._built[name] = _checked_runs(source, f"{where}[{name!r}]")

    def __getitem__(self, name: str) -> list[RunSpec]:
        if name not in self._built:
            source: Any = self._sources[name]
            try:
                runs = source()
            except Exception as error:
                raise BadInput(f"{self._where}[{name!r}] does not run: {in_one_line(error)}") from None
            self._built[name] = _checked_runs(runs, f"{self._where}[{name!r}]()")
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


@dataclass(frozen=True)
class Study:
    """A study: its name for commands, its question, its runs, and what is compared and judged.

    `run_list` and `named_variants` are those that the file gives; `runs` and `variants` are built on first use.
    """

    name: str
    about: str
    run_list: list[RunSpec] | None
    pieces: Mapping[str, list[RunSpec]]
    named_variants: Mapping[str, list[RunSpec]] | None
    comparisons: list[Comparison]
    findings: list[Finding]
    about_probes: bool = False  # its page compares random with probed verdicts
    replication: Replication | None = None  # its page judges findings by two rules
    separations: Separations | None = None  # its page shows which size solves which length
    tracking: Tracking | None = None  # its page sets architectures beside theory and published numbers

    @property
    def title(self) -> str:
        return Path(self.name).stem

    @cached_property
    def runs(self) -> list[RunSpec]:
        """All runs; without a list of its own, those of all pieces."""
        if self.run_list is not None:
            return self.run_list
        return [run for runs in self.pieces.values() for run in runs]

    @cached_property
    def variants(self) -> Mapping[str, list[RunSpec]]:
        """Runs by variant; by the names of their models where the study names no variants."""
        return self.named_variants or _by_model(self.runs)

    def runs_of(self, pieces: Sequence[str]) -> list[RunSpec]:
        """The runs of some pieces, in their order; of all without any."""
        for name in pieces:
            if name not in self.pieces:
                raise BadInput(f"the study has no piece '{name}'{suggestion(name, self.pieces)}")
        return [run for name in pieces for run in self.pieces[name]] if pieces else self.runs


def study_named(name: str) -> Study:
    """A study by its name or the path of its file."""
    from assay.findings import Comparison, Finding

    path = Path(__file__).parent / STUDIES[name].where if name in STUDIES else Path(name)
    if name not in STUDIES and path.suffix != ".py":
        raise BadInput(f"unknown study '{name}'{suggestion(name, STUDIES)} (or give the path of a .py file)")
    if not path.is_file():
        raise BadInput(f"there is no study file at {path}")
    try:
        module = importlib.import_module(f"assay.studies.{path.stem}") if name in STUDIES else _load(path)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from None
    except USER_CODE_ERRORS as error:
        raise BadInput(f"{path.name} does not run: {type(error).__name__}: {error}") from None
    where, runs = path.name, getattr(module, "RUNS", None)
    pieces = _named_runs(module, "PIECES", where)
    if not runs and not pieces:
        raise BadInput(f"{where} does not end in RUNS, a list of runs made by assay.run_spec")
    return Study(
        name,
        " ".join((module.__doc__ or "").split()),
        None if runs is None else _checked_runs(runs, f"{where}: RUNS"),
        pieces,
        _named_runs(module, "VARIANTS", where) or None,
        _objects(module, "COMPARISONS", Comparison, where),
        _objects(module, "FINDINGS", Finding, where),
        bool(getattr(module, "ABOUT_PROBES", False)),
        getattr(module, "REPLICATION", None),
        getattr(module, "SEPARATIONS", None),
        getattr(module, "TRACKING", None),
    )


def _by_model(runs: Sequence[RunSpec]) -> dict[str, list[RunSpec]]:
    models: dict[str, list[RunSpec]] = {}
    for run in runs:
        models.setdefault(run.model.name, []).append(run)
    return models


def _checked_runs(runs: Any, where: str) -> list[RunSpec]:
    from assay.spec import RunSpec

    if not isinstance(runs, (list, tuple)):
        raise BadInput(f"{where} must be a list of runs made by assay.run_spec, not a {type(runs).__name__}")
    for run in runs:
        if not isinstance(run, RunSpec):
            raise BadInput(f"{where} must hold runs made by assay.run_spec, not a {type(run).__name__}")
    return list(runs)


def _named_runs(module: ModuleType, name: str, where: str) -> NamedRuns:
    named = getattr(module, name, {})
    if not isinstance(named, Mapping):
        kind = type(named).__name__
        raise BadInput(f"{where}: {name} must be a dictionary of names and lists of runs, not a {kind}")
    return NamedRuns(f"{where}: {name}", named)


def _objects(module: ModuleType, name: str, kind: type, where: str) -> list[Any]:
    objects = getattr(module, name, [])
    if not isinstance(objects, (list, tuple)) or isinstance(objects, kind):
        raise BadInput(f"{where}: {name} must be a list of {kind.__name__}, not a {type(objects).__name__}")
    for item in objects:
        if not isinstance(item, kind):
            raise BadInput(f"{where}: {name} must hold {kind.__name__} objects, not a {type(item).__name__}")
    return list(objects)


def _load(path: Path) -> ModuleType:
    """Import a file by its name, so that a worker, too, can import the tasks and models that it defines."""
    _check_name(path)
    sys.path.append(str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    _loaded.add(path.stem)
    spec.loader.exec_module(module)
    return module


def _check_name(path: Path) -> None:
    """Refuse a file whose name would hide another module."""
    if path.stem in _loaded:
        return
    try:
        spec = importlib.util.find_spec(path.stem)
        origin = spec.origin if spec else None
    except (ImportError, ValueError):  # a name with a dot, or a module without a spec
        origin = "built-in" if path.stem in sys.modules else None
    if path.stem in sys.stdlib_module_names or (origin and Path(origin).resolve() != path.resolve()):
        raise BadInput(f"a module of Python or of an installed package is named '{path.stem}' too: rename the file")
