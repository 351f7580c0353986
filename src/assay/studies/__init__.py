"""Studies are data: a Python file that ends in `RUNS`, a list of runs, and says in its docstring what it asks.

A long one may also name parts of its runs, `PIECES`, so that each can be carried out by itself. One that repeats a
paper may gather its runs under names in `VARIANTS` (by default the names of their models), say in `COMPARISONS` which
of them stand side by side, and in `FINDINGS` what the paper found, to be judged by the records.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from assay.description import BadInput, suggestion
from assay.registry import Entry

if TYPE_CHECKING:
    from assay.findings import Comparison, Finding
    from assay.spec import RunSpec

RESULTS = Path(__file__).parent.parent / "results"  # the packed records of published studies

STUDIES = {
    "quick": Entry("quick.py", "six architectures on four tasks, three seeds, small: the demo"),
    "irie2023": Entry("irie2023.py", "seven architectures, eight languages, four rates, ten seeds", "Irie 2023"),
    "quick-rates": Entry("quick_rates.py", "the parity of quick at two lower learning rates"),
}


class Study(NamedTuple):
    """What a study asks, all its runs, named parts of them, what is compared, and what others found."""

    about: str
    runs: list[RunSpec]
    pieces: dict[str, list[RunSpec]]
    variants: dict[str, list[RunSpec]]
    comparisons: list[Comparison]
    findings: list[Finding]

    def piece(self, name: str | None) -> list[RunSpec]:
        """The runs of one piece, or all."""
        if name is None:
            return self.runs
        if name not in self.pieces:
            raise BadInput(f"the study has no piece '{name}'{suggestion(name, self.pieces)}")
        return self.pieces[name]


def study_named(name: str) -> Study:
    """A study by its name or the path of its file."""
    from assay.spec import RunSpec

    path = Path(__file__).parent / STUDIES[name].where if name in STUDIES else Path(name)
    if name not in STUDIES and path.suffix != ".py":
        raise BadInput(f"unknown study '{name}'{suggestion(name, STUDIES)} (or give the path of a .py file)")
    if not path.is_file():
        raise BadInput(f"there is no study file at {path}")
    try:
        study = importlib.import_module(f"assay.studies.{path.stem}") if name in STUDIES else _load(path)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from None
    except (Exception, SystemExit) as error:
        raise BadInput(f"{path.name} does not run: {type(error).__name__}: {error}") from None
    runs = getattr(study, "RUNS", None)
    if not isinstance(runs, list) or not runs or not all(isinstance(run, RunSpec) for run in runs):
        raise BadInput(f"{path.name} does not end in RUNS, a list of runs made by assay.run_spec")
    return Study(
        " ".join((study.__doc__ or "").split()),
        runs,
        getattr(study, "PIECES", {}),
        getattr(study, "VARIANTS", None) or _by_model(runs),
        getattr(study, "COMPARISONS", []),
        getattr(study, "FINDINGS", []),
    )


def _by_model(runs: list[RunSpec]) -> dict[str, list[RunSpec]]:
    named: dict[str, list[RunSpec]] = {}
    for run in runs:
        named.setdefault(run.model.name, []).append(run)
    return named


def _load(path: Path) -> ModuleType:
    """Import a file by its name, so that what it defines (tasks, models) can be imported from it by a worker too."""
    sys.path.append(str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
