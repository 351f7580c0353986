"""Training runs that can share a program: as many at once as there are slots, the others as slots become free."""

from __future__ import annotations

import gc
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn

from assay.description import digest, in_one_line
from assay.lab.checkpoint import Checkpoints
from assay.lab.kernels import prepared
from assay.lab.member import Mark, Member, Stopped
from assay.lab.memory import room, slots_that_fit
from assay.lab.population import Population
from assay.lab.stacking import unmappable
from assay.spec import RunSpec, Training
from assay.tasks.task import Task

# An H200 was seen to need 0.3 to 1.1 seconds, and less than 0.2 of a step.
REBUILDING = 1.5  # seconds that a new population costs on a GPU
FIXED = 0.2  # the share of a GPU's step that does not shrink with its slots


def program_of(spec: RunSpec) -> str:
    """Runs with the same one can be members of one population."""
    how = spec.training.plain()
    shared = ("batch", "lengths", "validation", "validation_rows", "validate_every", "precision", "compile")
    return digest([spec.model.plain(), list(spec.task.shape), {name: how[name] for name in shared}])


class Status(NamedTuple):
    """A population at the end of a round, for people."""

    model: str
    tasks: tuple[str, ...]
    slots: int
    alive: int
    waiting: int
    solved: int
    diverged: int
    ended: int
    best: float
    median: float
    step: int  # of the member that is furthest on
    steps: int  # that it may make
    loss: float
    steps_per_second: float
    left: float  # seconds, at most


@dataclass(frozen=True)
class Host:
    """What training needs of whoever runs it."""

    leave: Callable[[Member, Stopped, nn.Module], None]  # a member has ended; the module is its own until this returns
    fail: Callable[[Member, BaseException], None]
    watch: Callable[[Status], None] = lambda _: None
    poll: Callable[[], None] = lambda: None  # called often; raises KeyboardInterrupt where everything shall stop


