"""The records of a study by variant and task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from assay.description import BadInput, suggestion
from assay.findings import chosen
from assay.record import Record
from assay.report.tables import Cell, cells

Asked = Mapping[str, Mapping[str, Sequence[str]]]  # digests by variant and task
Place = tuple[str, str]  # a variant and a task


class Grid:
    """Of each variant and task whose runs have all finished: its cells, the one that validation chose, and all as one.

    Of a place that is under way, those that learn soon are recorded first: it would look better than it is. An error is
    no evidence, and a place with one is under way.
    """

    def __init__(self, asked: Asked, records: Iterable[Record]) -> None:
        self.asked = asked
        self.variants: dict[str, list[Record]] = {}
        self.cells: dict[Place, list[Cell]] = {}
        self.chosen: dict[Place, Cell] = {}
        self.pooled: dict[Place, Cell] = {}
        found = {record.digest: record for record in records}
        for variant, tasks in asked.items():
            self.variants[variant] = []
            for task, digests in tasks.items():
                mine = [found[digest] for digest in digests if digest in found and found[digest].finished]
                if len(mine) == len(digests):
                    self.variants[variant] += mine
                    self._place(variant, task, mine)

    def _place(self, variant: str, task: str, records: list[Record]) -> None:
        rivals = [Cell(task, variant, cell.setting, cell.records) for cell in cells(records)]
        best = chosen(records)[0]
        self.cells[variant, task] = rivals
        self.chosen[variant, task] = next(cell for cell in rivals if cell.records[0] is best)
        self.pooled[variant, task] = Cell(task, variant, "", tuple(records))

    def tasks(self, variants: Iterable[str], some: Sequence[str] = ()) -> list[str]:
        """The tasks that any of these variants was asked, in the order of the study, or some of them as given."""
        for variant in variants:
            if variant not in self.asked:
                raise BadInput(f"a comparison names '{variant}', which is no variant{suggestion(variant, self.asked)}")
        asked = list(dict.fromkeys(task for variant in variants for task in self.asked[variant]))
        for task in some:
            if task not in asked:
                raise BadInput(f"a comparison names '{task}', which none of it was asked{suggestion(task, asked)}")
        return list(some) or asked

    def of(self, variants: Sequence[str]) -> list[Place]:
        """Every place of these variants, whether it has records or not."""
        tasks = self.tasks(variants)
        return [(variant, task) for variant in variants for task in tasks]

    def whole(self, variant: str) -> bool:
        """Whether a variant was run on all of its tasks."""
        return all((variant, task) in self.cells for task in self.asked[variant])


def last_bin(cell: Cell) -> str:
    """The longest test bin."""
    return cell.records[0].bins[-1]
