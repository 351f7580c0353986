"""The records of a study by variant and task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assay.analysis.cells import Cell, cells
from assay.analysis.settings import validation_rank
from assay.errors import BadInput, suggestion
from assay.findings import Comparison
from assay.record import Record

Digests = Mapping[str, Mapping[str, Sequence[str]]]  # the digests of a study's runs, by variant and task
Pair = tuple[str, str]  # a variant and a task


class Grid:
    """The cells of each variant and task whose runs have all finished.

    `cells` has every setting, `chosen` the one that validation chose, `pooled` all runs as one cell. A pair that is
    under way is left out: runs that learn quickly are recorded first, so it would look better than it is. A run that
    failed with an error is no evidence, and its pair counts as under way.
    """

    def __init__(self, digests: Digests, records: Iterable[Record]) -> None:
        self.digests = digests
        self.variants: dict[str, list[Record]] = {}
        self.cells: dict[Pair, list[Cell]] = {}
        self.chosen: dict[Pair, Cell] = {}
        self.pooled: dict[Pair, Cell] = {}
        by_digest = {record.digest: record for record in records if record.finished}
        for variant, tasks in digests.items():
            self.variants[variant] = []
            for task, names in tasks.items():
                runs = [by_digest[digest] for digest in names if digest in by_digest]
                if len(runs) == len(names):
                    self.variants[variant] += runs
                    self._add(variant, task, runs)

    def _add(self, variant: str, task: str, records: list[Record]) -> None:
        rivals = [Cell(task, variant, cell.setting, cell.records) for cell in cells(records)]
        self.cells[variant, task] = rivals
        self.chosen[variant, task] = max(rivals, key=lambda cell: validation_rank(cell.records))
        self.pooled[variant, task] = Cell(task, variant, "", tuple(records))

    def tasks(self, comparison: Comparison) -> list[str]:
        """The tasks of a comparison, or all that its variants were run on, in the order of the study."""
        for variant in comparison.variants:
            if variant not in self.digests:
                known = suggestion(variant, self.digests)
                raise BadInput(f"a comparison names '{variant}', which is not a variant{known}")
        tasks = list(dict.fromkeys(task for variant in comparison.variants for task in self.digests[variant]))
        for task in comparison.tasks:
            if task not in tasks:
                known = suggestion(task, tasks)
                raise BadInput(f"a comparison names '{task}', which none of its variants was run on{known}")
        return list(comparison.tasks) or tasks

    def pairs(self, comparison: Comparison) -> list[Pair]:
        """Every pair of a comparison, whether it has records or not."""
        tasks = self.tasks(comparison)
        return [(variant, task) for variant in comparison.variants for task in tasks]

    def complete(self, variant: str) -> bool:
        """Whether a variant has finished all of its tasks."""
        return all((variant, task) in self.cells for task in self.digests[variant])
