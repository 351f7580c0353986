"""What a command will do: the runs that the store lacks, in groups that can share a program, with their slots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from assay.index import Outcome
from assay.lab.device import CORES
from assay.lab.memory import Forecast, memory_limit, slots_that_fit
from assay.lab.program import program_of
from assay.lab.stacking import why_unmappable
from assay.lab.weights import Kept
from assay.models.skeleton import Foreign
from assay.spec import RunSpec
from assay.tasks.task import Task

GROUPS_ON_GPU = 8  # that share it at a time, if they fit: more would not make it busier
GROUPS_PER_WORKER = 8  # of a cluster, so that all workers end at about the same time
LARGEST_ON_CPU = 50  # runs of a group, one after the other: a worker that is lost loses one of them
SMALLEST_ON_GPU = 16  # members of a group that is divided among GPUs: fewer would not fill one


@dataclass(frozen=True)
class Group:
    """Runs that can share a program, with their number of slots, the bytes they may use, and whose weights are kept.

    On a GPU, `memory` is the number of bytes that the runs will use; it is infinite where that cannot be predicted.
    There, a group has no slots until `sized` gives it some, on the machine that carries it out: the `wanted` number, or
    as many as fit. `size` and `tasks` are those of the whole group, whose finished runs are left out of `specs`.
    """

    specs: tuple[RunSpec, ...]
    slots: int = 1
    memory_limit: float = math.inf
    weights: Kept = "solved"
    memory: float = math.inf
    wanted: int | None = None
    size: int = 1
    tasks: tuple[Task, ...] = ()


class Plan:
    """The runs of a command by digest, how those that have ended did, and the groups that are still to be carried out.

    Digests are computed once; `add` keeps the plan up to date while groups are carried out. With `again`, runs that
    have a record are carried out too. `workers` is the number of workers of a cluster that share the runs. A plan is
    `remote` if its runs are carried out on other machines, whose memory is not known here.
    """

    def __init__(
        self,
        specs: Iterable[RunSpec],
        outcomes: Iterable[Outcome],
        device: torch.device,
        jobs: int | None = None,
        slots: int | None = None,
        weights: Kept = "solved",
        again: bool = False,
        workers: int | None = None,
        remote: bool = False,
    ) -> None:
        self.specs = {spec.digest: spec for spec in specs}
        self.device, self.slots, self.weights, self.workers, self.remote = device, slots, weights, workers, remote
        self.latest = {outcome.digest: outcome for outcome in outcomes}
        self.pending = {name: spec for name, spec in self.specs.items() if again or not self._is_finished(name)}
        self.parts = jobs or (CORES if device.type == "cpu" else GROUPS_ON_GPU)  # the same when the command is repeated
        self.jobs = max(1, min(self.parts, len(self.pending)))
        self.memory_limit = math.inf if remote else memory_limit(device, self.jobs if device.type == "cpu" else 1)

    def add(self, outcome: Outcome) -> None:
        """Note that a run has ended; it is not carried out (again)."""
        self.latest[outcome.digest] = outcome
        self.pending.pop(outcome.digest, None)

    @property
    def finished(self) -> set[str]:
        """The digests of all finished runs of the store, whether this plan names them or not."""
        return {name for name in self.latest if self._is_finished(name)}

    def _is_finished(self, name: str) -> bool:
        return name in self.latest and self.latest[name].finished

    def groups(self) -> Iterator[Group]:
        """The pending runs in groups: on a GPU all that share a program, on a CPU a part of them for each job.

        Slots follow from all runs of the plan, finished ones included, so that resumed runs use the same number of
        slots. For a cluster, groups are smaller: several for each worker.
        """
        programs: dict[str, list[RunSpec]] = {}
        for spec in self.specs.values():
            programs.setdefault(program_of(spec), []).append(spec)
        for specs in programs.values():
            for part in self._parts(specs):
                if remaining := tuple(spec for spec in part if spec.digest in self.pending):
                    tasks = tuple(dict.fromkeys(spec.task for spec in part))
                    slots = self._slots_on_cpu(specs) if self.device.type == "cpu" else 0
                    group = Group(remaining, slots, self.memory_limit, self.weights)
                    yield replace(group, wanted=self.slots, size=len(part), tasks=tasks)

    def _parts(self, specs: Sequence[RunSpec]) -> Iterator[Sequence[RunSpec]]:
        """The runs of a program, divided among groups; the same ones whichever runs are finished."""
        if self.workers:
            each = -(-len(self.specs) // (self.workers * GROUPS_PER_WORKER))
            each = min(each, LARGEST_ON_CPU) if self.device.type == "cpu" else max(each, SMALLEST_ON_GPU)
            count = -(-len(specs) // each)
        elif self.device.type == "cuda":
            count = 1
        else:
            count = len(specs) if min(self.slots or 1, len(specs)) == 1 else self.parts
        for part in range(min(count, len(specs))):
            yield specs[part::count]

    def _slots_on_cpu(self, specs: Sequence[RunSpec]) -> int:
        """Stacking gains nothing on a CPU; and no more slots than a part has runs."""
        slots = min(self.slots or 1, len(specs))
        return max(1, min(slots, -(-len(specs) // self.parts))) if slots > 1 else 1


def sized(group: Group, device: torch.device, limit: float) -> Group:
    """A group with its slots, and the memory that they will use; as it is if it has slots already.

    By default there are as many slots as runs and memory allow. A user's own module that cannot be mapped,
    built or traced gets one slot; if it fails, its run reports the error. So does a program that is too large to be
    traced.
    """
    if group.slots:
        return group
    spec = group.specs[0]
    slots, memory = 1, math.inf
    try:
        if not why_unmappable(spec, device):
            if group.wanted is None:
                slots, memory = slots_that_fit(spec, group.tasks, group.size, device, limit)
            else:
                slots = min(group.wanted, group.size)
                memory = Forecast(spec, group.tasks, device, slots)(slots)
    except torch.OutOfMemoryError:
        slots, memory = 1, math.inf
    except Exception:
        if not isinstance(spec.model, Foreign):
            raise
        slots, memory = 1, math.inf
    return replace(group, slots=slots, memory=memory, memory_limit=limit)
