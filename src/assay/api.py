"""The functions for Python and notebooks that correspond to commands: compare, load, prove, size and task."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.collection import Collection, comparable, run_rows
from assay.analysis.subjects import StudyRecords, is_store, read_study
from assay.errors import BadInput
from assay.models.skeleton import Architecture, Foreign
from assay.record import Record
from assay.report import write_page
from assay.report.collection_page import MATRIX, matrix
from assay.spec import run_specs
from assay.store import Store
from assay.studies import study_named
from assay.tasks import named_task
from assay.tasks.task import Task

if TYPE_CHECKING:
    from torch import nn

    from assay.theory.bounds.sizes import Size
    from assay.theory.claim import CheckResult

Model = str | Architecture | Callable[..., "nn.Module"]
FRAMES = ("polars", "pandas")


@dataclass(frozen=True, repr=False)
class Drawing:
    """A chart, which notebooks show."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


class Results:
    """The results of a comparison: its records, and a table of models by task."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    def records(self) -> list[Record]:
        return self.collection.records

    def frame(self) -> Any:
        """One row for each run, as a data frame of polars, or of pandas if polars is not installed."""
        return frame(run_rows(self.records))

    def chart(self) -> Drawing:
        """Right sequences by length, in the settings that validation chose."""
        from assay.report.figures import by_length, draw

        chart = by_length(self.collection.chosen, {})
        if chart is None:
            raise BadInput("there is nothing to draw: no run has a score by length")
        return Drawing(draw(chart)[0])

    def save(self, folder: Path | str) -> list[Path]:
        """Write the page, with CSV and LaTeX beside it; returns the files."""
        return write_page(self.collection, Path(folder))

    def __repr__(self) -> str:
        header, rows = self._table()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = (
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in (header, *rows)
        )
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        header, rows = self._table()
        parts = [_html_row("th", header), *(_html_row("td", row) for row in rows)]
        return f"<table>{''.join(parts)}</table><p>{html.escape(MATRIX)}</p>"

    def _table(self) -> tuple[list[str], list[list[str]]]:
        header, rows = matrix(self.collection)
        return header, [[c if isinstance(c, str) else c.text.replace("\n", ", ") for c in row] for row in rows]


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def compare(
    tasks: str | Task | Sequence[str | Task],
    models: Model | Sequence[Model],
    *,
    seeds: int = 3,
    lr: float | Sequence[float] = (),
    beside: str | Sequence[str] = (),
    store: Path | str | None = None,
    device: str = "auto",
    jobs: int = 1,
    **parts: Any,
) -> Results:
    """Train several models on several tasks from several seeds; nothing is stored without a `store`.

    A model is a name, an architecture, or a class or function as for `assay.run`. `parts` are options of `run_spec`:
    `task_options`, `model_options`, `training` and `testing`. `beside` names studies whose published records on the
    same tasks, lengths and test bins are shown, too. A run that fails has the error in its record. On a CPU, `jobs`
    above 1 starts so many processes, which import the script that calls this function.
    """
    from assay.lab.carry_out import carry_out
    from assay.lab.engines.choice import RunOptions, store_plan_and_engine

    architectures = [m if isinstance(m, (str, Architecture)) else Foreign.of(m) for m in _several(models)]
    specs = run_specs(_several(tasks), architectures, seeds=seeds, rates=_several(lr), **parts)
    published = {name: comparable(name, [spec.plain() for spec in specs]) for name in _several(beside)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "store") if store is None else Path(store)
        with store_plan_and_engine(specs, path, RunOptions(device, jobs)) as (opened, plan, engine):
            records = carry_out(plan, opened, engine, lambda event: None)
        records = [record.whole() for record in records]
    return Results(Collection("comparison", "assay.compare", records, published))


def load(name: Path | str) -> Any:
    """One row for each run of a study or store: a data frame of polars, or of pandas if polars is not installed.

    `name` is a study (its published records), or the path of a study's file, a store or a packed file.
    """
    if is_store(str(name)):
        return frame(run_rows(Store.open(name).records()))
    subject: StudyRecords = read_study(study_named(str(name)), None, Path("assay-store"))
    return frame(run_rows(subject.records))


def frame(rows: Sequence[dict[str, Any]]) -> Any:
    """Rows as a data frame of the first library that is installed."""
    for library in FRAMES:
        if find_spec(library) is None:
            continue
        if library == "polars":
            import polars

            return polars.DataFrame(rows, infer_schema_length=None, strict=False)
        import pandas

        return pandas.DataFrame(rows)
    raise BadInput("a data frame needs polars or pandas, and neither is installed: pip install polars")


def prove(claim: str, length: int | None = None, **options: Any) -> CheckResult:
    """Check a claim at a length, by default one that the claim sets; `options` are those of the claim."""
    from assay.theory.registry import named_claim

    result: CheckResult = named_claim(claim, **options).check(length)
    return result


def size(task: str | Task, length: int, precision: int = 32, **options: Any) -> list[Size]:
    """How large each model must be for a task at a length, and which explicit weights are known."""
    from assay.theory.bounds.sizes import sizes

    return sizes(task if isinstance(task, Task) else named_task(task, **options), length, precision)


def _several(value: Any) -> list[Any]:
    """A list of one or more values."""
    return [*value] if isinstance(value, Sequence) and not isinstance(value, str) else [value]
