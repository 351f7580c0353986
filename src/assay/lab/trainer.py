"""Training the runs of one group: as many at a time as there are slots, the others as slots become free."""

from __future__ import annotations

import gc
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from assay.errors import in_one_line
from assay.lab.checkpoint import Checkpoints
from assay.lab.locks import EXCLUSIVE
from assay.lab.member import Member, Progress, StopReason
from assay.lab.member_state import MemberState
from assay.lab.population import Population, build_population
from assay.lab.replays import Replays
from assay.lab.shrinking import rebuild_seconds, shrinking_pays
from assay.lab.stacking import why_unmappable
from assay.lab.status import Status, group_status
from assay.spec import RunSpec
from assay.store import StoreUnavailable


@dataclass(frozen=True)
class Callbacks:
    """The functions that a trainer calls."""

    # The state's module is the member's until this returns; the last argument gives further states, one by one.
    on_end: Callable[[Member, StopReason, NamedState, Callable[[], Iterator[NamedState]]], None]
    on_failure: Callable[[Member, BaseException], None]
    on_status: Callable[[Status], None] = lambda _: None
    poll: Callable[[], None] = lambda: None  # called often; raises KeyboardInterrupt to stop everything
    get_device_alone: Callable[[], bool] = lambda: False  # waits for other groups; False if there were none


class NamedState(NamedTuple):
    """A state of a member, as a module that is the member's until the next state is asked for."""

    name: str  # `own`: that which the spec says to test
    step: int
    module: nn.Module
    replays: Replays | None = None  # for its tests


