"""What a command will do: the runs that the store lacks, in groups that can share a program, with their slots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from assay.lab.device import CORES
from assay.lab.memory import Forecast, memory_limit, slots_that_fit
from assay.lab.program import program_of
from assay.lab.stacking import why_unmappable
from assay.lab.weights import Kept
from assay.models.skeleton import Foreign
from assay.record import Record
from assay.spec import RunSpec

GROUPS_ON_GPU = 8  # that share it at a time, if they fit: more would not make it busier


@dataclass(frozen=True)
class Group:
    """Runs that can share a program, with their number of slots, the bytes they may use, and whose weights are kept.

    On a GPU, `memory` is the number of bytes that they will use; it is infinite where that cannot be predicted.
    """

    specs: tuple[RunSpec, ...]
    slots: int = 1
    memory_limit: float = math.inf
    weights: Kept = "solved"
    memory: float = math.inf


class Plan:
    """The runs of a command by digest, the records that exist, and the groups that are still to be carried out.

    Digests are computed once and records are read once; `add` keeps the plan up to date while groups are carried out.
    With `again`, runs that have a record are carried out too.
    """

    def __init__(
        self,
        specs: Iterable[RunSpec],
        records: Iterable[Record],
        device: torch.device,
        jobs: int | None = None,
        slots: int | None = None,
        weights: Kept = "solved",
        again: bool = False,
    ) -> None:
        self.specs = {spec.digest: spec for spec in specs}
        self.device, self.slots, self.weights = device, slots, weights
        self.latest = {record.digest: record for record in records}
        self.pending = [spec for name, spec in self.specs.items() if again or not self._is_finished(name)]
        self.parts = jobs or (CORES if device.type == "cpu" else GROUPS_ON_GPU)  # the same when the command is repeated
        self.jobs = max(1, min(self.parts, len(self.pending)))
        self.memory_limit = memory_limit(device, self.jobs if device.type == "cpu" else 1)

    def add(self, record: Record) -> None:
        """Note that a run has ended."""
        self.latest[record.digest] = record

    @property
    def records(self) -> list[Record]:
        """The latest record of each run, in the order of the runs; runs without a record are left out."""
        return [self.latest[name] for name in self.specs if name in self.latest]

    @property
    def finished(self) -> set[str]:
        """The digests of all finished records of the store, whether this plan names them or not."""
        return {name for name in self.latest if self._is_finished(name)}

    def _is_finished(self, name: str) -> bool:
        return name in self.latest and self.latest[name].finished

    def groups(self) -> Iterator[Group]:
        """The pending runs in groups: on a GPU all that share a program, on a CPU a part of them for each job.

        Slots follow from all runs of the plan, finished ones included, so that resumed runs use the same number of
        slots. One group at a time, since the memory forecast takes a moment.
        """
        programs: dict[str, list[RunSpec]] = {}
        for spec in self.specs.values():
            programs.setdefault(program_of(spec), []).append(spec)
        pending = {spec.digest for spec in self.pending}
        for specs in programs.values():
            if remaining := [spec for spec in specs if spec.digest in pending]:
                yield from self._groups_of_program(specs, remaining)

    def _groups_of_program(self, specs: Sequence[RunSpec], remaining: Sequence[RunSpec]) -> Iterator[Group]:
        if self.device.type == "cuda":
            slots, memory = slots_on_gpu(specs, self.slots, self.device, self.memory_limit)
            yield Group(tuple(remaining), slots, self.memory_limit, self.weights, memory)
            return
        slots = min(self.slots or 1, len(specs))  # stacking gains nothing on a CPU
        parts = len(remaining) if slots == 1 else self.parts
        slots = max(1, min(slots, -(-len(specs) // parts)))  # no more slots than a part has runs
        for part in range(min(parts, len(remaining))):
            yield Group(tuple(remaining[part::parts]), slots, self.memory_limit, self.weights)


def slots_on_gpu(specs: Sequence[RunSpec], wanted: int | None, device: torch.device, limit: float) -> tuple[int, float]:
    """The slots of a group, by default as many as runs and memory allow, and the bytes that they will use.

    A user's own module that cannot be mapped, built or traced gets one slot; if it fails, its run reports the error. So
    does a program that is too large to be traced.
    """
    spec, tasks = specs[0], list(dict.fromkeys(spec.task for spec in specs))
    try:
        if why_unmappable(spec, device):
            return 1, math.inf
        if wanted is None:
            return slots_that_fit(spec, tasks, len(specs), device, limit)
        slots = min(wanted, len(specs))
        return slots, Forecast(spec, tasks, device, slots)(slots)
    except torch.OutOfMemoryError:
        return 1, math.inf
    except Exception:
        if not isinstance(spec.model, Foreign):
            raise
        return 1, math.inf
