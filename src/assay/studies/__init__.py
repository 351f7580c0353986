"""Studies are data: a Python file that ends in `RUNS`, a list of runs, and says in its docstring what it asks."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from assay.description import BadInput, suggestion
from assay.registry import Entry

if TYPE_CHECKING:
    from assay.spec import RunSpec

RESULTS = Path(__file__).parent.parent / "results"  # the packed records of published studies

STUDIES = {
    "quick": Entry("quick.py", "six architectures on four tasks, three seeds, small: the demo"),
    "quick-rates": Entry("quick_rates.py", "the parity of quick at two lower learning rates"),
}


def study_named(name: str) -> tuple[str, list[RunSpec]]:
    """What a study asks and its runs, by its name or the path of its file."""
    from assay.spec import RunSpec

    path = Path(__file__).parent / STUDIES[name].where if name in STUDIES else Path(name)
    if name not in STUDIES and path.suffix != ".py":
        raise BadInput(f"unknown study '{name}'{suggestion(name, STUDIES)} (or give the path of a .py file)")
    if not path.is_file():
        raise BadInput(f"there is no study file at {path}")
    try:
        study = runpy.run_path(str(path))
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from None
    except Exception as error:
        raise BadInput(f"{path.name} does not run: {type(error).__name__}: {error}") from None
    runs = study.get("RUNS")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, RunSpec) for run in runs):
        raise BadInput(f"{path.name} does not end in RUNS, a list of runs made by assay.run_spec")
    return " ".join((study["__doc__"] or "").split()), runs