class Trouble(Exception):
    """Something went wrong inside of a population."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@contextmanager
def _trouble() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise Trouble(error) from error


class Group:
    """The runs of one program, from the first to the last."""

    def __init__(
        self,
        specs: Iterable[RunSpec],
        device: torch.device,
        host: Host,
        slots: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.waiting = deque(Member(spec) for spec in specs)
        self.device, self.host, self.checkpoints = device, host, checkpoints
        self.like = self.waiting[0].spec
        self.tasks = tasks_of(member.spec for member in self.waiting)
        self.unmapped = unmappable(self.like, device)
        self.slots = 1 if self.unmapped else slots or usual_slots([m.spec for m in self.waiting], device, room(device))
        self.inside: dict[int, Member] = {}
        self.kept: dict[int, tuple[Member, Mark]] = {}  # who was where when the population last kept its slots
        self.ended = {"solved": 0, "diverged": 0, "steps": 0, "failed": 0}
        self.halved: list[int] = []
        self.shrunk: list[int] = []
        self.population: Population | None = None

    def run(self) -> None:
        """Until nobody is left. Interrupted, it first saves where everybody is."""
        try:
            while self.waiting or self.inside:
                try:
                    self._run()
                    if self.inside:
                        self._shrink()
                except torch.OutOfMemoryError as error:
                    self._fewer_slots(error)
                except Trouble as trouble:
                    self._one_by_one(trouble.error)
        except (KeyboardInterrupt, ConnectionError):  # an end is asked for, or whoever watched has gone
            self._save()
            raise
        finally:
            self.population = None
        if self.checkpoints:
            self.checkpoints.forget()

    def _run(self) -> None:
        """With one population, until everybody has ended or one with fewer slots pays."""
        with _trouble():
            population = prepared(self.like, self.tasks, self.slots, self.device, self.unmapped)
        self.population, spent = population, 0.0
        while self._fill(population):
            self._keep(population)
            if self.checkpoints and self.checkpoints.due:
                self._save()
            if self._pays_to_shrink(spent):
                return
            begun = time.perf_counter()
            with _trouble():
                reports = population.round(self.host.poll)
            spent = time.perf_counter() - begun
            share = spent / len(self.inside)
            for slot, member in list(self.inside.items()):
                member.seconds += share
                if stopped := member.hear(reports[slot], partial(population.learned, slot)):
                    member.notes |= self._notes(population)
                    if member.best and stopped != "diverged":
                        population.restore(slot, member.best)
                    self.host.leave(member, stopped, population.module(slot))
                    self.ended[stopped] += 1
                    del self.inside[slot]
                    population.vacate(slot)
            self.host.watch(self._status(spent))

    def _fill(self, population: Population) -> bool:
        """Put those who wait into free slots; says whether anybody is inside."""
        for slot in range(population.count):
            while slot not in self.inside and self.waiting:
                member = self.waiting[0]
                self._look_for(member, population)
                try:
                    population.admit(slot, member.spec, member.saved, member.step)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    self._failed(self.waiting.popleft(), error)
                else:
                    member.started = member.started or datetime.now(UTC).isoformat(timespec="seconds")
                    self.inside[slot] = self.waiting.popleft()
        return bool(self.inside)

    def _keep(self, population: Population) -> None:
        """Remember where everybody is; what they were admitted with is needed until then."""
        population.keep()
        self.kept = {slot: (member, member.mark()) for slot, member in self.inside.items()}
        for member in self.inside.values():
            member.saved = None

    def _look_for(self, member: Member, population: Population) -> None:
        """Take up a member from where a checkpoint has it, if it fits."""
        if self.checkpoints is None or member.saved is not None or member.step:
            return
        found = self.checkpoints.resumed(member.spec.digest)
        if found and population.fits(found.saved):
            member.resume(*found)

    def _failed(self, member: Member, error: BaseException) -> None:
        self.ended["failed"] += 1
        self.host.fail(member, error)

    def _notes(self, population: Population) -> dict[str, Any]:
        notes: dict[str, Any] = {"slots": population.count, "mapped": population.count > 1}
        if self.unmapped:
            notes["unmapped_because"] = self.unmapped
        if self.device.type == "cuda":
            notes |= _outcome("graph", population.uncaptured)
        if self.like.training.compile:
            notes |= _outcome("compiled", population.uncompiled)
        if self.halved:
            notes["slots_before_memory_ran_out"] = list(self.halved)
        if self.shrunk:
            notes["slots_before_shrinking"] = list(self.shrunk)
        return notes

    # -- fewer slots, since most are idle or something goes wrong ------------------------------------------------------

    def _pays_to_shrink(self, spent: float) -> bool:
        """After a round that took some seconds; whoever waits needs the slots."""
        if self.waiting:
            return False
        how, steps = self.like.training, max(m.spec.training.steps - m.step for m in self.inside.values())
        left, cost = steps * spent / how.validate_every, rebuilding(how, self.device)
        return shrinking_pays(self.slots, len(self.inside), left, cost)

    def _shrink(self) -> None:
        """As many slots as there are members left."""
        self.shrunk.append(self.slots)
        self.slots = len(self.inside)
        self._return_to_queue()

    def _return_to_queue(self) -> None:
        """Everybody inside waits again, as they were when last kept; then the population's memory is free."""
        population, kept = self.population, {id(member): (slot, mark) for slot, (member, mark) in self.kept.items()}
        for _, member in sorted(self.inside.items(), reverse=True):
            if population is not None and id(member) in kept:
                slot, mark = kept[id(member)]
                member.rewind(mark, population.saved(slot))
            self.waiting.appendleft(member)
        self.inside, self.kept, self.population = {}, {}, None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _fewer_slots(self, error: torch.OutOfMemoryError) -> None:
        self._return_to_queue()
        if self.slots == 1:
            self._failed(self.waiting.popleft(), error)
            return
        self.halved.append(self.slots)
        self.slots //= 2

    def _one_by_one(self, error: Exception) -> None:
        """Whose error it is can be seen when each is alone."""
        self._return_to_queue()
        if self.slots == 1:
            self._failed(self.waiting.popleft(), error)
            return
        self.unmapped, self.slots = in_one_line(error), 1

    def _save(self) -> None:
        """Write down everybody who has begun."""
        population = self.population
        begun = []
        if population is not None:
            kept = [(slot, member, mark) for slot, (member, mark) in self.kept.items() if mark.step]
            begun = [(m.facts(mark), population.saved(slot)._replace(best=mark.best)) for slot, m, mark in kept]
        others = (*self.inside.values(), *self.waiting)
        begun += [(member.facts(member.mark()), member.saved) for member in others if member.saved]
        if self.checkpoints and begun:
            self.checkpoints.write(begun)

    # -- for people ----------------------------------------------------------------------------------------------------

    def _status(self, spent: float) -> Status:
        members = list(self.inside.values())
        every = self.like.training.validate_every
        to_go = sum(m.spec.training.steps - m.step for m in members) + sum(m.spec.training.steps for m in self.waiting)
        accuracies = [m.accuracy for m in members] or [0.0]
        losses = [m.curve[-1].loss for m in members if m.curve] or [float("nan")]
        front = max(members, key=lambda m: m.step, default=None)
        return Status(
            model=self.like.model.name,
            tasks=tuple(task.kind for task in self.tasks),
            slots=self.slots,
            alive=len(members),
            waiting=len(self.waiting),
            solved=self.ended["solved"],
            diverged=self.ended["diverged"],
            ended=sum(self.ended.values()),
            best=max(accuracies),
            median=median(accuracies),
            step=front.step if front else 0,
            steps=front.spec.training.steps if front else 0,
            loss=median(losses),
            steps_per_second=every / spent,
            left=to_go / self.slots * spent / every,
        )


def _outcome(what: str, why_not: str) -> dict[str, Any]:
    return {what: not why_not} | ({f"not_{what}_because": why_not} if why_not else {})


def usual_slots(specs: Sequence[RunSpec], device: torch.device, within: float) -> int:
    """On a GPU as many as there are runs and bytes for them; on a CPU one, since stacking gains nothing there."""
    if device.type == "cpu" or unmappable(specs[0], device):
        return 1
    return slots_that_fit(specs[0], tasks_of(specs), len(specs), device, within)


def rebuilding(how: Training, device: torch.device) -> float:
    """The seconds that a new population costs: on a CPU, and where the compiler would start over, never worth it."""
    return REBUILDING if device.type == "cuda" and not how.compile else math.inf


def shrinking_pays(slots: int, alive: int, left: float, cost: float) -> bool:
    """Whether a population of those alive alone saves clearly more seconds than it costs.

    `left` are the seconds that the longest of them may still take with the slots that there are.
    """
    return 2 * alive <= slots and left * (1 - FIXED) * (1 - alive / slots) > 2 * cost


def tasks_of(specs: Iterable[RunSpec]) -> list[Task]:
    return list(dict.fromkeys(spec.task for spec in specs))