class PopulationError(Exception):
    """An error inside a population; which member caused it is not known yet."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@contextmanager
def _population_errors() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise PopulationError(error) from error


class GroupTrainer:
    """Trains the runs of one group from the first to the last.

    If memory runs out it waits for the groups that share the device, then continues with half of the slots. After
    another error it trains each run alone.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        slots: int,
        device: torch.device,
        callbacks: Callbacks,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.waiting = deque(Member(spec) for spec in specs)
        self.device, self.callbacks, self.checkpoints = device, callbacks, checkpoints
        self.spec = specs[0]
        self.tasks = list(dict.fromkeys(spec.task for spec in specs))
        self.unmapped = why_unmappable(self.spec, device)
        self.slots = 1 if self.unmapped else slots
        self.members_by_slot: dict[int, Member] = {}
        self.snapshot: dict[int, tuple[Member, Progress]] = {}  # by slot, at the population's last snapshot
        self.ended = {"solved": 0, "diverged": 0, "steps": 0, "failed": 0}
        self.slots_before_halving: list[int] = []
        self.slots_before_shrinking: list[int] = []
        self.population: Population | None = None

    def run(self) -> None:
        """Train until no run is left; when interrupted, save the state of every member first."""
        try:
            while self.waiting or self.members_by_slot:
                try:
                    self._run_population()
                    if self.members_by_slot:
                        self._shrink()
                except torch.OutOfMemoryError as error:
                    self._find_memory(error)
                except PopulationError as failure:
                    self._isolate_members(failure.error)
        except (KeyboardInterrupt, ConnectionError):  # a stop was requested, or the parent process is gone
            self._save()
            raise
        finally:
            self._close_population()
        if self.checkpoints:
            self.checkpoints.delete()

    def _run_population(self) -> None:
        """Train with one population until all members have ended or fewer slots are faster."""
        with _population_errors():
            population = build_population(self.spec, self.tasks, self.slots, self.device, self.unmapped)
        self.population, seconds = population, 0.0
        while self._fill_slots(population):
            self._take_snapshot(population)
            if self.checkpoints and self.checkpoints.due:
                with suppress(StoreUnavailable):  # it is due again at the next check
                    self._save()
            if self._should_shrink(seconds):
                return
            start = time.perf_counter()
            with _population_errors():
                reports = population.round(self.callbacks.poll)
            seconds = time.perf_counter() - start
            share = seconds / len(self.members_by_slot)
            for slot, member in list(self.members_by_slot.items()):
                member.seconds += share
                if reason := member.receive(reports[slot], partial(population.current_state, slot)):
                    self._end(population, slot, reason)
                elif member.stopped and population.average is not None and "averaged" not in member.saved:
                    member.saved["averaged"] = population.saved_states(slot)["averaged"]
            self._report(seconds)

    def _fill_slots(self, population: Population) -> bool:
        """Put waiting runs into free slots; returns whether any slot is taken."""
        for slot in range(population.count):
            while slot not in self.members_by_slot and self.waiting:
                member = self.waiting[0]
                self._resume(member, population)
                try:
                    population.admit(slot, member.spec, member.state, member.trained, member.first_perfect)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:
                    self._fail(self.waiting.popleft(), error)
                else:
                    member.started = member.started or datetime.now(UTC).isoformat(timespec="seconds")
                    self.members_by_slot[slot] = self.waiting.popleft()
        return bool(self.members_by_slot)

    def _resume(self, member: Member, population: Population) -> None:
        """Let a member continue from its checkpoint, if there is one and it fits."""
        if self.checkpoints is None or member.state is not None or member.trained:
            return
        checkpoint = self.checkpoints.load(member.spec.digest)
        if checkpoint and population.fits(checkpoint.state):
            member.resume(checkpoint.progress, checkpoint.state)

    def _take_snapshot(self, population: Population) -> None:
        """Remember the progress and state of every member; the states they were admitted with are needed until then."""
        population.take_snapshot()
        self.snapshot = {slot: (member, member.progress) for slot, member in self.members_by_slot.items()}
        for member in self.members_by_slot.values():
            member.state = None

    def _end(self, population: Population, slot: int, reason: StopReason) -> None:
        """Hand over a member that has ended, in its best state if that was kept, and free its slot."""
        member = self.members_by_slot[slot]
        member.notes |= self._notes(population)
        saved = population.saved_states(slot) | member.saved
        if member.tested and reason != "diverged":
            population.restore(slot, member.tested)

        def states() -> Iterator[NamedState]:
            for name in member.spec.testing.states:
                if name in saved and not (name == "averaged" and reason == "diverged"):
                    population.restore(slot, saved[name])
                    yield NamedState(name, saved[name].step, population.module(slot), population.replays)

        own = NamedState("own", member.step, population.module(slot), population.replays)
        self.callbacks.on_end(member, reason, own, states)
        self.ended[reason] += 1
        del self.members_by_slot[slot]
        population.vacate(slot)

    def _fail(self, member: Member, error: BaseException) -> None:
        self.ended["failed"] += 1
        self.callbacks.on_failure(member, error)

    def _notes(self, population: Population) -> dict[str, Any]:
        """How a member was trained, for its record."""
        notes: dict[str, Any] = {"slots": population.count, "mapped": population.count > 1}
        if self.unmapped:
            notes["unmapped_because"] = self.unmapped
        if self.device.type == "cuda":
            notes |= _success("graph", population.why_not_captured)
        if self.spec.training.compile:
            notes |= _success("compiled", population.why_not_compiled)
        if self.slots_before_halving:
            notes["slots_before_memory_ran_out"] = list(self.slots_before_halving)
        if self.slots_before_shrinking:
            notes["slots_before_shrinking"] = list(self.slots_before_shrinking)
        return notes

    def _report(self, seconds: float) -> None:
        members, waiting = list(self.members_by_slot.values()), [member.spec for member in self.waiting]
        status = group_status(self.tasks, self.slots, members, waiting, self.ended, self.spec, seconds)
        self.callbacks.on_status(status)

    # -- fewer slots: most are idle, memory ran out, or a member failed ------------------------------------------------

    def _should_shrink(self, round_seconds: float) -> bool:
        if self.waiting:
            return False
        training = self.spec.training
        steps = max(m.spec.training.steps - m.trained for m in self.members_by_slot.values())
        seconds_left = steps * round_seconds / training.validate_every
        return shrinking_pays(
            self.slots, len(self.members_by_slot), seconds_left, rebuild_seconds(training, self.device)
        )

    def _shrink(self) -> None:
        """Continue with as many slots as there are members."""
        self.slots_before_shrinking.append(self.slots)
        self.slots = len(self.members_by_slot)
        self._return_to_queue()

    def _find_memory(self, error: torch.OutOfMemoryError) -> None:
        """Continue without the other groups that share the device; if there are none, with half of the slots."""
        self._return_to_queue(error)
        if self.callbacks.get_device_alone():
            return
        if self.slots == 1:
            self._fail(self.waiting.popleft(), error)
            return
        self.slots_before_halving.append(self.slots)
        self.slots //= 2

    def _isolate_members(self, error: Exception) -> None:
        """Continue with one slot, in which an error belongs to the member inside."""
        self._return_to_queue(error)
        if self.slots == 1:
            self._fail(self.waiting.popleft(), error)
            return
        self.unmapped, self.slots = in_one_line(error), 1

    def _return_to_queue(self, error: Exception | None = None) -> None:
        """Move all members back to the queue, as they were at the last snapshot, and free the population's memory."""
        population = self.population
        snapshot = {id(member): (slot, progress) for slot, (member, progress) in self.snapshot.items()}
        for _, member in sorted(self.members_by_slot.items(), reverse=True):
            if population is not None and id(member) in snapshot:
                slot, progress = snapshot[id(member)]
                member.rewind(progress, population.state(slot))
            self.waiting.appendleft(member)
        if error:
            traceback.clear_frames(error.__traceback__)  # their variables hold the population
        self.members_by_slot, self.snapshot = {}, {}
        self._close_population()
        gc.collect()
        if error and self.device.type == "cuda":
            with EXCLUSIVE:
                torch.cuda.empty_cache()

    def _close_population(self) -> None:
        if self.population is not None:
            self.population.close()
            self.population = None

    def _save(self) -> None:
        """Write a checkpoint with every member that has made a step."""
        population = self.population
        checkpoints = list[tuple[dict[str, Any], MemberState]]()
        if population is not None:
            started = [(slot, *pair) for slot, pair in self.snapshot.items() if pair[1].trained]
            for slot, member, progress in started:
                state = population.state(slot)
                saved = {**state.saved, **progress.saved}
                checkpoints.append((member.plain(progress), state._replace(saved=saved)))
        others = (*self.members_by_slot.values(), *self.waiting)
        checkpoints += [(member.plain(member.progress), member.state) for member in others if member.state]
        if self.checkpoints and checkpoints:
            self.checkpoints.write(checkpoints)


def _success(name: str, failure: str) -> dict[str, Any]:
    return {name: not failure} | ({f"not_{name}_because": failure} if failure else {})
